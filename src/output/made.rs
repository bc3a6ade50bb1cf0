//! What was made for a recording.

use serde::{Deserialize, Serialize};

/// What was made for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Made {
    /// Nothing: it goes to a device or a pipe that was there.
    Nothing,
    /// A new file.
    New,
    /// A new file, for which an older one was moved aside.
    InPlaceOfOlder,
}
