//! The live view: what `fpprof top` shows while it records.
//!
//! ```text
//! collector (its thread) ── blocks ──▶ live::stream ── a second's samples ──▶ analyst (its thread) ── counts ──▶ view ──▶ draw
//! ```
//!
//! The collector writes a recording as always; [`live`](crate::live) is the sink that keeps its process events and
//! passes on its samples, one second at a time, which `analyst` unwinds and symbolizes like any recording and then
//! discards. Memory: the process events of living processes, one second of samples (both bounded there), and the counts
//! of the window ([`table::MAX_ROWS`] for each second).
//!
//! If started with privileges, `analyst` works in a process without any (`remote`).

mod analyst;
mod draw;
mod remote;
mod screen;
mod session;
mod table;
mod view;

pub(crate) use remote::run as run_worker;
pub(crate) use session::{ViewConfig, run};
