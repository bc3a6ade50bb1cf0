//! Other profilers' files as recordings.
//!
//! perf.data is read by code of our own up to its records, whose fields `linux-perf-event-reader` knows: the file may be
//! anyone's, and what its header asks for is bounded by the file's own length before it is done. Records are passed on in
//! the order of time, damaged ones are counted and left out, and where nothing more can be read what was read is kept.

mod bytes;
mod convert;
mod description;
mod direct;
mod error;
mod events;
mod file;
mod perf_data;
mod read_values;
mod records;
mod rounds;
mod stacks;

pub use direct::{PerfBlock, PerfSamples, perf_events};
pub use error::ImportError;
pub use perf_data::{Imported, perf_data, perf_pipe};

#[cfg(test)]
mod tests;
