//! What processes do while samples are taken: perf's process events, in order, for the profiled processes.
//!
//! One event per CPU reports device and inode of each mapping; the build ID is read from the file at once (see
//! `modules`). The kernel could report it (`perf_event_attr.build_id`), but then marks the records of everybody else's
//! events as if they had one: perf 6.1 aborts on that in the middle of its own recording (seen on 6.18).
//!
//! `parse` reads records, `allowance` cuts floods of mappings, `order` merges the rings of all CPUs by time, `tracker`
//! knows which processes are profiled and what they map, and `sharing` which of them share memory.

mod allowance;
mod order;
mod parse;
mod sharing;
mod source;
mod throttling;
mod tracker;

pub(crate) use allowance::{EVENTS_A_SECOND, is_range_only};
pub(crate) use parse::{Body, Records};
pub(crate) use sharing::Sharing;
pub(crate) use source::{LARGE_RING_BYTES, SidebandSource, TOTAL_BYTES, Throttled};
pub(crate) use throttling::Throttling;
pub(crate) use tracker::{Known, RunningThreads, Seen, Tracker, Verdict};
