//! Other profilers' files as recordings.

mod convert;
mod error;
mod perf_data;

pub use error::ImportError;
pub use perf_data::{Imported, perf_data, perf_pipe};
