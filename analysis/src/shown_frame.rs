//! A frame of an example, for display.

use serde::{Deserialize, Serialize};

/// A frame for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFrame {
    /// AVMA.
    pub address: u64,
    /// Canonical frame address, if known.
    pub cfa: Option<u64>,
    /// Function, and its place in its file.
    pub name: String,
}
