//! What every run of an experiment shares.

use super::metric::Finder;
use std::path::PathBuf;

/// What every run of an experiment shares.
#[derive(Debug)]
pub(crate) struct RunConfig {
    /// The command.
    pub(crate) command: Vec<String>,
    /// Samples a second and CPU.
    pub(crate) freq: u64,
    /// The workload's own figure.
    pub(crate) metric: Option<Finder>,
    /// Where everything goes.
    pub(crate) dir: PathBuf,
    /// Keep the recordings.
    pub(crate) keep: bool,
}
