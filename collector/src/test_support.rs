//! Helpers for tests of several modules.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use fpprof_recording::model::{FileIdentity, Mmap};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A mapping with code.
pub(crate) fn code(pid: u32, path: &[u8], identity: FileIdentity) -> Mmap {
    Mmap {
        time_ns: 1,
        pid,
        tid: pid,
        start: 0x1000,
        len: 0x1000,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: path.to_vec(),
        identity,
        synthesized: false,
    }
}

/// The identity of a file, as far as stat(2) tells it.
pub(crate) fn identity(path: &Path) -> FileIdentity {
    let metadata = std::fs::metadata(path).expect("a file");
    let (dev_major, dev_minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    FileIdentity { dev_major, dev_minor, inode: metadata.ino(), ..FileIdentity::default() }
}
