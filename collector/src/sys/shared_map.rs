//! A BPF array map as memory.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The values of a BPF array map, mapped into this process. The kernel may write them at any time.
#[derive(Debug)]
pub(crate) struct SharedMap {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value and is not tied to a thread.
unsafe impl Send for SharedMap {}

impl SharedMap {
    /// Maps `len` bytes of the map behind `fd`, optionally for writing.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, is_writable: bool) -> io::Result<Self> {
        let prot = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { start, len })
    }

    /// The bytes at `offset`; `None` outside the map. The caller must only ask for bytes that BPF has handed over (from
    /// the tail to the head it published), which it does not write again until they are returned.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: inside the mapping, as just checked.
        let start = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: readable for `len` bytes as long as the mapping lives, and not written meanwhile (see above).
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// The word at `offset`, which both sides access; `None` if it is outside the map or not aligned.
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if offset.checked_add(8)? > self.len || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: inside the mapping, as just checked.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: aligned (mappings start on a page), readable as long as the mapping lives, and only ever accessed
        // as an atomic on this side. Words of a read-only mapping are never written by callers.
        Some(unsafe { AtomicU64::from_ptr(word.cast()) })
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A map that is mapped only while it is needed: the kernel has its memory in any case, but counts it as this process's
/// while it is mapped.
#[derive(Debug)]
pub(crate) struct OnDemandMap {
    fd: OwnedFd,
    len: usize,
    mapped: Option<SharedMap>,
}

impl OnDemandMap {
    /// The first `len` bytes of the map behind `fd`, for writing, and mapped for now.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let mut map = Self { fd: fd.try_clone_to_owned()?, len, mapped: None };
        map.map()?;
        Ok(map)
    }

    /// Maps it, unless it is.
    pub(crate) fn map(&mut self) -> io::Result<()> {
        if self.mapped.is_none() {
            self.mapped = Some(SharedMap::new(self.fd.as_fd(), self.len, true)?);
        }
        Ok(())
    }

    pub(crate) fn unmap(&mut self) {
        self.mapped = None;
    }

    /// As [`SharedMap::word`]; also `None` while it is not mapped.
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.mapped.as_ref()?.word(offset)
    }
}
