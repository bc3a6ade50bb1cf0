//! Checks files before a library may read them.

use crate::ModuleFile;
use fpprof_unwind::TruncatedReason;
use object::LittleEndian;
use object::elf::{EM_386, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;

/// More program headers than any linker writes; a file may claim 2³².
const MAX_PROGRAM_HEADERS: u32 = 4096;

/// An opened file that is suitable for unwinding.
#[derive(Debug)]
pub(crate) struct ElfFile {
    /// The file.
    pub(crate) file: File,
    /// `PT_LOAD` segments in the order of the file.
    pub(crate) loads: Vec<Load>,
    /// SVMA range of `.eh_frame_hdr`.
    #[cfg_attr(not(feature = "libunwind"), expect(dead_code, reason = "libdw looks for itself"))]
    pub(crate) eh_frame_hdr: Option<Range<u64>>,
}

/// One `PT_LOAD` segment.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// SVMA of the bytes that come from the file.
    pub(crate) svma: Range<u64>,
    /// SVMA of the end of the zeroes that follow them.
    pub(crate) memory_end: u64,
    /// Offset of the first byte in the file.
    #[cfg_attr(not(feature = "libunwind"), expect(dead_code, reason = "libdw looks for itself"))]
    pub(crate) file_offset: u64,
}

impl ElfFile {
    /// Opens the file of a module and reads its program headers.
    ///
    /// Opening a FIFO does not block, and anything but a regular file is refused. So is anything but an ELF program or
    /// library: libdw would try to decompress it.
    pub(crate) fn open(file: ModuleFile<'_>) -> Result<Self, TruncatedReason> {
        let file = match file {
            ModuleFile::Missing(reason) => return Err(reason),
            ModuleFile::Bytes(bytes) => crate::sys::memory_file(bytes),
            ModuleFile::Path(path) => OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path),
        };
        let file = file.map_err(|_unreadable| TruncatedReason::ModuleUnavailable)?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(TruncatedReason::ModuleUnavailable);
        }
        let copy = file.try_clone().map_err(|_no_descriptor| TruncatedReason::ModuleUnavailable)?;
        Self::parse(copy, file)
    }

    fn parse(copy: File, file: File) -> Result<Self, TruncatedReason> {
        let invalid = |_malformed| TruncatedReason::ModuleUnavailable;
        let data = &ReadCache::new(copy);
        let header = match FileHeader64::<LittleEndian>::parse(data) {
            Ok(header) if header.e_machine.get(LittleEndian) == EM_X86_64 => header,
            _ => return Err(if is_i386(data) { TruncatedReason::Abi32 } else { TruncatedReason::ModuleUnavailable }),
        };
        if !matches!(header.e_type.get(LittleEndian), ET_EXEC | ET_DYN)
            || header.phnum(LittleEndian, data).map_err(invalid)? > MAX_PROGRAM_HEADERS
        {
            return Err(TruncatedReason::ModuleUnavailable);
        }
        let mut loads = Vec::new();
        let mut eh_frame_hdr = None;
        for program_header in header.program_headers(LittleEndian, data).map_err(invalid)? {
            let start = program_header.p_vaddr(LittleEndian);
            let file_end = start.checked_add(program_header.p_filesz(LittleEndian));
            let memory_end = start.checked_add(program_header.p_memsz(LittleEndian));
            let (Some(file_end), Some(memory_end)) = (file_end, memory_end) else {
                return Err(TruncatedReason::ModuleUnavailable);
            };
            match program_header.p_type(LittleEndian) {
                PT_LOAD => loads.push(Load {
                    svma: start..file_end,
                    memory_end: memory_end.max(file_end),
                    file_offset: program_header.p_offset(LittleEndian),
                }),
                PT_GNU_EH_FRAME => eh_frame_hdr = Some(start..file_end),
                _ => {}
            }
        }
        if loads.is_empty() {
            return Err(TruncatedReason::ModuleUnavailable);
        }
        Ok(Self { file, loads, eh_frame_hdr })
    }

    /// SVMA range from the first segment to the end of the last.
    pub(crate) fn span(&self) -> Range<u64> {
        let start = self.loads.iter().map(|load| load.svma.start).min().unwrap_or(0);
        let end = self.loads.iter().map(|load| load.memory_end).max().unwrap_or(0);
        start..end
    }
}

fn is_i386(data: &ReadCache<File>) -> bool {
    object::elf::FileHeader32::<LittleEndian>::parse(data)
        .is_ok_and(|header| matches!(header.e_machine.get(LittleEndian), EM_386 | EM_X86_64))
}
