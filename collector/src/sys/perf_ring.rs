//! The ring buffer of a perf event.

use super::PerfEvent;
use super::process::page_bytes;
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ring buffer of a perf event: one control page, then the data.
#[derive(Debug)]
pub(crate) struct PerfRing {
    start: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

impl PerfRing {
    /// Maps a ring of `data_bytes` (a power-of-two number of pages) for `event`.
    pub(crate) fn new(event: &PerfEvent, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes()?;
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
        // SAFETY: all callers give offsets of aligned words in the first page, which lives as long as the value.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: as above; the kernel too accesses these words whole.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Appends all new records to `out` and returns their room to the kernel.
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

    /// Total bytes written by the kernel.
    pub(crate) fn head(&self) -> u64 {
        self.control(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire)
    }

    /// Total bytes returned to the kernel.
    pub(crate) fn tail(&self) -> u64 {
        self.control(offset_of!(perf_event_mmap_page, data_tail)).load(Ordering::Relaxed)
    }

    /// The record at `at`, which is before `head`; copied to `scratch` if it wraps around the ring's end. `None` if
    /// there is none, or if it is malformed.
    pub(crate) fn record<'a>(&'a self, at: u64, head: u64, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        const HEADER_BYTES: usize = 8;
        let left = usize::try_from(head.checked_sub(at)?).ok()?.min(self.data_bytes);
        let first = usize::try_from(at).ok()? & (self.data_bytes - 1);
        if left < HEADER_BYTES || self.data_bytes - first < HEADER_BYTES {
            return None;
        }
        // The size is the last of the header's fields.
        let size = self.data(first, HEADER_BYTES).last_chunk::<2>()?;
        let size = usize::from(u16::from_ne_bytes(*size));
        if !(HEADER_BYTES..=left).contains(&size) {
            return None;
        }
        let before_wrap = size.min(self.data_bytes - first);
        if before_wrap == size {
            return Some(self.data(first, size));
        }
        scratch.clear();
        scratch.extend_from_slice(self.data(first, before_wrap));
        scratch.extend_from_slice(self.data(0, size - before_wrap));
        Some(scratch)
    }

    /// Returns the room before `at` to the kernel. `&mut` ensures that no record is borrowed any more.
    pub(crate) fn release(&mut self, at: u64) {
        self.control(offset_of!(perf_event_mmap_page, data_tail)).store(at, Ordering::Release);
    }

    /// Size of the data area, bytes.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes
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
