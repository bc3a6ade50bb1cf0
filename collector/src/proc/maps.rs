//! `/proc/PID/maps`.

use std::ops::Range;

/// perf's name for memory without a name.
const ANONYMOUS: &[u8] = b"//anon";

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapsEntry {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// `MAP_SHARED` or `MAP_PRIVATE`.
    pub flags: u32,
    /// Offset into the file, bytes.
    pub file_offset: u64,
    /// Device of the file, major number.
    pub dev_major: u32,
    /// Device of the file, minor number.
    pub dev_minor: u32,
    /// Inode of the file.
    pub inode: u64,
    /// Path, as perf names it: `//anon` for memory without a name.
    pub path: Vec<u8>,
}

impl MapsEntry {
    /// The address range.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether it is executable.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.prot & libc::PROT_EXEC.cast_unsigned() != 0
    }

    /// Whether it is writable.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.prot & libc::PROT_WRITE.cast_unsigned() != 0
    }

    /// Whether it has no name.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.path == ANONYMOUS
    }

    /// Whether it maps a file.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        self.path.starts_with(b"/") && !self.is_anonymous()
    }
}

/// Parses the lines, leaving out malformed ones; the kernel writes none.
///
/// # Sources
/// `show_map_vma` in `fs/proc/task_mmu.c`; a newline in a path is written as `\012`.
pub fn parse_maps(text: &[u8]) -> impl Iterator<Item = MapsEntry> + '_ {
    text.split(|&byte| byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<MapsEntry> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let (range, rights, offset, device, inode) = (next()?, next()?, next()?, next()?, next()?);
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let right = |at: usize, letter: u8, bit: i32| {
        if rights.as_bytes().get(at) == Some(&letter) { bit.cast_unsigned() } else { 0 }
    };
    let prot = right(0, b'r', libc::PROT_READ) | right(1, b'w', libc::PROT_WRITE) | right(2, b'x', libc::PROT_EXEC);
    let flags = right(3, b's', libc::MAP_SHARED) | right(3, b'p', libc::MAP_PRIVATE);
    let path = fields.next().unwrap_or(&[]).trim_ascii_start();
    Some(MapsEntry {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot,
        flags,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        dev_major: u32::from_str_radix(major, 16).ok()?,
        dev_minor: u32::from_str_radix(minor, 16).ok()?,
        inode: inode.parse().ok()?,
        path: if path.is_empty() { ANONYMOUS.to_vec() } else { unescape(path) },
    })
}

/// Replaces `\012` by a newline, the only escaped character.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = tail;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the parts of a line come out, including paths with blanks and newlines.
    #[test]
    fn lines_are_read() {
        let text = b"55d0a000-55d0b000 r-xp 00002000 fe:01 1234                       /tmp/a b\\012c (deleted)\n\
                     7ffc1000-7ffc2000 rw-s 00000000 00:00 0 \n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let entries: Vec<_> = parse_maps(text).collect();
        let first = MapsEntry {
            start: 0x55d0_a000,
            end: 0x55d0_b000,
            prot: 5,
            flags: 2,
            file_offset: 0x2000,
            dev_major: 0xfe,
            dev_minor: 1,
            inode: 1234,
            path: b"/tmp/a b\nc (deleted)".to_vec(),
        };
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0], first);
        assert_eq!((entries[1].prot, entries[1].flags, entries[1].path.as_slice()), (3, 1, b"//anon".as_slice()));
        let rights = |entry: &MapsEntry| (entry.is_executable(), entry.is_writable(), entry.is_of_file());
        let rights: Vec<_> = entries.iter().map(rights).collect();
        assert_eq!(rights, [(true, false, true), (false, true, false), (true, false, false)]);
        assert!(entries[1].is_anonymous());
        assert_eq!((entries[2].end, entries[2].path.as_slice()), (0xffff_ffff_ff60_1000, b"[vsyscall]".as_slice()));
    }

    /// Check that malformed lines are left out without harm.
    #[test]
    fn rubbish_is_left_out() {
        for text in [b"".as_slice(), b"\n\n", b"zz-10 r", b"10-20", b"10-20 r-xp 0 0:0", b"g-h r-xp 0 0:0 0 x"] {
            assert_eq!(parse_maps(text).count(), 0, "{}", text.escape_ascii());
        }
    }
}
