//! Distinct frames: the place of a frame, and how it was found.

use crate::address_space::FileIx;
use crate::folded::Origin;
use crate::replay::PlacedSpace;
use crate::symbols::JitCode;
use fpprof_unwind::{Frame, FrameFlags, FrameSource, Modules};

/// The place of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Where {
    /// In a module, at an SVMA. If the module is missing, at an offset in its file.
    Module(FileIx, u64),
    /// At an address of a process that is not mapped.
    Unmapped(u64),
    /// In JIT-compiled code without names.
    Unnamed(u64),
    /// In JIT-compiled code with names.
    Compiled(Compiled, u64),
    /// At a kernel address.
    Kernel(u64),
}

/// The source of names for JIT-compiled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compiled {
    /// The table of this process.
    Table(u32),
    /// A dump, which has the code at that time.
    Dump(JitCode),
}

/// A distinct frame. Addresses are look-up addresses: one byte below a return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey {
    /// Its place.
    pub place: Where,
    /// How it was found.
    pub origin: Origin,
    /// Whether the address was a return address.
    pub is_return: bool,
}

/// The frames of a stack as they are looked up. A signal handler returns to code that did not call it, at its first instruction: that
/// is the frame whose caller was interrupted, and no byte before it is of the same function.
pub(crate) fn for_lookup(frames: &[Frame]) -> impl Iterator<Item = Frame> {
    let interrupted = frames.iter().skip(1).map(|caller| caller.flags.is_instruction).chain([false]);
    frames.iter().zip(interrupted).map(|(frame, is_signal)| {
        let is_instruction = frame.flags.is_instruction || is_signal;
        Frame { flags: FrameFlags { is_instruction, ..frame.flags }, ..*frame }
    })
}

/// The place of a frame of a stack in this space at a time.
#[must_use]
pub fn locate(frame: &Frame, space: &PlacedSpace, modules: &impl Modules, time_ns: u64) -> Where {
    let lookup = frame.lookup();
    match space.space.find(lookup) {
        Some(mapping) => match mapping.module {
            Some(module) => Where::Module(FileIx(module.0), lookup.wrapping_sub(modules.bias(mapping))),
            None => space.compiled_by.map_or(Where::Unnamed(lookup), |pid| {
                let dumped = space.jit_codes.find(pid, lookup, time_ns);
                Where::Compiled(dumped.map_or(Compiled::Table(pid), Compiled::Dump), lookup)
            }),
        },
        None => Where::Unmapped(lookup),
    }
}

/// How a frame was found, for display.
pub(crate) fn origin(frame: &Frame) -> Origin {
    match frame.source {
        FrameSource::Registers => Origin::Leaf,
        _ if frame.flags.fp_fallback => Origin::FramePointer,
        FrameSource::Cfi => Origin::Cfi,
        FrameSource::FramePointer => Origin::FramePointer,
        FrameSource::Kernel => Origin::Kernel,
        FrameSource::Heuristic => Origin::Heuristic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the code to which a signal handler returns is looked up at its own address, and other callers before theirs.
    #[test]
    fn code_after_handlers_is_found() {
        let frame = |address, is_instruction| Frame {
            address,
            cfa: 0,
            source: FrameSource::Cfi,
            flags: FrameFlags { is_instruction, ..FrameFlags::default() },
        };
        let stack = [frame(0x10, true), frame(0x20, false), frame(0x30, false), frame(0x40, true), frame(0x50, false)];
        let lookups: Vec<u64> = for_lookup(&stack).map(|frame| frame.lookup()).collect();
        assert_eq!(lookups, [0x10, 0x1f, 0x30, 0x40, 0x4f]);
    }
}
