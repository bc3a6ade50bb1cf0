//! What all runs share.

use std::path::PathBuf;

/// What all runs share.
#[derive(Debug, Clone)]
pub(crate) struct RunConfig {
    pub(crate) fpprof: PathBuf,
    pub(crate) workload: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) seconds: u64,
}
