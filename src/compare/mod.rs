//! The experiment: runs one command under every mode, interleaved and repeated, with perf for comparison.

pub(crate) mod config;
mod environment;
pub(crate) mod experiment;
pub(crate) mod metric;
pub(crate) mod mode;
mod order;
mod ours;
mod perf;
mod perf_script;
pub(crate) mod publish;
mod recorded;
pub(crate) mod run;
mod watch;
