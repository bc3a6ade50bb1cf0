//! What is said of an address.

/// Names at an address: the function first, then what is inlined there, outermost first. Empty when nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(pub Vec<String>);

/// How much is said of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The function, by the symbol tables alone: the least work.
    Symbols,
    /// The function and what is inlined there, by DWARF where there is any.
    #[default]
    Inlines,
    /// The same with file and line, as part of the names.
    Lines,
}
