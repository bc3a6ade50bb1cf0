//! What is mapped in the stepped process.

use anyhow::Context as _;
use fpprof_analysis::oracle::LiveMapping;
use fpprof_recording::MappingRanges;
use fpprof_recording::model::FileIdentity;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vma {
    pub(super) range: Range<u64>,
    pub(super) is_executable: bool,
    pub(super) is_writable: bool,
    file_offset: u64,
    dev: (u32, u32),
    inode: u64,
    path: Vec<u8>,
}

impl Vma {
    /// Whether it is code that does not change while it is mapped: of a file or of the vDSO, and not writable.
    pub(super) fn is_lasting_code(&self) -> bool {
        self.is_executable && !self.is_writable && (self.path.starts_with(b"/") || self.path == b"[vdso]")
    }
}

/// All mappings of a process, ascending.
#[derive(Debug, Default)]
pub(super) struct Maps {
    vmas: Vec<Vma>,
    /// Which file a path was when it was first seen mapped, by path and inode.
    identities: HashMap<(Vec<u8>, u64), FileIdentity>,
}

impl Maps {
    /// Reads them anew.
    ///
    /// # Errors
    /// If they cannot be read or make no sense.
    pub(super) fn read(&mut self, pid: Pid) -> anyhow::Result<()> {
        let path = format!("/proc/{pid}/maps");
        let text = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
        self.vmas.clear();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let vma = parse(line).with_context(|| format!("{path}: {}", String::from_utf8_lossy(line)))?;
            self.vmas.push(vma);
        }
        Ok(())
    }

    /// The mapping an address lies in.
    pub(super) fn find(&self, address: u64) -> Option<&Vma> {
        let above = self.vmas.partition_point(|vma| vma.range.start <= address);
        let vma = self.vmas.get(above.checked_sub(1)?)?;
        vma.range.contains(&address).then_some(vma)
    }

    /// Where the vDSO is.
    pub(super) fn vdso(&self) -> Option<Range<u64>> {
        self.vmas.iter().find(|vma| vma.path == b"[vdso]").map(|vma| vma.range.clone())
    }

    /// Where code and files are mapped, and memory that one of these addresses lies in.
    pub(super) fn code_files_and(&self, addresses: impl Iterator<Item = u64>) -> MappingRanges {
        let is_code_or_file = |vma: &&Vma| vma.is_executable || vma.path.starts_with(b"/");
        let others = addresses.filter_map(|address| self.find(address));
        let vmas = self.vmas.iter().filter(is_code_or_file).chain(others);
        vmas.map(|vma| (vma.range.start, vma.range.end)).collect()
    }

    /// The executable ones, as the oracle wants them.
    pub(super) fn executable(&mut self) -> Vec<LiveMapping> {
        let Self { vmas, identities } = self;
        let executable = vmas.iter().filter(|vma| vma.is_executable);
        let mapping = |vma: &Vma| LiveMapping {
            start: vma.range.start,
            end: vma.range.end,
            file_offset: vma.file_offset,
            path: vma.path.clone(),
            identity: *identities.entry((vma.path.clone(), vma.inode)).or_insert_with(|| identity(vma)),
        };
        executable.map(mapping).collect()
    }
}

/// Which file is mapped. The kernel's device number in `maps` is not that of `stat` on some file systems, so that of
/// `stat` is taken where both mean the same inode.
fn identity(vma: &Vma) -> FileIdentity {
    let (mut dev_major, mut dev_minor) = vma.dev;
    if let Ok(metadata) = std::fs::metadata(OsStr::from_bytes(&vma.path))
        && metadata.ino() == vma.inode
    {
        dev_major = rustix::fs::major(metadata.dev());
        dev_minor = rustix::fs::minor(metadata.dev());
    }
    FileIdentity { dev_major, dev_minor, inode: vma.inode, ..FileIdentity::default() }
}

/// `START-END PERMS OFFSET MAJOR:MINOR INODE   PATH`, numbers in hex but for the inode.
fn parse(line: &[u8]) -> Option<Vma> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?.as_bytes();
    let file_offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let path = fields.next().unwrap_or_default();
    let blanks = path.iter().take_while(|&&byte| byte == b' ').count();
    Some(Vma {
        range: hex(start)?..hex(end)?,
        is_writable: permissions.get(1) == Some(&b'w'),
        is_executable: permissions.get(2) == Some(&b'x'),
        file_offset,
        dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        path: unescaped(path.get(blanks..)?),
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The kernel writes a line feed in a path as `\012`, and nothing else so.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut rest = path;
    let mut out = Vec::with_capacity(path.len());
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines of every kind are understood: a file with blanks in its name, a line feed, anonymous memory.
    #[test]
    fn lines_are_understood() {
        let vma =
            parse(b"555555556000-555555558000 r-xp 00002000 fe:01 1234                       /tmp/a b\\012c").unwrap();
        assert_eq!(vma.range, 0x5555_5555_6000..0x5555_5555_8000);
        assert!(vma.is_executable && !vma.is_writable);
        assert_eq!((vma.file_offset, vma.dev, vma.inode), (0x2000, (0xfe, 1), 1234));
        assert_eq!(vma.path, b"/tmp/a b\nc");
        let vma = parse(b"7ffff7d88000-7ffff7d8b000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(vma.path.is_empty() && vma.is_writable && !vma.is_executable);
        assert_eq!(parse(b"7ffff7d88000-7ffff7d8b000 rw-p 00000000 00:00 0").map(|vma| vma.path), Some(Vec::new()));
        for nonsense in [&b"x"[..], b"1-2", b"1-2 r-xp zz 0:0 0", b"1-2 r-xp 0 0 0", b"1-2 r-xp 0 0:0 x /a"] {
            assert_eq!(parse(nonsense), None);
        }
    }

    /// Check that an address is found in the mapping it lies in and in no other.
    #[test]
    fn addresses_are_found() {
        let vma = |range: Range<u64>| Vma {
            range,
            is_executable: false,
            is_writable: false,
            file_offset: 0,
            dev: (0, 0),
            inode: 0,
            path: Vec::new(),
        };
        let maps =
            Maps { vmas: vec![vma(0x1000..0x2000), vma(0x2000..0x3000), vma(0x5000..0x6000)], ..Maps::default() };
        let start = |address| maps.find(address).map(|vma| vma.range.start);
        assert_eq!(
            [0xfff, 0x1000, 0x2000, 0x2fff, 0x3000, 0x5fff, 0x6000].map(start),
            [None, Some(0x1000), Some(0x2000), Some(0x2000), None, Some(0x5000), None]
        );
    }
}
