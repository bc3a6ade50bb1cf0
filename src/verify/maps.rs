//! The mappings of the stepped process.

use anyhow::Context as _;
use fpprof_analysis::oracle::LiveMapping;
use fpprof_collector::{MapsEntry, parse_maps};
use fpprof_recording::MappingRanges;
use fpprof_recording::model::FileIdentity;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// The kernel's name of the vDSO.
const VDSO: &[u8] = b"[vdso]";

/// `MAP_SHARED` (`include/uapi/linux/mman.h`).
const MAP_SHARED: u32 = 1;

/// Whether what is mapped may change without a change of its protection: it is writable, or shared with a mapping that
/// may be, as by programs whose compiled code is never both writable and executable.
pub(super) fn may_change(vma: &MapsEntry) -> bool {
    vma.is_writable() || vma.flags & MAP_SHARED != 0
}

/// Whether it is code that cannot change while it is mapped: of a file or of the vDSO.
pub(super) fn is_lasting_code(vma: &MapsEntry) -> bool {
    vma.is_executable() && !may_change(vma) && (vma.is_of_file() || vma.path == VDSO)
}

/// All mappings of a process, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Maps {
    vmas: Vec<MapsEntry>,
    /// The identity of a file when it was first seen mapped, by path and inode.
    identities: HashMap<(Vec<u8>, u64), FileIdentity>,
}

impl Maps {
    /// Reads the mappings again, of a thread that has not ended: a process whose first thread has ended has none.
    ///
    /// # Errors
    /// If they cannot be read or parsed.
    pub(super) fn read(&mut self, tid: Pid) -> anyhow::Result<()> {
        let path = format!("/proc/{tid}/maps");
        let text = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
        self.take(&text).context(path)
    }

    fn take(&mut self, text: &[u8]) -> anyhow::Result<()> {
        self.vmas.clear();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            self.vmas.push(parse_maps(line).next().with_context(|| String::from_utf8_lossy(line).into_owned())?);
        }
        Ok(())
    }

    /// The mapping that contains an address.
    pub(super) fn find(&self, address: u64) -> Option<&MapsEntry> {
        let above = self.vmas.partition_point(|vma| vma.start <= address);
        let vma = self.vmas.get(above.checked_sub(1)?)?;
        vma.range().contains(&address).then_some(vma)
    }

    /// The executable mappings with their protection: by a difference, code may have been changed.
    pub(super) fn protections(&self) -> Vec<(Range<u64>, u32)> {
        self.vmas.iter().filter(|vma| vma.is_executable()).map(|vma| (vma.range(), vma.prot)).collect()
    }

    /// The address range of the vDSO.
    pub(super) fn vdso(&self) -> Option<Range<u64>> {
        self.vmas.iter().find(|vma| vma.path == VDSO).map(MapsEntry::range)
    }

    /// The ranges of code and files, and of memory that contains one of these addresses.
    pub(super) fn code_files_and(&self, addresses: impl Iterator<Item = u64>) -> MappingRanges {
        let is_code_or_file = |vma: &&MapsEntry| vma.is_executable() || vma.is_of_file();
        let others = addresses.filter_map(|address| self.find(address));
        let vmas = self.vmas.iter().filter(is_code_or_file).chain(others);
        vmas.map(|vma| (vma.start, vma.end)).collect()
    }

    /// The executable mappings, in the oracle's form.
    pub(super) fn executable(&mut self) -> Vec<LiveMapping> {
        let Self { vmas, identities } = self;
        let executable = vmas.iter().filter(|vma| vma.is_executable());
        let mapping = |vma: &MapsEntry| LiveMapping {
            start: vma.start,
            end: vma.end,
            file_offset: vma.file_offset,
            path: if vma.is_anonymous() { Vec::new() } else { vma.path.clone() },
            identity: *identities.entry((vma.path.clone(), vma.inode)).or_insert_with(|| identity(vma)),
        };
        executable.map(mapping).collect()
    }
}

/// The identity of a mapped file. On some file systems the device number in `maps` differs from that of `stat`; then
/// that of `stat` is used if the inode is the same.
fn identity(vma: &MapsEntry) -> FileIdentity {
    let (mut dev_major, mut dev_minor) = (vma.dev_major, vma.dev_minor);
    if let Ok(metadata) = std::fs::metadata(OsStr::from_bytes(&vma.path))
        && metadata.ino() == vma.inode
    {
        dev_major = rustix::fs::major(metadata.dev());
        dev_minor = rustix::fs::minor(metadata.dev());
    }
    FileIdentity { dev_major, dev_minor, inode: vma.inode, ..FileIdentity::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that anonymous memory belongs to no file and has no path for the oracle, that writable or shared code is not
    /// lasting, and that an invalid line is an error.
    #[test]
    fn mappings_are_distinguished() {
        let text =
            b"1000-2000 r-xp 00000000 fe:01 12  /tmp/a b\n3000-4000 rwxp 0 00:00 0 \n5000-6000 r-xp 0 00:00 0 [vdso]\n\
                     7000-8000 rw-p 0 00:00 0 \n9000-a000 r-xs 00000000 fe:01 12 /tmp/a b\n";
        let mut maps = Maps::default();
        maps.take(text).unwrap();
        assert_eq!(maps.vmas.iter().map(is_lasting_code).collect::<Vec<_>>(), [true, false, true, false, false]);
        assert_eq!(maps.vdso(), Some(0x5000..0x6000));
        let paths: Vec<_> = maps.executable().into_iter().map(|mapping| mapping.path).collect();
        assert_eq!(paths, [b"/tmp/a b".to_vec(), Vec::new(), b"[vdso]".to_vec(), b"/tmp/a b".to_vec()]);
        let ranges = maps.code_files_and(std::iter::empty());
        assert!(!ranges.contains(0x7000) && ranges.contains(0x3000));
        assert!(maps.take(b"1000-2000 r-xp\n").is_err());
    }

    /// Check that an address is found only in the mapping that contains it.
    #[test]
    fn addresses_are_found() {
        let vma = |range: Range<u64>| MapsEntry { start: range.start, end: range.end, ..MapsEntry::default() };
        let maps =
            Maps { vmas: vec![vma(0x1000..0x2000), vma(0x2000..0x3000), vma(0x5000..0x6000)], ..Maps::default() };
        let start = |address| maps.find(address).map(|vma| vma.start);
        assert_eq!(
            [0xfff, 0x1000, 0x2000, 0x2fff, 0x3000, 0x5fff, 0x6000].map(start),
            [None, Some(0x1000), Some(0x2000), Some(0x2000), None, Some(0x5000), None]
        );
    }
}
