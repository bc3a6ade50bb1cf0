//! The unwinder: registers, a memory reader and section bytes in; frames, each with its origin, and one stop reason out.
//!
//! You provide the registers of a sample, something that reads its memory ([`Memory`]), and the mappings of its
//! address space ([`Space`]) with the unwind sections of the modules mapped there ([`Module`]).
//! In turn you get a [`Stack`]: its frames, leaf first, each saying how it was found, and exactly one [`StopReason`].
//! No files, no clock, no threads, no logging; not for symbol names.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod arch;
mod cache;
mod cfi;
mod error;
mod memory;
mod module;
mod regs;
mod rule;
mod space;
mod stack;
mod stacks;
mod tables;
mod unwinder;

pub use arch::Arch;
pub use cfi::{CfaRule, ExpressionBytes, RegisterRule, Row, row_at};
pub use error::Error;
pub use memory::{Chunk, Memory, ReadFault};
pub use module::{Module, ModuleSections, Section, SectionKind};
pub use regs::Regs;
pub use space::{Mapping, ModuleId, Modules, Space};
pub use stack::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};
pub use stacks::{StackRef, Stacks};
pub use unwinder::{Chain, ChainEnd, ChainEntry, Fallback, Job, Options, Unwinder};
