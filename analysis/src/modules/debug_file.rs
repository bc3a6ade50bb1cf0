//! Where the symbols are that stripping took out of a module: in files beside it, and in itself compressed.

use super::{ElfFile, FileStat, Missing, Opened, Resolver, inflate};
use crate::address_space::MappedFile;
use fpprof_recording::model::{BuildId, FileIdentity};
use std::ffi::OsStr;
use std::io::{Cursor, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Most bytes of a link: a file name and a check sum.
const MAX_LINK_BYTES: u64 = 8 << 10;
/// Largest file whose check sum is computed.
const MAX_SUMMED_BYTES: u64 = 2 << 30;
/// Most bytes of the symbols a module carries compressed in itself. Fedora's largest have some 5 MiB.
const MAX_MINI_BYTES: u64 = 128 << 20;

/// The debug file of a build id, with what it shares with others; one that has another build id is none.
pub(super) fn by_build_id(resolver: &dyn Resolver, build_id: BuildId) -> Option<ElfFile> {
    let (elf, path) = first_of(resolver, resolver.debug_candidates(build_id), build_id)?;
    let supplementary = supplementary(resolver, &elf, &path);
    Some(elf.with_supplementary(supplementary))
}

/// The first file of this build id.
fn first_of(
    resolver: &dyn Resolver,
    paths: impl IntoIterator<Item = PathBuf>,
    build_id: BuildId,
) -> Option<(ElfFile, PathBuf)> {
    paths.into_iter().find_map(|path| {
        let elf = ElfFile::new(resolver.open(&path).ok()?).ok()?;
        (elf.image().build_id == Some(build_id)).then_some((elf, path))
    })
}

/// The file that the file at `path`, a debug file or a module that was not stripped, shares parts with: by its build id,
/// then by its path, which may be relative to the file's own and be one of the recorded machine.
pub(super) fn supplementary(resolver: &dyn Resolver, debug: &ElfFile, path: &Path) -> Option<ElfFile> {
    let (link, build_id) = debug.supplementary_link()?;
    let named = Path::new(OsStr::from_bytes(&link));
    let file = MappedFile { path: link.clone(), identity: FileIdentity::default(), first_mapped_ns: 0 };
    let on_machines = resolver.candidates(&file).into_iter().map(|candidate| candidate.path);
    // The debug file may be called by a symbolic link.
    let real = path.canonicalize();
    let beside = real.as_deref().unwrap_or(path).parent().map(|dir| dir.join(named));
    let paths = resolver.debug_candidates(build_id).into_iter().chain(on_machines).chain(beside);
    first_of(resolver, paths, build_id).map(|(elf, _)| elf)
}

/// The debug file that a module at `path` names: one of the same build id, or where one of the two has none, of the
/// check sum that the module gives.
///
/// # Sources
/// GDB manual, "Debugging Information in Separate Files": a name, zeros up to a multiple of four, the CRC-32 of the
/// file in the byte order of the module.
pub(super) fn by_link(resolver: &dyn Resolver, module: &ElfFile, path: &Path) -> Option<ElfFile> {
    let sections = module.sections();
    let link = sections.iter().find(|section| section.name == b".gnu_debuglink")?;
    let bytes = module.read(link, MAX_LINK_BYTES)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let sum = bytes.get(end.checked_add(4)? & !3..)?.first_chunk().copied()?;
    let sum = if module.image().little_endian { u32::from_le_bytes(sum) } else { u32::from_be_bytes(sum) };
    resolver.link_candidates(path, bytes.get(..end)?).into_iter().find_map(|path| {
        let elf = ElfFile::new(resolver.open(&path).ok()?).ok()?;
        let is_the_one = match (module.image().build_id, elf.image().build_id) {
            (Some(own), Some(found)) => own == found,
            _ => {
                let file = resolver.open(&path).ok()?.reader.take(MAX_SUMMED_BYTES);
                inflate::crc32(file).is_ok_and(|found| found == sum)
            }
        };
        is_the_one.then(|| {
            let supplementary = supplementary(resolver, &elf, &path);
            elf.with_supplementary(supplementary)
        })
    })
}

/// The file with the split DWARF of all units of the module at `path`.
///
/// # Sources
/// DWARF 5 appendix F.3; `gdb` and `dwp` take the module's name with `.dwp` behind it.
pub(super) fn package(resolver: &dyn Resolver, path: &Path) -> Option<ElfFile> {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    ElfFile::new(resolver.open(Path::new(&name)).ok()?).ok()
}

/// The file with the split DWARF of a unit, by its path on the recorded machine, else of that name `beside` the module.
pub(super) fn split(resolver: &dyn Resolver, beside: Option<&Path>, folder: &[u8], name: &[u8]) -> Option<ElfFile> {
    let name = Path::new(OsStr::from_bytes(name));
    let path = Path::new(OsStr::from_bytes(folder)).join(name);
    let path = path.as_os_str().as_bytes().to_vec();
    let file = MappedFile { path, identity: FileIdentity::default(), first_mapped_ns: 0 };
    let on_machines = resolver.candidates(&file).into_iter().map(|candidate| candidate.path);
    let beside = beside.zip(name.file_name()).map(|(folder, name)| folder.join(name));
    on_machines.chain(beside).find_map(|path| ElfFile::new(resolver.open(&path).ok()?).ok())
}

impl ElfFile {
    /// The symbols that a module carries in itself, of the functions its dynamic symbols do not name.
    ///
    /// # Sources
    /// GDB manual, `MiniDebugInfo`: an ELF file with a symbol table in `.gnu_debugdata`, compressed by xz.
    #[must_use]
    pub fn compressed_symbols(&self) -> Option<Self> {
        let sections = self.sections();
        let section = sections.iter().find(|section| section.name == b".gnu_debugdata")?;
        let bytes = inflate::xz(&self.bytes(section, MAX_MINI_BYTES)?, MAX_MINI_BYTES)?;
        let elf = from_bytes(bytes).ok()?;
        elf.image().build_id.is_none_or(|build_id| self.image().build_id == Some(build_id)).then_some(elf)
    }
}

/// A file that is in memory.
pub(super) fn from_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Result<ElfFile, Missing> {
    let stat = FileStat { len_bytes: bytes.as_ref().len() as u64, ..FileStat::default() };
    ElfFile::new(Opened { reader: Box::new(Cursor::new(bytes)), stat })
}
