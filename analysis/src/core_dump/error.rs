//! Why a core cannot be used at all.

use super::layout::machine_name;
use crate::modules::Missing;

/// Why a core cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The file cannot be read.
    #[error("{}", .0.text())]
    File(Missing),
    /// An ELF file of another type.
    #[error("not a core dump, but {}", type_name(*.0))]
    NotACore(u16),
    /// The file is truncated in its headers or notes.
    #[error("the core dump is truncated: it ends before its memory")]
    CutOff,
    /// The architecture is not supported.
    #[error("unsupported architecture {}; supported: x86-64, i386, aarch64", machine_name(*.0))]
    Machine(u16),
    /// 64-bit code in a 32-bit file.
    #[error("unsupported architecture x32; supported: x86-64, i386, aarch64")]
    X32,
    /// Big-endian code.
    #[error("big-endian core dumps are not supported")]
    BigEndian,
    /// The headers cannot be parsed.
    #[error("the core dump's headers are corrupt: {0}")]
    Headers(object::read::Error),
    /// More segments than any process has mappings.
    #[error("the core dump's headers are corrupt: {0} segments")]
    ManySegments(usize),
    /// No thread in the notes.
    #[error("the core dump has no threads: its notes hold no registers")]
    NoThreads,
}

/// Describes files of an ELF type.
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
