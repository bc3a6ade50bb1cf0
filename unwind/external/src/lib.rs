//! External unwinders: elfutils' libdw and libunwind over the same registers and stack bytes.
//!
//! You provide what one sample recorded ([`Request`]): the modules mapped at that moment, the registers, the copied
//! stack bytes. In turn [`Libdw`] and [`Libunwind`] return the stack *those libraries* see, as a
//! [`fpprof_unwind::Stack`], and each documents how its results map to stop reasons.
//!
//! # Limits
//!
//! - Their stacks are not corrected: where a library invents a frame, the frame is kept and flagged
//!   ([`fpprof_unwind::FrameFlags::fp_fallback`], [`fpprof_unwind::FrameSource::Heuristic`]).
//! - They are not hardened. Both libraries evaluate the CFI of the profiled files inside this process. Only ELF files
//!   for x86-64 reach them, and limits end endless loops, but a division `INT64_MIN / -1` in a DWARF expression, for
//!   example, kills the process in either of them. Use them only on recordings you trust.
//! - They are not a fallback of our own unwinder.
//!
//! Each library is linked dynamically behind the feature of its name.
#![deny(unsafe_code)]

mod request;

#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod chunk;
#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod elf;
#[cfg(feature = "libunwind")]
mod image;
#[cfg(feature = "libdw")]
mod libdw;
#[cfg(feature = "libunwind")]
mod libunwind;
#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod modules;
#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod sessions;
#[cfg(any(feature = "libdw", feature = "libunwind"))]
#[expect(unsafe_code, reason = "the only place that calls the libraries")]
mod sys;

pub use request::{Error, ExternalUnwinder, ModuleFile, ModuleRef, Request};

#[cfg(feature = "libdw")]
pub use libdw::Libdw;
#[cfg(feature = "libunwind")]
pub use libunwind::Libunwind;
