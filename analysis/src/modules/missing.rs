//! Why a module is not available.

use fpprof_unwind::TruncatedReason;
use serde::{Deserialize, Serialize};

/// Why a module is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Missing {
    /// There is no file of this name.
    NotFound,
    /// A directory, device, pipe or socket.
    NotRegular,
    /// A pseudo-file, whose contents the kernel generates.
    OfKernel,
    /// It cannot be opened or read (permission, I/O error, truncated).
    Unreadable,
    /// Not an ELF file, or one that cannot be parsed.
    NotElf,
    /// Another file has its name: different build ID or inode.
    Replaced,
    /// The same inode, written to after it was mapped.
    Modified,
}

impl Missing {
    /// The corresponding stop reason of the unwinder.
    #[must_use]
    pub const fn truncated_reason(self) -> TruncatedReason {
        match self {
            Self::Replaced | Self::Modified => TruncatedReason::BuildIdMismatch,
            _ => TruncatedReason::ModuleUnavailable,
        }
    }

    /// Whether the file that is there now is not the one that was mapped.
    #[must_use]
    pub const fn is_other_file(self) -> bool {
        matches!(self, Self::Replaced | Self::Modified)
    }

    /// As text, to follow the name of the module.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::NotRegular => "not a regular file",
            Self::OfKernel => "a /proc or /sys file, which is not opened",
            Self::Unreadable => "unreadable",
            Self::NotElf => "not a valid ELF file",
            Self::Replaced => "replaced, or in another mount namespace",
            Self::Modified => "modified during or after the recording",
        }
    }
}
