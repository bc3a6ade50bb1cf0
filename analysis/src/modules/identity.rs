//! Verifies that a file is the one that was mapped.

use super::{FileStat, Missing};
use crate::address_space::MappedFile;
use fpprof_recording::model::BuildId;

/// How certain it is that a file is the mapped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// Same build ID, or same inode and not modified since.
    Yes,
    /// The recording has nothing to compare, or too little.
    NothingToCompare,
}

/// Compares a file with what was mapped.
///
/// If a build ID was recorded, it alone decides: equal build IDs are equal modules on any machine. Otherwise device,
/// inode and modification time decide, if the candidate's file system is the recorded one.
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
        // The file exists, but it is not known whether it was modified.
        None => Ok(Verified::NothingToCompare),
    }
}
