//! Roots of the stacks of Go programs, which their call frame information does not mark.

use super::go_functions::GoFunctions;
use super::{ElfFile, SectionInfo};
use fpprof_unwind::{Arch, Root};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, Sym as _};
use object::{Endianness, pod};
use std::ops::Range;

/// The most bytes of the symbol table or its strings.
const MAX_TABLE_BYTES: u64 = 512 << 20;
/// The most functions in which stacks end; there are eight.
const MAX_ENDS: usize = 64;
/// The most bytes of a function that are examined; real ones have about 200.
const MAX_FUNCTION_BYTES: u64 = 4096;

/// How a function of Go's run-time library ends stacks.
enum End {
    /// All of it is a root.
    All(Root),
    /// Its code that runs on the scheduler's stack.
    Switched,
    /// Its code that runs in a new thread.
    NewThread,
}

/// The code in which stacks end, found by symbols, or if these are stripped by Go's own table; empty for files that are
/// not Go's.
///
/// A goroutine returns to `goexit`, which nothing called; a thread's own stack begins at `mstart`, that of the first
/// thread in `rt0_go`. `mcall`, `systemstack` and `morestack` switch to a place below the top of that stack, and the
/// frames above that place have nothing to do with the call. So does `asmcgocall` for C. In `clone` on amd64 a new
/// thread sets up its stack and goes on to `mstart`; 386 has no separate instruction for that, so its new threads are
/// recognised from `mstart` on.
///
/// # Sources
/// Go 1.26 `src/runtime/asm_{amd64,386}.s`, `src/runtime/sys_linux_amd64.s`; `src/runtime/traceback.go`, which stops at
/// the same functions.
pub(super) fn go_roots(elf: &ElfFile, sections: &[SectionInfo], arch: Arch) -> Vec<(Range<u64>, Root)> {
    let is_go = sections.iter().any(|section| section.name == b".go.buildinfo");
    if !is_go {
        return Vec::new();
    }
    let tables = sections.iter().filter(|section| section.kind == elf::SHT_SYMTAB.0);
    let by_symbols = tables.filter_map(|table| match elf.is_64() {
        true => by_symbols::<FileHeader64<Endianness>>(elf, sections, table),
        false => by_symbols::<FileHeader32<Endianness>>(elf, sections, table),
    });
    let mut ends: Vec<(End, Range<u64>)> = by_symbols.flatten().collect();
    // If the table cannot be read, the look-up of names reports it.
    if ends.is_empty()
        && let Ok(Some(functions)) = GoFunctions::read(elf, sections)
    {
        let all = functions.iter().filter_map(|(range, name)| Some((end_of(name)?, range)));
        ends.extend(all.take(MAX_ENDS));
    }
    let mut roots = Vec::new();
    for (end, range) in ends {
        match (end, arch) {
            (End::All(root), _) => roots.push((range, root)),
            (End::Switched, Arch::X86_64 | Arch::I386) => {
                roots.extend(stack_switch(elf, &range).map(|switch| (switch.end..switch.back, Root::G0)));
            }
            (End::NewThread, Arch::X86_64 | Arch::I386) => {
                roots.extend(stack_switch(elf, &range).map(|switch| (switch.start..range.end, Root::G0)));
            }
            (End::Switched | End::NewThread, Arch::Aarch64) => {}
        }
    }
    roots
}

/// How the function with this name ends stacks.
fn end_of(name: &[u8]) -> Option<End> {
    match name.strip_suffix(b".abi0").unwrap_or(name) {
        b"runtime.goexit" => Some(End::All(Root::Goexit)),
        b"runtime.mstart" => Some(End::All(Root::G0)),
        b"runtime.rt0_go" => Some(End::All(Root::Start)),
        b"runtime.mcall" | b"runtime.systemstack" | b"runtime.morestack" | b"runtime.asmcgocall" => Some(End::Switched),
        b"runtime.clone" => Some(End::NewThread),
        _ => None,
    }
}

fn by_symbols<E: FileHeader<Endian = Endianness>>(
    elf: &ElfFile,
    sections: &[SectionInfo],
    table: &SectionInfo,
) -> Option<Vec<(End, Range<u64>)>> {
    let endian = if elf.image().little_endian { Endianness::Little } else { Endianness::Big };
    let bytes = elf.read(table, MAX_TABLE_BYTES)?;
    let strings = elf.read(sections.get(usize::try_from(table.link).ok()?)?, MAX_TABLE_BYTES)?;
    let (symbols, _) = pod::slice_from_bytes::<E::Sym>(&bytes, bytes.len() / size_of::<E::Sym>()).ok()?;
    let name = |symbol: &E::Sym| {
        let name = strings.get(usize::try_from(symbol.st_name(endian)).ok()?..)?;
        name.split(|&byte| byte == 0).next()
    };
    let functions = symbols.iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC);
    let found = functions.filter_map(|symbol| {
        let start = symbol.st_value(endian).into();
        Some((end_of(name(symbol)?)?, start..start.checked_add(symbol.st_size(endian).into())?))
    });
    Some(found.take(MAX_ENDS).collect())
}

/// The switch of a function to another stack, as addresses.
struct StackSwitch {
    /// Range of the instruction that sets the stack pointer.
    start: u64,
    end: u64,
    /// End of the instruction that restores the stack pointer, or of the function.
    back: u64,
}

fn stack_switch(elf: &ElfFile, function: &Range<u64>) -> Option<StackSwitch> {
    let offset = elf.image().file_offset(function.start)?;
    let bytes = elf.read_range(offset, function.end.checked_sub(function.start)?, MAX_FUNCTION_BYTES)?;
    let decoder = Decoder::with_ip(if elf.is_64() { 64 } else { 32 }, &bytes, function.start, DecoderOptions::NONE);
    let mut switches = decoder.into_iter().filter(|instruction| {
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && matches!(instruction.op0_register(), Register::RSP | Register::ESP)
    });
    let first = switches.next()?;
    let back = switches.next().map_or(function.end, |second| second.next_ip());
    Some(StackSwitch { start: first.ip(), end: first.next_ip(), back })
}
