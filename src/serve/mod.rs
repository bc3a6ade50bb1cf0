//! `fpprof serve`: the page for a store or a recording.
//!
//! ```text
//! browser ── HTTP ──▶ server ── parameters ──▶ answers ── rows ──▶ fpprof_reports::store
//!                     (one query at a time)      └── files of the range ◀── store or recording
//! ```
//!
//! **Invariant:** no state is kept between queries. Files that cannot be read are named in the answer. The process
//! drops its privileges once it listens. Other machines are served over TLS only, and only with the token.

mod access;
mod address;
mod answers;
mod files;
mod parameters;
mod server;

pub(crate) use access::{AccessArgs, Pipes};
pub(crate) use address::{Listen, listen};
pub(crate) use answers::profile;
pub(crate) use files::Files;
pub(crate) use parameters::filter;
pub(crate) use server::run;
