//! Stacks that are not from a recording: the threads of a core, and bare registers with stack bytes.
//!
//! You provide a core as written by a Unix debugger or kernel ([`Core`]), or registers, stack bytes and ELF files
//! ([`Bare`]), and a [`crate::modules::Resolver`] for the files. In turn every thread gets its frames, each with how it
//! was found, and the reason it ends ([`UnwoundCore`]). Modules are verified as for a recording: the build ID in the
//! core's own copy of an ELF header decides. A core is not trusted: it is read page by page, never mapped, and if it is
//! truncated or inconsistent, only stacks end early.

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
