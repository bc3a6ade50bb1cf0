//! What all runs share.

use std::path::PathBuf;

/// What all runs share.
#[derive(Debug, Clone)]
pub(crate) struct RunConfig {
    pub(crate) fpprof: PathBuf,
    pub(crate) workload: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) seconds: u64,
    /// Whether a flame graph is drawn, to see how long that takes.
    pub(crate) draws: bool,
    /// How the names of the processes begin whose stacks are judged.
    pub(crate) names: &'static [&'static str],
}
