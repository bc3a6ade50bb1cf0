//! The rules of a row: how the CFA and the registers of the caller are found.

/// Where an expression stands in its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpressionBytes {
    /// Offset of the first byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

impl ExpressionBytes {
    /// The expression itself.
    pub(crate) fn of<'a>(&self, section: &'a [u8]) -> Option<&'a [u8]> {
        let offset = usize::try_from(self.offset).ok()?;
        section.get(offset..)?.get(..usize::try_from(self.len).ok()?)
    }
}

/// How the CFA is found.
///
/// # Sources
/// DWARF 5 §6.4.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CfaRule {
    /// No instruction has said it yet.
    None,
    /// CFA = register + offset.
    RegisterOffset {
        /// DWARF number.
        register: u16,
        /// Bytes.
        offset: i64,
    },
    /// CFA = the word in memory at register + offset; not in DWARF, but in `.sframe`.
    AtRegister {
        /// DWARF number.
        register: u16,
        /// Bytes.
        offset: i64,
    },
    /// CFA = what the expression gives.
    Expression(ExpressionBytes),
}

/// How the caller's value of a register is found.
///
/// # Sources
/// DWARF 5 §6.4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterRule {
    /// Nothing is said: a preserved register keeps its value, another is lost.
    Unspecified,
    /// The value is lost; for the return address: there is no caller.
    Undefined,
    /// The value is unchanged.
    SameValue,
    /// The value is in memory at CFA + offset.
    Offset(i64),
    /// The value is CFA + offset.
    ValOffset(i64),
    /// The value is in another register.
    Register(u16),
    /// The value is in memory at register + offset; not in DWARF, but in `.sframe`.
    AtRegister {
        /// DWARF number.
        register: u16,
        /// Bytes.
        offset: i64,
    },
    /// The value is in memory where the expression says.
    Expression(ExpressionBytes),
    /// The value is what the expression gives.
    ValExpression(ExpressionBytes),
}
