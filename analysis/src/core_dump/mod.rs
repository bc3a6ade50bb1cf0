//! Stacks of what is not a recording: the threads of a core, and bare registers with bytes of a stack.
//!
//! You provide a core as any Unix debugger or kernel writes it ([`Core`]), or registers, stack bytes and ELF files
//! ([`Bare`]), and a [`crate::modules::Resolver`] for the files. In turn every thread gets its frames, each with how it
//! was found, and the reason it ends ([`UnwoundCore`]). Modules are verified as for a recording: the build id in the core's
//! own copy of an ELF header decides. A core is input like any other: bytes are read page by page, never mapped, and
//! what is cut off or does not fit together ends a stack and nothing else.

mod bare;
mod error;
mod layout;
mod link_map;
mod memory;
mod model;
mod options;
mod parse;
mod places;
mod unwind;

pub use bare::{Bare, LoadedFile, unwind_bare};
pub use error::CoreError;
pub use layout::{arch_name, machine_name, register_by_name};
pub use model::{FrameOut, ThreadOut, UnwoundCore};
pub use options::CoreOptions;
pub use parse::{Core, CoreThread, Load, MappedRange};
pub use unwind::unwind_core;

#[cfg(test)]
mod tests;
