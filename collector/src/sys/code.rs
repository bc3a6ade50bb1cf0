//! The code of this program in memory.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// Entries of `/proc/self/pagemap` that are read at once.
const ENTRIES: usize = 512;
/// Bytes of an entry.
const ENTRY: usize = 8;
/// Bits of an entry: the page is in memory; it is swapped out; it is a file's, or shared.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Unmaps the code and constants of this program. What is still used is mapped again, a few pages at a time, from the
/// kernel's cache of the file.
///
/// A program that runs for days otherwise keeps mapped what it needed only at times: the kernel maps up to sixteen pages
/// for each that is touched.
///
/// A breakpoint or uprobe that somebody has set in this program would be lost, so from the second call on, segments with
/// such pages stay mapped. The first call opens `/proc/self/pagemap`, which tells them, for all later ones; if it cannot, they
/// unmap nothing.
///
/// # Sources
/// `madvise(2)`, `MADV_DONTNEED`: pages of a private mapping that were never written are read from the file again.
/// `do_fault_around` in the kernel's `mm/memory.c`. `Documentation/admin-guide/mm/pagemap.rst`.
pub fn unmap_code() {
    static PAGEMAP: OnceLock<Option<File>> = OnceLock::new();
    let mut is_first = false;
    let pagemap = PAGEMAP.get_or_init(|| {
        is_first = true;
        File::open("/proc/self/pagemap").ok()
    });
    let mut pages = Pages { is_first, pagemap: pagemap.as_ref() };
    // SAFETY: `visit` has the signature that it is called with, and `data` is what it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut pages).cast()) };
}

/// What is known of this program's pages.
struct Pages<'a> {
    is_first: bool,
    pagemap: Option<&'a File>,
}

impl Pages<'_> {
    /// Whether these pages may be unmapped: none of them was written, as far as that matters.
    fn may_be_unmapped(&self, from: u64, len: usize, page: u64) -> bool {
        self.is_first || self.pagemap.is_some_and(|pagemap| are_unwritten(pagemap, from, len, page))
    }
}

/// Whether all pages are as in the file; `false` if that cannot be read.
fn are_unwritten(pagemap: &File, from: u64, len: usize, page: u64) -> bool {
    let mut bytes = [0; ENTRIES * ENTRY];
    let (mut at, end) = (from / page, (from + len as u64).div_ceil(page));
    while at < end {
        let n = usize::try_from(end - at).unwrap_or(ENTRIES).min(ENTRIES);
        let Some(bytes) = bytes.get_mut(..n * ENTRY) else { return false };
        if pagemap.read_exact_at(bytes, at * ENTRY as u64).is_err() {
            return false;
        }
        let mut entries = bytes.as_chunks::<ENTRY>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        if entries.any(|entry| entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0) {
            return false;
        }
        at += n as u64;
    }
    true
}

/// Unmaps the segments of one object that nothing has written, and ends the iteration: the first is the program.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: libc::size_t, data: *mut c_void) -> c_int {
    const END: c_int = 1;
    // SAFETY: The C library passes a valid structure.
    let info = unsafe { &*info };
    // SAFETY: It has that many headers, which stay as they are while the program runs.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: `unmap_code` passes this, and waits for the end of the iteration.
    let pages = unsafe { &*data.cast::<Pages<'_>>() };
    // SAFETY: It has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0) {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let from = start - start % page;
        let Ok(len) = usize::try_from(start.wrapping_add(header.p_memsz).wrapping_sub(from)) else { continue };
        if !pages.may_be_unmapped(from, len, page) {
            continue;
        }
        // SAFETY: A segment without `PF_W` is a private mapping that has the file's bytes: as in every program that is not
        // linked with text relocations, what is relocated is in others, which have pages of their own.
        unsafe { libc::madvise(from as *mut c_void, len, libc::MADV_DONTNEED) };
    }
    END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

    /// Check that a segment with a page that was written, as for a breakpoint, is told from one without.
    #[test]
    fn written_pages_are_seen() {
        let page = rustix::param::page_size();
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * page as u64).expect("room");
        let (len, read) = (3 * page, ProtFlags::READ);
        // SAFETY: A new mapping, where the kernel likes.
        let start = unsafe { mmap(std::ptr::null_mut(), len, read, MapFlags::PRIVATE, &file, 0) }.expect("mapped");
        let pagemap = File::open("/proc/self/pagemap").expect("the map of pages");
        let are_unwritten = || are_unwritten(&pagemap, start as u64, len, page as u64);
        let second: *mut u8 = start.cast::<u8>().wrapping_add(page);
        // SAFETY: Mapped, for reading.
        assert_eq!(unsafe { second.read_volatile() }, 0);
        assert!(are_unwritten(), "a page that is only read is the file's");
        // SAFETY: This mapping belongs to the test.
        unsafe { mprotect(second.cast(), page, MprotectFlags::READ | MprotectFlags::WRITE) }.expect("writable");
        // SAFETY: Mapped, for writing.
        unsafe { second.write_volatile(0xcc) };
        assert!(!are_unwritten(), "a page that is written is not");
        // SAFETY: Nothing uses it any more.
        unsafe { munmap(start, len) }.expect("unmapped");
    }
}
