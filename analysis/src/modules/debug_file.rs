//! Finds the symbols that stripping removed from a module: in separate debug files, and compressed in the module
//! itself.

use super::{ElfFile, FileStat, Missing, Opened, Resolver, inflate};
use crate::address_space::MappedFile;
use fpprof_recording::model::{BuildId, FileIdentity};
use std::ffi::OsStr;
use std::io::{Cursor, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of a link: a file name and a check sum.
const MAX_LINK_BYTES: u64 = 8 << 10;
/// Size of the largest file whose check sum is computed.
const MAX_SUMMED_BYTES: u64 = 2 << 30;
/// The most bytes of the compressed symbols in a module. Fedora's largest have about 5 MiB.
const MAX_MINI_BYTES: u64 = 128 << 20;

/// The debug file with a build ID, with its supplementary file. A file with another build ID is not accepted.
pub(super) fn by_build_id(resolver: &dyn Resolver, build_id: BuildId) -> Option<ElfFile> {
    let (elf, path) = first_of(resolver, &resolver.debug_candidates(build_id), build_id)?;
    let supplementary = supplementary(resolver, &elf, &path);
    Some(elf.with_supplementary(supplementary))
}

/// The first file that has this build ID.
fn first_of(resolver: &dyn Resolver, paths: &[PathBuf], build_id: BuildId) -> Option<(ElfFile, PathBuf)> {
    let (elf, path) = opened(resolver, paths).find(|(elf, _)| elf.image().build_id == Some(build_id))?;
    Some((elf, path.to_owned()))
}

/// Those of these files that can be opened. In a process without privileges that is one question for each file that is
/// there, and not for each path.
fn opened<'a>(resolver: &'a dyn Resolver, mut paths: &'a [PathBuf]) -> impl Iterator<Item = (ElfFile, &'a Path)> {
    std::iter::from_fn(move || {
        let (at, opened) = resolver.open_first(paths)?;
        let (tried, rest) = paths.split_at_checked(at.checked_add(1)?)?;
        paths = rest;
        Some((ElfFile::new(opened).ok(), tried.last()?.as_path()))
    })
    .filter_map(|(elf, path)| Some((elf?, path)))
}

/// The supplementary file of the file at `path`, which is a debug file or an unstripped module: looked up by its build
/// ID, then by its path, which may be relative to the file's own or a path on the recorded machine.
pub(super) fn supplementary(resolver: &dyn Resolver, debug: &ElfFile, path: &Path) -> Option<ElfFile> {
    let (link, build_id) = debug.supplementary_link()?;
    let named = Path::new(OsStr::from_bytes(&link));
    let file = MappedFile { path: link.clone(), identity: FileIdentity::default(), first_mapped_ns: 0 };
    let on_machines = resolver.candidates(&file).into_iter().map(|candidate| candidate.path);
    // The debug file's path may be a symbolic link.
    let real = path.canonicalize();
    let beside = real.as_deref().unwrap_or(path).parent().map(|dir| dir.join(named));
    let paths: Vec<_> = resolver.debug_candidates(build_id).into_iter().chain(on_machines).chain(beside).collect();
    first_of(resolver, &paths, build_id).map(|(elf, _)| elf)
}

/// The debug file that a module at `path` names: accepted if it has the same build ID, or if either has none, the check
/// sum given by the module.
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
    let is_match = |elf: &ElfFile, path: &Path| match (module.image().build_id, elf.image().build_id) {
        (Some(own), Some(found)) => own == found,
        _ => resolver
            .open(path)
            .is_ok_and(|opened| inflate::crc32(opened.reader.take(MAX_SUMMED_BYTES)).is_ok_and(|found| found == sum)),
    };
    let candidates = resolver.link_candidates(path, bytes.get(..end)?);
    let (elf, path) = opened(resolver, &candidates).find(|(elf, path)| is_match(elf, path))?;
    let supplementary = supplementary(resolver, &elf, path);
    Some(elf.with_supplementary(supplementary))
}

/// The package (`.dwp`) with the split DWARF of all units of the module at `path`.
///
/// # Sources
/// DWARF 5 appendix F.3; `gdb` and `dwp` append `.dwp` to the module's name.
pub(super) fn package(resolver: &dyn Resolver, path: &Path) -> Option<ElfFile> {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    ElfFile::new(resolver.open(Path::new(&name)).ok()?).ok()
}

/// The file with the split DWARF of a unit: at its path on the recorded machine, or by its name in the folder `beside`.
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
    /// The compressed symbols in the module, of functions that are not among its dynamic symbols.
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

/// Opens an ELF file in memory.
pub(super) fn from_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Result<ElfFile, Missing> {
    let stat = FileStat { len_bytes: bytes.as_ref().len() as u64, ..FileStat::default() };
    ElfFile::new(Opened { reader: Box::new(Cursor::new(bytes)), stat })
}
