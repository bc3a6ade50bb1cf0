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
    #[error("not a core: its ELF type is {0}")]
    NotACore(u16),
    /// An architecture that is not unwound.
    #[error("a core of {}; x86-64, i386 and aarch64 are supported", machine_name(*.0))]
    Machine(u16),
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
