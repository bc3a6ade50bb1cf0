//! What one process measured.

use serde::{Deserialize, Serialize};

/// What one process measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) samples: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) frames: u64,
    pub(crate) complete: u64,
    /// Different addresses of frames; 0 where hashes were not asked for.
    pub(crate) addresses: u64,
    /// CPU seconds of the first pass, with all that is read and built for it.
    pub(crate) cold_s: f64,
    /// CPU seconds of the best later pass.
    pub(crate) warm_s: f64,
    /// The same on the wall.
    pub(crate) cold_wall_s: f64,
    pub(crate) warm_wall_s: f64,
    /// Resident memory the engine added, at its peak.
    pub(crate) rss_bytes: u64,
}
