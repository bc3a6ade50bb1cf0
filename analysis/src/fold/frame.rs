//! Distinct frames: where a frame is, and how it was found.

use crate::address_space::FileIx;
use crate::folded::Origin;
use crate::replay::PlacedSpace;
use crate::symbols::JitCode;
use fpprof_unwind::{Frame, FrameSource};

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Where {
    /// In a module, at an SVMA. For a module that is missing, at an offset into its file.
    Module(FileIx, u64),
    /// At an address of a process where nothing is mapped.
    Unmapped(u64),
    /// At an address where a process compiled code while it ran, and told no names.
    Unnamed(u64),
    /// At an address where a process compiled code while it ran.
    Compiled(Compiled, u64),
    /// At an address of the kernel.
    Kernel(u64),
}

/// What names code that a process compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compiled {
    /// The table of this process.
    Table(u32),
    /// A dump, which tells what was there at the time.
    Dump(JitCode),
}

/// A distinct frame. Addresses are those to look up: of a return address the byte before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey {
    /// Where it is.
    pub place: Where,
    /// How it was found.
    pub origin: Origin,
    /// The address was found as a return address.
    pub is_return: bool,
}

/// Where a frame of a stack in this space is, at a time.
#[must_use]
pub fn locate(frame: &Frame, space: &PlacedSpace, time_ns: u64) -> Where {
    let lookup = frame.lookup();
    match space.space.find(lookup) {
        Some(mapping) => match mapping.module {
            Some(module) => Where::Module(FileIx(module.0), lookup.wrapping_sub(mapping.bias)),
            None => space.compiled_by.map_or(Where::Unnamed(lookup), |pid| {
                let dumped = space.jit_codes.find(pid, lookup, time_ns);
                Where::Compiled(dumped.map_or(Compiled::Table(pid), Compiled::Dump), lookup)
            }),
        },
        None => Where::Unmapped(lookup),
    }
}

/// How a frame was found, as shown.
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
