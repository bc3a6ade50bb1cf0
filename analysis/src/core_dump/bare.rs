//! Unwinds bare registers and stack bytes, with the files that were loaded.

use super::places::{mapped, meta};
use super::unwind::{Start, unwind};
use super::{CoreError, CoreOptions, UnwoundCore};
use crate::address_space::Timeline;
use crate::modules::{ElfFile, ModuleTable};
use fpprof_unwind::{Arch, Chunk, Regs};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

const PAGE: u64 = 4096;

/// A file and its load address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// Absolute path.
    pub path: PathBuf,
    /// AVMA − SVMA (load bias), wrapping; 0 for addresses as in the file.
    pub bias: u64,
}

/// One thread, given by its registers and stack bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bare {
    /// Registers; some may be unknown.
    pub regs: Regs,
    /// Address of the first byte of `stack`.
    pub stack_start: u64,
    /// Bytes of the stack.
    pub stack: Vec<u8>,
    /// The loaded files.
    pub files: Vec<LoadedFile>,
}

/// Unwinds one thread. Only the given bytes are used as memory.
///
/// # Errors
/// If a file cannot be opened or its architecture is not that of the registers.
pub fn unwind_bare(bare: &Bare, options: &CoreOptions<'_>) -> Result<UnwoundCore, (PathBuf, CoreError)> {
    let arch = bare.regs.arch();
    let mut events = Vec::new();
    for file in &bare.files {
        let fail = |error| (file.path.clone(), error);
        let elf = options.resolver.open(&file.path).and_then(ElfFile::new).map_err(|why| fail(CoreError::File(why)))?;
        check_arch(&elf, arch).map_err(fail)?;
        let image = elf.image();
        for segment in image.segments.iter().filter(|segment| segment.executable) {
            let start = segment.svma & !(PAGE - 1);
            let end = segment.svma.checked_add(segment.memory_bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
            let Some(len) = end.and_then(|end| end.checked_sub(start)) else { continue };
            let offset = segment.file_offset & !(PAGE - 1);
            let path = file.path.as_os_str().as_bytes();
            events.push(mapped(start.wrapping_add(file.bias), len, offset, path, image.build_id));
        }
    }
    let timeline = Timeline::new(events);
    let meta = meta();
    let modules = ModuleTable::new(&timeline, &meta, options.resolver);
    let chunk = Chunk { start: bare.stack_start, bytes: &bare.stack, stack_end: None, holes: &[] };
    let start = Start { tid: 0, signal: 0, regs: bare.regs };
    Ok(unwind(arch, &timeline, &modules, &chunk, &[start], options.unwinding))
}

fn check_arch(elf: &ElfFile, arch: Arch) -> Result<(), CoreError> {
    if elf.image().arch == Some(arch) {
        return Ok(());
    }
    // `e_machine` is at byte 18 of every ELF header.
    let machine = elf.read_range(18, 2, 2).and_then(|bytes| bytes.first_chunk().copied());
    Err(CoreError::Machine(machine.map_or(0, u16::from_le_bytes)))
}
