//! The code of this program in memory.

use std::ffi::{c_int, c_void};
use std::sync::Once;

/// Unmaps the code and constants of this program. What is still used is mapped again, a few pages at a time, from the
/// kernel's cache of the file.
///
/// A program that runs for days otherwise keeps mapped what it needed only to start: the kernel maps up to sixteen pages
/// for each that is touched.
///
/// A breakpoint or uprobe that somebody has set in this program is lost, so only the first call does this.
///
/// # Sources
/// `madvise(2)`, `MADV_DONTNEED`: pages of a private mapping that were never written are read from the file again.
/// `do_fault_around` in the kernel's `mm/memory.c`.
pub fn unmap_code() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // SAFETY: `visit` has the signature that it is called with, and does not use `data`.
        unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
    });
}

/// Unmaps the segments of one object that nothing has written, and ends the iteration: the first is the program.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: libc::size_t, _data: *mut c_void) -> c_int {
    const END: c_int = 1;
    // SAFETY: The C library passes a valid structure.
    let info = unsafe { &*info };
    // SAFETY: It has that many headers, which stay as they are while the program runs.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: It has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0) {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let from = start - start % page;
        let Ok(len) = usize::try_from(start.wrapping_add(header.p_memsz).wrapping_sub(from)) else { continue };
        // SAFETY: A segment without `PF_W` is a private mapping that has the file's bytes: as in every program that is not
        // linked with text relocations, what is relocated is in others, which have pages of their own.
        unsafe { libc::madvise(from as *mut c_void, len, libc::MADV_DONTNEED) };
    }
    END
}
