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
    /// The program itself, if the workload is one; else the workload is a script that starts several.
    pub(crate) program: Option<PathBuf>,
    /// Prefixes of the names of processes whose stacks are judged.
    pub(crate) names: &'static [&'static str],
}
