//! A recording under way, for those that look at it while it goes on: `fpprof top` each second, `fpprof agent` at the end of
//! each interval.
//!
//! Takes the blocks that the collector writes; gives parts, each a recording of its own: the process events that still
//! matter, and the samples since the part before. No stack byte reaches a disk.

mod compact;
mod stream;

pub(crate) use stream::{Feed, Part, pair};
