//! What processes do while samples are taken: perf's process events, in order, for the profiled processes.
//!
//! One event per CPU says of each mapping its device and inode; its build id is read from the file at once (see
//! `modules`). The kernel would tell it (`perf_event_attr.build_id`), but then marks the records of everybody else's
//! events as if they held one: perf 6.1 aborts on that in the middle of its own recording (seen on 6.18).
//!
//! `parse` reads records, `allowance` cuts floods of mappings, `order` brings the rings of all CPUs into the order of time, `tracker` knows which
//! processes are profiled and what they map, and `sharing` which of them have the same memory.

mod allowance;
mod order;
mod parse;
mod sharing;
mod source;
mod throttling;
mod tracker;

pub(crate) use allowance::{MAPPINGS_A_SECOND, is_untold};
pub(crate) use parse::{Body, Records};
pub(crate) use sharing::Sharing;
pub(crate) use source::{SidebandSource, TOTAL_BYTES, Throttled};
pub(crate) use throttling::Throttling;
pub(crate) use tracker::{Known, RunningThreads, Seen, Tracker, Verdict};
