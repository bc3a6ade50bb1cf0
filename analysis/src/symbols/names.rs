//! Names of an address.

use std::fmt;

/// Names at an address: the function, then the functions inlined there, outermost first. Empty if not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(pub Vec<Name>);

/// A function, and its line if lines are requested and known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Demangled.
    pub function: String,
    /// The line of the address.
    pub line: Option<SourceLine>,
}

impl Name {
    /// A function without a known line.
    #[must_use]
    pub fn without_line(function: String) -> Self {
        Self { function, line: None }
    }
}

/// Writes `read_block (disk.c:120)`: only the base name of the path, since the module is displayed beside it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        let Some(SourceLine { file, line }) = &self.line else { return Ok(()) };
        write!(f, " ({}:{line})", file.rsplit('/').next().unwrap_or(file))
    }
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Path on the machine that compiled it; without its start if it is very long.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
}

/// Level of detail of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The function, from symbol tables only: the least work.
    Symbols,
    /// The function and functions inlined there, from DWARF if there is any.
    #[default]
    Inlines,
    /// The same with file and line.
    Lines,
}
