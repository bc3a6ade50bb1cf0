//! Settings shared by all runs.

use std::path::PathBuf;

/// Settings shared by all runs.
#[derive(Debug, Clone)]
pub(crate) struct RunConfig {
    pub(crate) fpprof: PathBuf,
    pub(crate) workload: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) seconds: u64,
    /// Whether to draw a flame graph, to measure how long that takes.
    pub(crate) draws: bool,
    /// Prefixes of the names of processes whose stacks are judged.
    pub(crate) names: &'static [&'static str],
}
