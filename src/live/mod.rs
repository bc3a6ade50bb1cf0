//! A recording in memory that is read while it goes on: by `fpprof top` each second, by `fpprof agent` at the end of
//! each interval.
//!
//! The collector writes blocks into a sink; the reader takes parts, each a recording of its own: the process events
//! that still matter, and the samples since the previous part. No stack bytes reach a disk, unless `fpprof top` also
//! writes a file.

mod compact;
mod mappings;
mod stream;

pub(crate) use stream::{Feed, Part, pair};
