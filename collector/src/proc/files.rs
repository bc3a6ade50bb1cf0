//! Opening of mapped files without trusting their names.

use super::memory::MAX_MAPS_BYTES;
use super::{MapsEntry, parse_maps};
use fpprof_recording::model::{BuildId, FileIdentity, Mmap};
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// A mapped file, open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) bytes: u64,
    /// Device and inode from stat(2).
    stat: (u64, u64),
    changed: Changed,
}

/// When a file was last written to, or its inode was changed: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed(i64, i64);

impl Changed {
    fn of(metadata: &Metadata) -> Self {
        Self(metadata.ctime(), metadata.ctime_nsec())
    }
}

impl Opened {
    /// Whether this is the file that a process has mapped under this device and inode.
    pub(crate) fn is_of(&self, identity: &FileIdentity, pid: u32) -> bool {
        let is_it = |metadata: &Metadata, pid: &str| is_mapped(&self.file, metadata, identity, pid);
        self.file.metadata().is_ok_and(|metadata| is_it(&metadata, &pid.to_string()) || is_it(&metadata, "self"))
    }

    /// Its device and inode from stat(2), and when it was last changed.
    pub(crate) fn version(&self) -> ((u64, u64), Changed) {
        (self.stat, self.changed)
    }

    /// Whether no path leads to it any more, in any mount namespace.
    pub(crate) fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

/// Opens the file behind a mapping: by the mapping itself, else by its path as the process sees it, as this process sees it, or
/// as one of `ancestors` sees it, which may live longer. A path counts only if it leads to the mapped inode on the mapped device.
pub(crate) fn open_mapped(mmap: &Mmap, ancestors: &[u32]) -> Option<Opened> {
    let Mmap { pid, start, len, path, identity, .. } = mmap;
    let (end, its_pid) = (start.saturating_add(*len), pid.to_string());
    let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    // Another file may be mapped there by now, even one of another file system with the same inode number.
    let is_it = |handle: &File, metadata: &Metadata| {
        is_mapped(handle, metadata, identity, &its_pid)
            || (metadata.ino() == identity.inode && is_shown(*pid, *start..end, identity))
    };
    if let Some(opened) = open_regular(by_mapping, is_it) {
        return Some(opened);
    }
    if path.first() != Some(&b'/') {
        return None;
    }
    let path = std::ffi::OsStr::from_bytes(path);
    let as_seen_by = |pid: &u32| {
        let (pid, mut below_root) = (pid.to_string(), std::ffi::OsString::from(format!("/proc/{pid}/root")));
        below_root.push(path);
        open_regular(below_root.into(), |handle, metadata| is_mapped(handle, metadata, identity, &pid))
    };
    as_seen_by(pid)
        .or_else(|| open_regular(path.into(), |handle, metadata| is_mapped(handle, metadata, identity, "self")))
        .or_else(|| ancestors.iter().find_map(as_seen_by))
}

/// When the file with this device and inode was last changed; `None` if neither its path nor the mapping leads to it.
pub(crate) fn last_change(mmap: &Mmap, stat: (u64, u64)) -> Option<Changed> {
    let Mmap { pid, start, len, path, .. } = mmap;
    let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{:x}", start.saturating_add(*len)));
    [std::ffi::OsStr::from_bytes(path).into(), by_mapping].iter().find_map(|path| {
        let found = std::fs::metadata(path).ok().filter(|found| (found.dev(), found.ino()) == stat)?;
        Some(Changed::of(&found))
    })
}

/// Whether the path, as this process sees it, still leads to this file, which was opened when it was mapped if
/// possible.
pub(crate) fn still_at(path: &[u8], identity: &FileIdentity, opened: Option<&Opened>) -> bool {
    let path = std::ffi::OsStr::from_bytes(path);
    match opened {
        // The usual case, for hundreds of files again and again: without opening them.
        Some(opened) => std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == opened.stat),
        None => open_path(path.into()).is_some_and(|(handle, found)| is_mapped(&handle, &found, identity, "self")),
    }
}

/// Whether a mapping with this identity is of this file. `pid`, or `self`, has it in its mount namespace.
fn is_mapped(handle: &File, metadata: &Metadata, identity: &FileIdentity, pid: &str) -> bool {
    let FileIdentity { dev_major, dev_minor, inode, .. } = *identity;
    let device = metadata.dev();
    let by_stat = (libc::major(device), libc::minor(device), metadata.ino());
    by_stat == (dev_major, dev_minor, inode) || shown_identity(handle, pid) == Some((dev_major, dev_minor, inode))
}

/// Device and inode of a file as mappings show them. stat(2) may differ: btrfs reports the device of the subvolume,
/// overlayfs that of the layer.
///
/// # Sources
/// `show_map_vma` in `fs/proc/task_mmu.c`, `show_mountinfo` in `fs/proc_namespace.c` and `seq_show` in `fs/proc/fd.c`
/// take both from the file system; `btrfs_getattr` and `ovl_getattr` do not. Before 5.14, `fdinfo` shows no inode.
fn shown_identity(handle: &File, pid: &str) -> Option<(u32, u32, u64)> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (mount, inode) = (field("mnt_id:")?, field("ino:")?);
    let mounts = std::fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
    let device = String::from_utf8_lossy(&mounts).lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (major, minor) = fields.next().filter(|id| id.parse() == Ok(mount)).and(fields.nth(1))?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    device.map(|(major, minor)| (major, minor, inode))
}

/// Whether `/proc/PID/maps` shows a mapping of this file: for file systems whose mappings show another device than stat(2) and
/// the mount do, and for kernels before 5.14, whose `fdinfo` shows no inode. What is mapped may change between the two looks.
fn is_shown(pid: u32, range: Range<u64>, identity: &FileIdentity) -> bool {
    let mut text = Vec::new();
    let read =
        File::open(format!("/proc/{pid}/maps")).and_then(|file| file.take(MAX_MAPS_BYTES).read_to_end(&mut text));
    let of_file = (identity.dev_major, identity.dev_minor, identity.inode);
    let is_it = |entry: MapsEntry| entry.range() == range && (entry.dev_major, entry.dev_minor, entry.inode) == of_file;
    read.is_ok() && parse_maps(&text).any(is_it)
}

fn open_path(path: PathBuf) -> Option<(File, Metadata)> {
    let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let metadata = handle.metadata().ok()?;
    Some((handle, metadata))
}

/// Opens a regular file and nothing else: a path's target is inspected before it is opened, so that no FIFO blocks
/// and no device is touched.
fn open_regular(path: PathBuf, is_wanted: impl Fn(&File, &Metadata) -> bool) -> Option<Opened> {
    let (handle, metadata) = open_path(path)?;
    if !metadata.is_file() || !is_wanted(&handle, &metadata) {
        return None;
    }
    let by_handle = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(by_handle).ok()?;
    let (stat, changed) = ((metadata.dev(), metadata.ino()), Changed::of(&metadata));
    Some(Opened { file, bytes: metadata.len(), stat, changed })
}

/// The most program headers read from a file.
const MAX_PROGRAM_HEADERS: u16 = 256;
/// The most bytes read from each note segment.
const MAX_NOTE_BYTES: u64 = 4096;

/// The GNU build ID of a little-endian ELF file of 64 or 32 bits.
///
/// # Sources
/// System V gABI, chapters 4 and 5: header, program headers, notes. GNU build ID: note type 3 of owner `GNU`.
pub(crate) fn read_build_id(file: &File) -> Option<BuildId> {
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if header.get(..4)? != b"\x7fELF" || header.get(5)? != &1 {
        return None;
    }
    let is_64 = header.get(4)? == &2;
    let (table, entry_bytes, n) = if is_64 {
        (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?)
    } else {
        (u64::from(u32_at(&header, 28)?), u16_at(&header, 42)?, u16_at(&header, 44)?)
    };
    let mut entry = [0u8; 56];
    let entry = entry.get_mut(..if is_64 { 56 } else { 32 })?;
    for i in 0..n.min(MAX_PROGRAM_HEADERS) {
        let at = table.checked_add(u64::from(i) * u64::from(entry_bytes))?;
        file.read_exact_at(entry, at).ok()?;
        const PT_NOTE: u32 = 4;
        if u32_at(entry, 0)? != PT_NOTE {
            continue;
        }
        let (offset, bytes) = if is_64 {
            (u64_at(entry, 8)?, u64_at(entry, 32)?)
        } else {
            (u64::from(u32_at(entry, 4)?), u64::from(u32_at(entry, 16)?))
        };
        let mut notes = vec![0; usize::try_from(bytes.min(MAX_NOTE_BYTES)).ok()?];
        if file.read_exact_at(&mut notes, offset).is_ok()
            && let Some(build_id) = build_id_note(&notes)
        {
            return Some(build_id);
        }
    }
    None
}

fn build_id_note(mut notes: &[u8]) -> Option<BuildId> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let (name_len, description_len) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let kind = u32_at(notes, 8)?;
        let name_end = 12usize.checked_add(name_len)?;
        let description = name_end.checked_next_multiple_of(4)?;
        let end = description.checked_add(description_len)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..name_end)? == b"GNU\0" {
            return BuildId::new(notes.get(description..end)?);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
