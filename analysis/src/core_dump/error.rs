//! Why there are no stacks of a core at all.

use super::layout::machine_name;
use crate::modules::Missing;

/// Why a core cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The file itself.
    #[error("{}", .0.words())]
    File(Missing),
    /// An ELF file of another type.
    #[error("not a core, but {}", type_name(*.0))]
    NotACore(u16),
    /// The file ends in its headers or notes.
    #[error("the core is cut off before its memory")]
    CutOff,
    /// An architecture that is not unwound.
    #[error("a core of {}; x86-64, i386 and aarch64 are supported", machine_name(*.0))]
    Machine(u16),
    /// 64-bit code in a 32-bit file.
    #[error("a core of x32, 64-bit code with 32-bit addresses; x86-64, i386 and aarch64 are supported")]
    X32,
    /// Big-endian code.
    #[error("a big-endian core; little-endian ones are supported")]
    BigEndian,
    /// The headers cannot be parsed.
    #[error("the core's headers are damaged: {0}")]
    Headers(object::read::Error),
    /// More segments than any process has mappings.
    #[error("{0} segments; no process has so many mappings")]
    ManySegments(usize),
    /// No thread in the notes.
    #[error("no thread in it: its notes hold no registers")]
    NoThreads,
}

/// What files of an ELF type are.
///
/// # Sources
/// System V gABI chapter 4, `e_type`.
fn type_name(kind: u16) -> String {
    match kind {
        1 => "an object file".to_owned(),
        2 => "an executable".to_owned(),
        3 => "an executable or a library".to_owned(),
        other => format!("an ELF file of type {other}"),
    }
}
