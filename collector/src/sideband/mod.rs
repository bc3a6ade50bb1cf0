//! What processes do while samples are taken: perf's process events, in order, for the profiled processes.
//!
//! Two events per CPU report into one ring: one says of each mapping its device and inode, the other its build id (the
//! kernel puts either the one or the other into a record). `parse` reads records, `merge` joins the two, `order` brings
//! the rings of all CPUs into the order of time, and `tracker` knows which processes are profiled and what they map.

mod merge;
mod order;
mod parse;
mod source;
mod throttling;
mod tracker;

pub(crate) use source::SidebandSource;
pub(crate) use tracker::{Tracker, Verdict};
