//! The live view: what `fpprof top` shows while it records.
//!
//! ```text
//! collector (its thread) ── blocks ──▶ stream ── a second's samples ──▶ analyst (its thread) ── counts ──▶ view ──▶ draw
//! ```
//!
//! The collector writes a recording as always; `stream` is the sink that keeps its process events and hands on its
//! samples, a second's worth at a time, which `analyst` unwinds and names like any recording and then forgets. Memory:
//! the process events of what is alive ([`stream::MAX_EVENT_BYTES`]), one second of samples
//! ([`stream::MAX_SAMPLE_BYTES`]), and the counts of the window ([`table::MAX_ROWS`] for each second).
//!
//! Started with privileges, `analyst` works in a process without any (`remote`).

mod analyst;
mod draw;
mod remote;
mod screen;
mod session;
mod stream;
mod table;
mod view;

pub(crate) use remote::run as run_worker;
pub(crate) use session::{ViewConfig, run};
