//! A frame of an example that is shown.

use serde::{Deserialize, Serialize};

/// A frame that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFrame {
    /// AVMA.
    pub address: u64,
    /// Canonical frame address, where known.
    pub cfa: Option<u64>,
    /// Function, and where that is in its file.
    pub name: String,
}
