//! The distinct files that were mapped.

use fpprof_recording::model::FileIdentity;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Index of a [`MappedFile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIx(pub u32);

/// A file as it was mapped: its path and its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Path as reported by the kernel, or `[vdso]`, or `[vdso32]` in 32-bit processes.
    pub path: Vec<u8>,
    /// The file's identity when it was mapped.
    pub identity: FileIdentity,
    /// When it was first seen mapped, `CLOCK_MONOTONIC` nanoseconds.
    pub first_mapped_ns: u64,
}

impl MappedFile {
    /// The last component of the path, lossily as UTF-8 and bounded; without the kernel's ` (deleted)`.
    #[must_use]
    pub fn base_name(&self) -> String {
        let path = self.path.strip_suffix(b" (deleted)").unwrap_or(&self.path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let name = name.get(..name.len().min(256)).unwrap_or(name);
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether the file had been deleted when it was mapped, according to the kernel.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.path.ends_with(b" (deleted)")
    }
}

/// A file whose bytes are in the recording.
#[derive(Debug)]
pub struct Embedded {
    /// See [`MappedFile::path`]; otherwise what these bytes are, such as a process's table of compiled code.
    pub path: Vec<u8>,
    /// See [`MappedFile::identity`].
    pub identity: FileIdentity,
    /// Shared between entries with the same content.
    pub bytes: Arc<[u8]>,
}

impl Embedded {
    /// Whether these are the bytes of a mapped file: the same device, inode and build ID, or without an inode the same
    /// name. The build ID alone is not enough: whoever builds a file chooses it, and could inject these bytes into the
    /// processes of other users. There is one vDSO for each name.
    pub(crate) fn is(&self, file: &MappedFile) -> bool {
        match (self.path == file.path, file.identity.inode) {
            (true, _) if is_vdso(&file.path) => true,
            (false, 0) => false,
            _ => self.identity == file.identity,
        }
    }
}

/// Deduplicates bytes: a file that is replaced again and again may have the same content each time.
#[derive(Debug, Default)]
pub(super) struct SharedBytes(FxHashMap<u64, Arc<[u8]>>);

impl SharedBytes {
    pub(super) fn share(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        let known = self.0.entry(FxBuildHasher.hash_one(bytes)).or_insert_with(|| bytes.into());
        // Different bytes may have the same hash.
        if **known == *bytes { Arc::clone(known) } else { bytes.into() }
    }
}

/// Whether this is a vDSO, which the kernel maps into every process.
fn is_vdso(path: &[u8]) -> bool {
    path == b"[vdso]" || path == b"[vdso32]"
}

/// Whether a mapping of this name can hold a module: a file, or the vDSO.
///
/// # Sources
/// `perf_event_mmap_event` in `kernel/events/core.c` (`//anon`, `[heap]`, `[stack]`, `[vdso]`), `shmem_zero_setup`
/// (`/dev/zero`) and `newseg` in `ipc/shm.c` (`/SYSV…`).
pub(super) fn can_hold_a_module(path: &[u8]) -> bool {
    let is_anonymous = path.starts_with(b"//anon") || path.starts_with(b"/dev/zero") || path.starts_with(b"/SYSV");
    is_vdso(path) || (path.starts_with(b"/") && !is_anonymous)
}

/// Deduplicates files by (path, identity).
#[derive(Debug, Default)]
pub(super) struct FileTable {
    files: Vec<MappedFile>,
    index: FxHashMap<(Vec<u8>, FileIdentity), FileIx>,
}

impl FileTable {
    /// The index of this file; `None` if it cannot be a module, or if there are more files than 32 bits can number.
    pub(super) fn intern(&mut self, path: &[u8], identity: FileIdentity, time_ns: u64) -> Option<FileIx> {
        if !can_hold_a_module(path) {
            return None;
        }
        let key = (path.to_vec(), identity);
        if let Some(&ix) = self.index.get(&key) {
            if let Some(file) = self.files.get_mut(ix.0 as usize) {
                file.first_mapped_ns = file.first_mapped_ns.min(time_ns);
            }
            return Some(ix);
        }
        let ix = FileIx(u32::try_from(self.files.len()).ok()?);
        self.files.push(MappedFile { path: path.to_vec(), identity, first_mapped_ns: time_ns });
        self.index.insert(key, ix);
        Some(ix)
    }

    pub(super) fn into_files(self) -> Vec<MappedFile> {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal bytes are kept once, and different ones are not confused.
    #[test]
    fn the_same_bytes_are_kept_once() {
        let mut shared = SharedBytes::default();
        let [first, other, again] = [&b"\x7fELF 1"[..], b"\x7fELF 2", b"\x7fELF 1"].map(|bytes| shared.share(bytes));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        assert_eq!((&*first, &*other), (&b"\x7fELF 1"[..], &b"\x7fELF 2"[..]));
    }
}
