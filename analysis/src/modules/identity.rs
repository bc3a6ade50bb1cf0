//! Is this file the one that was mapped?

use super::FileStat;
use crate::address_space::MappedFile;
use fpprof_recording::model::BuildId;
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
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::NotRegular => "not a regular file",
            Self::OfKernel => "a file of the kernel's own, as in /proc or /sys, which is not opened",
            Self::Unreadable => "unreadable",
            Self::NotElf => "not a valid ELF file",
            Self::Replaced => "replaced during or after the recording",
            Self::Modified => "modified during or after the recording",
        }
    }
}

/// How sure we are that a file is the mapped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// Same build id, or same inode and not written to since.
    Yes,
    /// The recording says nothing, or too little, that could be compared.
    NothingToCompare,
}

/// Compares a file with what was mapped.
///
/// A recorded build id decides alone: equal build ids are equal modules on whatever machine. Without one, device, inode
/// and the time of the last write decide, where the candidate's file system is the recorded one.
pub(super) fn verify(
    mapped: &MappedFile,
    mapped_unix_ns: Option<i128>,
    found: FileStat,
    found_build_id: Option<BuildId>,
    has_recorded_inodes: bool,
) -> Result<Verified, Missing> {
    let recorded = mapped.identity;
    if let Some(build_id) = recorded.build_id {
        return if found_build_id == Some(build_id) { Ok(Verified::Yes) } else { Err(Missing::Replaced) };
    }
    if recorded.inode == 0 || !has_recorded_inodes {
        return Ok(Verified::NothingToCompare);
    }
    let is_same_inode =
        (recorded.dev_major, recorded.dev_minor, recorded.inode) == (found.dev_major, found.dev_minor, found.inode);
    if !is_same_inode {
        return Err(Missing::Replaced);
    }
    match mapped_unix_ns {
        Some(mapped) if found.modified_unix_ns > mapped => Err(Missing::Modified),
        Some(_) => Ok(Verified::Yes),
        // The file is there, but nothing says that it was not written to since.
        None => Ok(Verified::NothingToCompare),
    }
}
