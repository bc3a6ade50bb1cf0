//! Model in, bytes out: tables, flame graphs, HTML, JSON. Same input, same bytes.
