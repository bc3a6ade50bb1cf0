//! Wraps bytes in a file.

use std::fs::File;
use std::io::{Error, Result, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};

/// An anonymous file with the given content, for libraries that only accept files.
pub(crate) fn memory_file(bytes: &[u8]) -> Result<File> {
    // SAFETY: the name is a constant string with its NUL; the call keeps no pointer.
    let fd = unsafe { libc::memfd_create(c"fpprof-module".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut file = File::from(owned);
    file.write_all(bytes)?;
    Ok(file)
}
