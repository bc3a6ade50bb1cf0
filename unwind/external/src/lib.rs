//! External unwinders: elfutils' libdw and libunwind over the same registers and stack bytes.
//!
//! You provide what one sample recorded ([`Request`]): the modules mapped at that moment, the registers, the copied
//! stack bytes. In turn [`Libdw`] and [`Libunwind`] give the stack *those libraries* see, in the words of
//! [`fpprof_unwind::Stack`], and each says in its documentation which of the words it can justify.
//!
//! # Limits
//!
//! - Their stacks are not corrected: where a library invents a frame, the frame is kept and flagged
//!   ([`fpprof_unwind::FrameFlags::fp_fallback`], [`fpprof_unwind::FrameSource::Heuristic`]).
//! - They are not hardened. Both libraries evaluate the CFI of the profiled files inside this process. Files that are no
//!   ELF for x86-64 never reach them, endless loops are ended by limits, but a division `INT64_MIN / -1` in a DWARF
//!   expression, for example, ends the process in either of them. Use them only on recordings you trust.
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
