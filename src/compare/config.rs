//! Settings shared by every run of an experiment.

use super::metric::Finder;
use std::path::PathBuf;

/// Settings shared by every run of an experiment.
#[derive(Debug)]
pub(crate) struct RunConfig {
    /// The command.
    pub(crate) command: Vec<String>,
    /// Samples per second and CPU.
    pub(crate) freq: u64,
    /// Extracts the workload's own figure, if requested.
    pub(crate) metric: Option<Finder>,
    /// The directory of the report and all its files.
    pub(crate) dir: PathBuf,
    /// Whether to keep the recordings.
    pub(crate) keep: bool,
}
