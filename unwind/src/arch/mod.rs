//! What differs between processors: registers, their DWARF numbers, word size, how return addresses are encoded.

mod aarch64;
mod i386;
mod spec;
mod specs;
mod x86_64;

pub use spec::{Arch, CALL_BYTES};
pub(crate) use spec::{CodeAt, ROOT_CODE_BYTES, START_CODE_BYTES, SavedRegisters, Spec};
