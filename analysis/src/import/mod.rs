//! Imports files of other profilers.
//!
//! The structure of perf.data is parsed here; the fields of records by `linux-perf-event-reader`. The file is not
//! trusted: what its header asks for is first bounded by the file's length. Records are passed on in order of time,
//! damaged ones are counted and left out, and if the rest cannot be read, what was read is kept.

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
