//! Offline stack unwinding by call frame information (`.eh_frame`, `.debug_frame`), `SFrame` or frame pointers.
//!
//! You provide
//! - the unwind sections of the modules ([`Module`]), decompressed, or with the feature `object` whole ELF files
//!   ([`Module::from_object`]);
//! - which of them is mapped where in the sampled process at the time of the sample ([`Space`]), executable or not;
//! - the registers of the sample ([`Regs`]) and something that reads its memory ([`Memory`], usually a [`Chunk`], or a
//!   closure: [`ReadWith`]);
//! - the code of modules, if you have it ([`Modules::code`]): it shows at which root a walk has ended.
//!
//! You get a [`Stack`]: its frames, leaf first, each with how it was found, and exactly one [`StopReason`]. Everything
//! that can go wrong is a stop reason. Nothing panics; nothing is guessed unless [`Options`] ask for it, and guesses
//! are flagged. Sections and stacks are not trusted: programs, expressions, depth and memory have limits.
//!
//! - [`Unwinder::unwind`] takes one sample. [`Unwinder::unwind_batch`] takes many and is faster: it interleaves some
//!   dozens of walks, so that they wait for memory together. Both give the same stacks, in any order and batch, and on
//!   any number of threads, each with its own unwinder; [`Unwinder::with_rules`] lets these share their rules.
//! - [`Unwinder::walk_frame_pointers`] returns what a frame-pointer profiler would have seen, and
//!   [`Unwinder::judge_chain`] judges a recorded frame-pointer chain.
//! - [`row_at`] returns the row of call frame information that covers an address, in readable form.
//!
//! No files, no clock, no threads, no logging. Not for symbol names, and not for throwing exceptions.
//!
//! # How it works
//!
//! An address is looked up in the space, then in the module: by `.eh_frame_hdr` if that is valid, else by a scan of
//! `.eh_frame`, else of `.debug_frame`; or in `.sframe` alone, if that is given. The row that covers it is compiled to
//! a rule of eight bytes: how to recover ip, sp and fp of the caller. Entries in the form compilers usually write
//! bypass the general parser. A walk that needs more than these three registers (a signal frame, a realigned stack, an
//! expression, another architecture) starts again with all registers and the rows themselves. Rules are cached by space
//! and address, three to a cache line of 64 bytes, in a table that several unwinders may share without locks
//! ([`SharedRules`]).
//!
//! # Example
//!
//! ```
//! use fpprof_unwind::{Arch, Chunk, Mapping, Module, ModuleId, ModuleSections, Regs, Section, Space, Stack, Unwinder};
//!
//! // CIE: CFA = rsp + 8, return address at CFA − 8. FDE: 0x1000..0x1100. FDE: 0x1100..0x1200, which has no caller.
//! let eh_frame = [
//!     16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0,
//!     20, 0, 0, 0, 24, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
//!     24, 0, 0, 0, 48, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 7, 16, 0, 0,
//! ];
//! let eh_frame = Some(Section { svma: 0x4000, bytes: eh_frame.to_vec().into() });
//! let modules = vec![Module::new(ModuleSections { eh_frame, ..ModuleSections::default() })];
//! let code = Mapping { start: 0x7000_1000, end: 0x7000_2000, executable: true, module: Some(ModuleId(0)), bias: 0x7000_0000 };
//! let space = Space::new(0, vec![code]);
//!
//! let regs = Regs::new(Arch::X86_64).with_ip(0x7000_1010).with_sp(0x7ffc_0000);
//! let words: Vec<u8> = [0x7000_1150_u64, 0].into_iter().flat_map(u64::to_le_bytes).collect();
//! let memory = Chunk { start: 0x7ffc_0000, bytes: &words, stack_end: Some(0x7ffc_0010), holes: &[] };
//!
//! let mut stack = Stack::default();
//! Unwinder::default().unwind(&modules, &space, &regs, &memory, &mut stack);
//! assert_eq!(stack.frames.iter().map(|frame| frame.address).collect::<Vec<_>>(), [0x7000_1010, 0x7000_1150]);
//! assert_eq!(stack.stop.to_string(), "complete (undefined_ra)");
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

#[cfg(all(doctest, feature = "object"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod arch;
mod cache;
mod cfi;
mod error;
mod memory;
mod module;
#[cfg(feature = "object")]
mod object_file;
mod regs;
mod rule;
mod space;
mod stack;
mod stacks;
mod unwinder;

/// The layout of the rules of [`Unwinder::function_rules`], and the limits of a walk that gives the same frames.
pub mod rules {
    pub use crate::memory::MAX_ARGUMENT_BYTES;
    pub use crate::rule::layout::*;
    pub use crate::unwinder::{MAX_BETWEEN, MAX_START_BYTES};
}

pub use arch::{Arch, CALL_BYTES};
pub use cache::SharedRules;
pub use cfi::{CfaRule, ExpressionBytes, RegisterRule, Row, row_at};
pub use error::Error;
pub use memory::{Chunk, Chunks, Memory, ReadFault, ReadWith};
pub use module::{Module, ModuleSections, Section, SectionKind};
pub use regs::Regs;
pub use space::{Mapping, ModuleId, Modules, Space};
pub use stack::{
    BrokenReason, Frame, FrameFlags, FrameSource, NoStackReason, Root, Stack, StopReason, TruncatedReason,
};
pub use stacks::{StackRef, Stacks};
pub use unwinder::{Chain, ChainEnd, ChainEntry, Fallback, Job, Options, Unwinder};
