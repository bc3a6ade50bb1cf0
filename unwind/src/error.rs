//! What can be wrong with call frame information or the file that contains it.

use core::fmt;

/// Why call frame information has no row, or a file cannot be a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No entry covers this SVMA.
    NoRow(u64),
    /// The sections are big-endian, which is not supported.
    BigEndian,
    /// The common information entry at this offset is longer than any real one.
    LongCie(u64),
    /// A row starts below the previous one.
    Descending(u64),
    /// A CFI program has more than this many instructions.
    ManyInstructions(u32),
    /// A CFI program remembers more than this many states.
    DeepRemember(usize),
    /// A state is restored that was not remembered, or a rule is changed before it is defined.
    NoState,
    /// The parser failed.
    Parse(gimli::Error),
    /// The file is for a processor that is not supported.
    #[cfg(feature = "object")]
    Architecture(object::Architecture),
    /// A section of the file cannot be read.
    #[cfg(feature = "object")]
    Object(object::Error),
}

impl From<gimli::Error> for Error {
    fn from(error: gimli::Error) -> Self {
        Self::Parse(error)
    }
}

#[cfg(feature = "object")]
impl From<object::Error> for Error {
    fn from(error: object::Error) -> Self {
        Self::Object(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRow(svma) => write!(f, "no call frame information covers {svma:#x}"),
            Self::BigEndian => f.write_str("big-endian sections are not supported"),
            Self::LongCie(offset) => write!(f, "the common information entry at offset {offset:#x} is too long"),
            Self::Descending(svma) => write!(f, "the row at {svma:#x} starts before the previous row"),
            Self::ManyInstructions(limit) => write!(f, "a CFI program of more than {limit} instructions"),
            Self::DeepRemember(limit) => write!(f, "a CFI program with more than {limit} remembered states"),
            Self::NoState => f.write_str("a CFI instruction without a state to change"),
            Self::Parse(error) => write!(f, "cannot parse call frame information: {error}"),
            #[cfg(feature = "object")]
            Self::Architecture(architecture) => write!(f, "{architecture:?} is not supported"),
            #[cfg(feature = "object")]
            Self::Object(error) => write!(f, "cannot read a section: {error}"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Parse(error) => Some(error),
            #[cfg(feature = "object")]
            Self::Object(error) => Some(error),
            _ => None,
        }
    }
}
