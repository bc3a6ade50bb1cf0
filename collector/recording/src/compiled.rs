//! Information from programs about code they compiled at run time, as stored in a recording.

const PERF_MAP: &str = "[perf-map ";
const JIT_DUMP: &str = "[jitdump ";

/// A module that is not mapped: a process's information about its JIT-compiled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compiled {
    /// The symbol table (`perf-PID.map`) of a process.
    PerfMap(u32),
    /// The dump (`jit-PID.dump`) of a process, see [`jitdump`].
    JitDump(u32),
}

impl Compiled {
    /// The path of its module.
    #[must_use]
    pub fn path(self) -> Vec<u8> {
        format!("{}{}]", self.prefix(), self.pid()).into_bytes()
    }

    /// The process ID.
    #[must_use]
    pub fn pid(self) -> u32 {
        let (Self::PerfMap(pid) | Self::JitDump(pid)) = self;
        pid
    }

    /// The one whose module has this path.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let of = |kind: fn(u32) -> Self| {
            let pid = path.strip_prefix(kind(0).prefix().as_bytes())?.strip_suffix(b"]")?;
            Some(kind(std::str::from_utf8(pid).ok()?.parse().ok()?))
        };
        of(Self::PerfMap).or_else(|| of(Self::JitDump))
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::PerfMap(_) => PERF_MAP,
            Self::JitDump(_) => JIT_DUMP,
        }
    }
}

/// The lines of a symbol table.
///
/// # Sources
/// `tools/perf/Documentation/jit-interface.txt` of Linux.
pub mod perf_map {
    /// Parses a line, `START BYTES NAME` with both numbers in hex; `None` if it is not such a line. Returns the
    /// function's first address, the address after it, and the offset of its name in the line.
    #[must_use]
    pub fn function(line: &[u8]) -> Option<(u64, u64, usize)> {
        let mut fields = line.splitn(3, |&byte| byte == b' ');
        let (start, bytes) = (hex(fields.next()?)?, hex(fields.next()?)?);
        let name = fields.next().filter(|name| !name.trim_ascii().is_empty())?;
        (bytes > 0).then_some((start, start.checked_add(bytes)?, line.len().checked_sub(name.len())?))
    }

    fn hex(text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    }
}

/// The layout of a dump, as written by processes and stored in a recording.
///
/// # Sources
/// `tools/perf/Documentation/jitdump-specification.txt` of Linux.
pub mod jitdump {
    /// The first eight bytes: version 1, little-endian.
    pub const MAGIC: &[u8] = b"DTiJ\x01\0\0\0";
    /// Size of the header of version 1, which is also a field of it.
    pub const HEADER_BYTES: usize = 40;
    /// Size of what each record begins with: kind, length, time.
    pub const PREFIX_BYTES: usize = 16;
    /// Kind of a record of new code.
    pub const CODE_LOAD: u32 = 0;
    /// Size of its fields, before the name.
    pub const LOAD_BYTES: usize = 40;
    /// Kind of a record of code that moves.
    pub const CODE_MOVE: u32 = 1;
    /// Size of its fields.
    pub const MOVE_BYTES: usize = 48;
    /// Kind of a record of call frame information for the code of the next load.
    pub const UNWINDING_INFO: u32 = 4;
    /// Size of its fields, before its `.eh_frame` and header table: bytes of both together, of the header, and as
    /// mapped.
    pub const UNWINDING_BYTES: usize = 24;

    /// Whether a file is called `jit-NUMBER.dump`. The number is not checked: in a PID namespace it differs from ours.
    #[must_use]
    pub fn is_dump(path: &[u8]) -> bool {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let number = name.strip_prefix(b"jit-").and_then(|name| name.strip_suffix(b".dump"));
        number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    }
}

#[cfg(test)]
mod tests {
    use super::Compiled;
    use super::jitdump::is_dump;

    /// Check that only the paths that a recording uses for information on compiled code are recognised.
    #[test]
    fn they_are_known_by_their_path() {
        for known in [Compiled::PerfMap(12), Compiled::JitDump(7), Compiled::JitDump(u32::MAX)] {
            assert_eq!(Compiled::of_path(&known.path()), Some(known));
        }
        assert_eq!(Compiled::PerfMap(12).path(), b"[perf-map 12]");
        assert_eq!(Compiled::JitDump(7).path(), b"[jitdump 7]");
        for other in [&b"[perf-map ]"[..], b"[jitdump 12", b"/tmp/perf-12.map", b"[vdso]", b"[perf-map 99999999999]"] {
            assert_eq!(Compiled::of_path(other), None);
        }
    }

    /// Check that only files with such a name are recognised.
    #[test]
    fn marks_are_known_by_their_name() {
        for path in [&b"/tmp/jit-12.dump"[..], b"jit-0.dump", b"/root/.debug/jit/x/jit-7.dump (deleted)"] {
            assert!(is_dump(path));
        }
        for path in [&b"/tmp/jit-.dump"[..], b"/tmp/jit-1.dump/x", b"/tmp/xjit-1.dump", b"/tmp/jit-1a.dump", b""] {
            assert!(!is_dump(path));
        }
    }
}
