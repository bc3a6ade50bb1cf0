//! `/proc/thread-self/io`: the bytes that the calling thread wrote.

use std::fs;

/// Bytes that a thread has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Written {
    /// Bytes passed to `write` and similar calls, for any destination.
    pub(crate) bytes: u64,
    /// Bytes that went or will go to a disk: whole pages, counted when they become dirty.
    pub(crate) to_disk_bytes: u64,
}

/// What the calling thread has written so far; `None` if the kernel does not count it (`CONFIG_TASK_IO_ACCOUNTING`).
///
/// The process's counters would include those of its ended children, such as the recorded command.
///
/// # Sources
/// `wchar` and `write_bytes` of proc(5).
pub(crate) fn written() -> Option<Written> {
    parse(&fs::read_to_string("/proc/thread-self/io").ok()?)
}

fn parse(text: &str) -> Option<Written> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Written { bytes: field("wchar:")?, to_disk_bytes: field("write_bytes:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the two counters are distinguished from those with similar names.
    #[test]
    fn counters_are_distinguished() {
        let text =
            "rchar: 1\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n";
        assert_eq!(parse(text), Some(Written { bytes: 20, to_disk_bytes: 4096 }));
        assert_eq!(parse("wchar: 20\ncancelled_write_bytes: 7\n"), None);
    }

    /// Check that what a child wrote is not counted.
    #[test]
    fn children_are_not_counted() {
        let before = written().expect("a kernel that counts");
        let zeros = std::process::Command::new("head").args(["-c", "50000000", "/dev/zero"]).output();
        let n_zeros = zeros.expect("head").stdout.len() as u64;
        let wrote = written().expect("a kernel that counts").bytes - before.bytes;
        assert!(n_zeros == 50_000_000 && wrote < n_zeros / 10, "{wrote} bytes");
    }
}
