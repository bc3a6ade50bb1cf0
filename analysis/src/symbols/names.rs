//! What is said of an address.

use std::fmt;

/// Names at an address: the function first, then what is inlined there, outermost first. Empty when nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(pub Vec<Name>);

/// A function, and the line of it, if lines are asked for and known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Demangled.
    pub function: String,
    /// The line that the address belongs to.
    pub line: Option<SourceLine>,
}

impl Name {
    /// A function of which no line is known.
    #[must_use]
    pub fn without_line(function: String) -> Self {
        Self { function, line: None }
    }
}

/// `read_block (disk.c:120)`: the last part of the path is what a person looks for, and the module stands beside the name.
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
    /// Path on the machine that compiled it; without its start where it is very long.
    pub file: String,
    /// Number, from 1.
    pub line: u32,
}

/// How much is said of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The function, by the symbol tables alone: the least work.
    Symbols,
    /// The function and what is inlined there, by DWARF where there is any.
    #[default]
    Inlines,
    /// The same with file and line.
    Lines,
}
