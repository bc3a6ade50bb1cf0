//! Why there is nothing of a module.

use fpprof_unwind::TruncatedReason;
use serde::{Deserialize, Serialize};

/// Why there is nothing of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Missing {
    /// No file of this name.
    NotFound,
    /// A directory, device, pipe or socket.
    NotRegular,
    /// What the kernel makes up when it is opened and read.
    OfKernel,
    /// It cannot be opened or read (permission, I/O error, cut short).
    Unreadable,
    /// Not an ELF file, or one that cannot be parsed.
    NotElf,
    /// Another file has taken its name: other build id, or other inode.
    Replaced,
    /// The same inode, written to after it was mapped.
    Modified,
}

impl Missing {
    /// What the unwinder is told.
    #[must_use]
    pub const fn truncated_reason(self) -> TruncatedReason {
        match self {
            Self::Replaced | Self::Modified => TruncatedReason::BuildIdMismatch,
            _ => TruncatedReason::ModuleUnavailable,
        }
    }

    /// The file that was mapped is not the file that is there now.
    #[must_use]
    pub const fn is_other_file(self) -> bool {
        matches!(self, Self::Replaced | Self::Modified)
    }

    /// In words, after the name of the module.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::NotRegular => "not a regular file",
            Self::OfKernel => "a /proc or /sys file, which is not opened",
            Self::Unreadable => "unreadable",
            Self::NotElf => "not a valid ELF file",
            Self::Replaced => "replaced during or after the recording",
            Self::Modified => "modified during or after the recording",
        }
    }
}
