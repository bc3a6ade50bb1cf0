//! Parses a core: segments, threads, mapped files.

use super::CoreError;
use super::layout::{CURSIG, prstatus};
use crate::modules::{Missing, Opened, ReadSeek};
use fpprof_unwind::{Arch, Regs};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{FileKind, ReadCache};
use object::{Endian as _, Endianness};

/// The most segments, mapped files and threads: twice the kernel's default limit of mappings per process.
///
/// # Sources
/// `DEFAULT_MAX_MAP_COUNT` in the kernel's `include/linux/mm.h`: 65,530.
const MAX_SEGMENTS: usize = 1 << 17;
/// The most bytes of a note segment: about 3 KiB per thread, including vector registers.
const MAX_NOTE_BYTES: u64 = 512 << 20;
/// `AT_PHDR`, `AT_ENTRY`, `AT_SYSINFO_EHDR`.
///
/// # Sources
/// The kernel's `include/uapi/linux/auxvec.h` and `arch/x86/include/uapi/asm/auxvec.h`.
const AT_PHDR: u64 = 3;
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;

/// A core without its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// The architecture.
    pub arch: Arch,
    /// Memory segments, ascending by address.
    pub loads: Vec<Load>,
    /// Threads in the core's order; usually the one that died comes first.
    pub threads: Vec<CoreThread>,
    /// Mapped files (`NT_FILE`), ascending by address.
    pub files: Vec<MappedRange>,
    /// Address of the executable's program headers, AVMA.
    pub program_headers: Option<u64>,
    /// The executable's entry point, AVMA.
    pub entry: Option<u64>,
    /// Address of the vDSO, AVMA.
    pub vdso: Option<u64>,
    /// The command, as truncated by the kernel.
    pub command: Option<String>,
    /// What could not be read, as text.
    pub warnings: Vec<String>,
}

/// A memory segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// First address.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// Offset of its bytes in the core.
    pub file_offset: u64,
    /// Number of its bytes in the core.
    pub file_bytes: u64,
    /// Whether code may run there.
    pub executable: bool,
    /// Whether it is writable.
    pub writable: bool,
}

/// A thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreThread {
    /// Thread ID.
    pub tid: u32,
    /// The signal it received; 0 for none.
    pub signal: u16,
    /// Its registers.
    pub regs: Regs,
}

/// A mapped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRange {
    /// First address.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Path.
    pub path: Vec<u8>,
}

impl Core {
    /// Reads headers and notes.
    ///
    /// # Errors
    /// If the file is not a core, or of an unsupported architecture.
    pub fn read(opened: Opened) -> Result<Self, CoreError> {
        let cache = ReadCache::new(opened.reader);
        let len = opened.stat.len_bytes;
        match FileKind::parse(&cache).map_err(|_| CoreError::File(Missing::NotElf))? {
            FileKind::Elf64 => parse::<FileHeader64<Endianness>>(&cache, len),
            FileKind::Elf32 => parse::<FileHeader32<Endianness>>(&cache, len),
            _ => Err(CoreError::File(Missing::NotElf)),
        }
    }

    /// The mapped file that contains an address.
    #[must_use]
    pub fn file_at(&self, address: u64) -> Option<&MappedRange> {
        let above = self.files.partition_point(|file| file.start <= address);
        self.files.get(above.checked_sub(1)?).filter(|file| address < file.end)
    }

    /// The memory segment that contains an address.
    #[must_use]
    pub fn load_at(&self, address: u64) -> Option<&Load> {
        let above = self.loads.partition_point(|load| load.start <= address);
        self.loads.get(above.checked_sub(1)?).filter(|load| address < load.end)
    }
}

type Cache = ReadCache<Box<dyn ReadSeek>>;

/// Parses a core of `len` bytes.
fn parse<E: FileHeader<Endian = Endianness>>(cache: &Cache, len: u64) -> Result<Core, CoreError> {
    let header = E::parse(cache).map_err(CoreError::Headers)?;
    let endian = header.endian().map_err(CoreError::Headers)?;
    if header.e_type(endian) != elf::ET_CORE {
        return Err(CoreError::NotACore(header.e_type(endian).0));
    }
    let arch = match header.e_machine(endian) {
        elf::EM_X86_64 if header.is_class_64() => Arch::X86_64,
        elf::EM_AARCH64 if header.is_class_64() => Arch::Aarch64,
        elf::EM_386 => Arch::I386,
        elf::EM_X86_64 => return Err(CoreError::X32),
        machine => return Err(CoreError::Machine(machine.0)),
    };
    if endian.is_big_endian() {
        return Err(CoreError::BigEndian);
    }
    let bytes = u64::from(header.e_phnum(endian)).saturating_mul(header.e_phentsize(endian).into());
    if header.e_phoff(endian).into().saturating_add(bytes) > len {
        return Err(CoreError::CutOff);
    }
    let programs = header.program_headers(endian, cache).map_err(CoreError::Headers)?;
    if programs.len() > MAX_SEGMENTS {
        return Err(CoreError::ManySegments(programs.len()));
    }
    let mut core = Core {
        arch,
        loads: Vec::new(),
        threads: Vec::new(),
        files: Vec::new(),
        program_headers: None,
        entry: None,
        vdso: None,
        command: None,
        warnings: Vec::new(),
    };
    for program in programs {
        match program.p_type(endian) {
            elf::PT_LOAD => core.loads.extend(load::<E>(program, endian)),
            elf::PT_NOTE => notes::<E>(program, endian, cache, &mut core),
            _ => {}
        }
    }
    core.loads.sort_by_key(|load| load.start);
    core.files.sort_by_key(|file| file.start);
    for (what, n) in [("mapped files", core.files.len()), ("threads", core.threads.len())] {
        if n > MAX_SEGMENTS {
            core.warnings.push(format!("{n} {what} are too many; only the first {MAX_SEGMENTS} are used"));
        }
    }
    core.files.truncate(MAX_SEGMENTS);
    core.threads.truncate(MAX_SEGMENTS);
    let end_of = |load: &Load| load.file_offset.saturating_add(load.file_bytes);
    let missing = |load: &Load| load.file_bytes.min(end_of(load).saturating_sub(len));
    let missing = core.loads.iter().map(missing).fold(0, u64::saturating_add);
    if missing > 0 {
        core.warnings.push(format!("the core dump is truncated: {missing} bytes of memory are missing at its end"));
    }
    if core.threads.is_empty() {
        return Err(if missing > 0 { CoreError::CutOff } else { CoreError::NoThreads });
    }
    Ok(core)
}

fn load<E: FileHeader<Endian = Endianness>>(program: &E::ProgramHeader, endian: Endianness) -> Option<Load> {
    let start: u64 = program.p_vaddr(endian).into();
    let bytes: u64 = program.p_memsz(endian).into();
    let has = |flag: elf::ProgramFlags| program.p_flags(endian) & flag != elf::ProgramFlags(0);
    Some(Load {
        start,
        end: start.checked_add(bytes).filter(|&end| end > start)?,
        file_offset: program.p_offset(endian).into(),
        file_bytes: u64::min(program.p_filesz(endian).into(), bytes),
        executable: has(elf::PF_X),
        writable: has(elf::PF_W),
    })
}

fn notes<E: FileHeader<Endian = Endianness>>(
    program: &E::ProgramHeader,
    endian: Endianness,
    cache: &Cache,
    core: &mut Core,
) {
    let bytes: u64 = program.p_filesz(endian).into();
    if bytes > MAX_NOTE_BYTES {
        core.warnings.push(format!("{bytes} bytes of notes were ignored"));
        return;
    }
    let mut iterator = match program.notes(endian, cache) {
        Ok(Some(iterator)) => iterator,
        Ok(None) => return,
        Err(error) => return core.warnings.push(format!("cannot read notes: {error}")),
    };
    loop {
        match iterator.next() {
            Ok(Some(note)) if note.name() == b"CORE" => take(note.n_type(endian).0, note.desc(), core),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => return core.warnings.push(format!("notes are truncated: {error}")),
        }
    }
}

fn take(kind: u32, bytes: &[u8], core: &mut Core) {
    const PRSTATUS: u32 = elf::NT_PRSTATUS.0;
    const PRPSINFO: u32 = elf::NT_PRPSINFO.0;
    const AUXV: u32 = elf::NT_AUXV.0;
    const FILE: u32 = elf::NT_FILE.0;
    match kind {
        PRSTATUS if core.threads.len() > MAX_SEGMENTS => {}
        PRSTATUS => match thread(core.arch, bytes) {
            Some(thread) => core.threads.push(thread),
            None => core.warnings.push("ignored a thread with truncated registers".to_owned()),
        },
        PRPSINFO => core.command = command(bytes),
        AUXV => auxiliary(bytes, core),
        FILE if !core.files.is_empty() => core.warnings.push("ignored a second list of mapped files".to_owned()),
        FILE => match files(bytes, prstatus(core.arch).word) {
            Some(files) => core.files = files,
            None => core.warnings.push("ignored a corrupt list of mapped files".to_owned()),
        },
        _ => {}
    }
}

fn thread(arch: Arch, bytes: &[u8]) -> Option<CoreThread> {
    let layout = prstatus(arch);
    let mut regs = Regs::new(arch);
    for (index, number) in layout.numbers.iter().enumerate() {
        let value = word(bytes, layout.registers + index * layout.word, layout.word)?;
        if let &Some(number) = number {
            regs.set(number, value);
        }
    }
    let tid = u32::try_from(word(bytes, layout.tid, 4)?).ok()?;
    let signal = bytes.get(CURSIG..)?.first_chunk().map(|pair| u16::from_le_bytes(*pair))?;
    Some(CoreThread { tid, signal, regs })
}

/// `pr_psargs`, the last 80 bytes of `struct elf_prpsinfo` on every architecture.
fn command(bytes: &[u8]) -> Option<String> {
    let arguments = bytes.get(bytes.len().checked_sub(80)?..)?;
    let text = arguments.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).trim_end().to_owned()).filter(|text| !text.is_empty())
}

fn auxiliary(bytes: &[u8], core: &mut Core) {
    let size = prstatus(core.arch).word;
    for at in (0..bytes.len()).step_by(size * 2) {
        match (word(bytes, at, size), word(bytes, at + size, size)) {
            (Some(AT_PHDR), value) => core.program_headers = value.filter(|&value| value != 0),
            (Some(AT_ENTRY), value) => core.entry = value.filter(|&value| value != 0),
            (Some(AT_SYSINFO_EHDR), value) => core.vdso = value.filter(|&value| value != 0),
            _ => {}
        }
    }
}

/// `NT_FILE`: count, page size, (start, end, offset in pages) for each file, then their paths, each terminated by a
/// zero.
///
/// # Sources
/// `fill_files_note` in the kernel's `fs/binfmt_elf.c`.
fn files(bytes: &[u8], size: usize) -> Option<Vec<MappedRange>> {
    let count = usize::try_from(word(bytes, 0, size)?).ok()?;
    let page = word(bytes, size, size)?;
    let paths_at = count.checked_mul(3)?.checked_add(2)?.checked_mul(size)?;
    let mut paths = bytes.get(paths_at..)?.split(|&byte| byte == 0);
    let mut files = Vec::new();
    // One more than the limit, to detect that there are more.
    for index in 0..count.min(MAX_SEGMENTS + 1) {
        let at = (2 + index * 3) * size;
        let [start, end, pages] = [0, 1, 2].map(|n| word(bytes, at + n * size, size));
        let path = paths.next()?.to_vec();
        files.push(MappedRange { start: start?, end: end?, file_offset: pages?.checked_mul(page)?, path });
    }
    Some(files)
}

fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let rest = bytes.get(at..)?;
    match size {
        8 => rest.first_chunk().map(|word| u64::from_le_bytes(*word)),
        _ => rest.first_chunk().map(|word| u32::from_le_bytes(*word).into()),
    }
}
