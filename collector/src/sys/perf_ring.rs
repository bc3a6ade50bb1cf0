//! The ring buffer of a perf event.

use super::PerfEvent;
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ring buffer of a perf event: one page of control words, then the data.
#[derive(Debug)]
pub(crate) struct PerfRing {
    start: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

impl PerfRing {
    /// Maps a ring of `data_bytes` (a power of two of pages) for `event`.
    pub(crate) fn new(event: &PerfEvent, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = 4096;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let fd = event.as_fd().as_raw_fd();
        let len = page_bytes + data_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { start, page_bytes, data_bytes })
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both callers give offsets of aligned words in the first page, which lives as long as the value.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: as above; the kernel too accesses these words whole.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Appends all that is new to `out` and gives the room back to the kernel.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) {
        let head = self.control(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_word = self.control(offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_word.load(Ordering::Relaxed);
        let mask = self.data_bytes - 1;
        let pending = usize::try_from(head.wrapping_sub(tail)).unwrap_or(0).min(self.data_bytes);
        let first = usize::try_from(tail).unwrap_or(0) & mask;
        let before_wrap = pending.min(self.data_bytes - first);
        out.extend_from_slice(self.data(first, before_wrap));
        out.extend_from_slice(self.data(0, pending - before_wrap));
        tail_word.store(head, Ordering::Release);
    }

    fn data(&self, offset: usize, len: usize) -> &[u8] {
        debug_assert!(offset + len <= self.data_bytes);
        // SAFETY: inside the mapping: the caller keeps offset + len within the data area.
        let start = unsafe { self.start.as_ptr().add(self.page_bytes + offset) };
        // SAFETY: bytes between tail and head belong to the reader; the kernel writes them again after the new tail.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}
