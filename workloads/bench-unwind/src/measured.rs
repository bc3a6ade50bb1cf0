//! The measurements of one process.

use serde::{Deserialize, Serialize};

/// The measurements of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) samples: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) frames: u64,
    pub(crate) complete: u64,
    /// Number of distinct frame addresses; 0 if hashes were not requested.
    pub(crate) addresses: u64,
    /// CPU seconds of the first pass, including all that is read and built for it.
    pub(crate) cold_s: f64,
    /// CPU seconds of the best later pass.
    pub(crate) warm_s: f64,
    /// Wall seconds of the same passes.
    pub(crate) cold_wall_s: f64,
    pub(crate) warm_wall_s: f64,
    /// Peak of the resident memory that the engine added, in bytes.
    pub(crate) rss_bytes: u64,
}
