//! The rules of a row: how to compute the CFA and the caller's registers.

/// The location of an expression in its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpressionBytes {
    /// Offset of the first byte.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl ExpressionBytes {
    /// The expression itself.
    pub(crate) fn of<'a>(&self, section: &'a [u8]) -> Option<&'a [u8]> {
        let offset = usize::try_from(self.offset).ok()?;
        section.get(offset..)?.get(..usize::try_from(self.len).ok()?)
    }
}

/// How to compute the CFA.
///
/// # Sources
/// DWARF 5 §6.4.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CfaRule {
    /// Not defined yet.
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
    /// CFA = the result of the expression.
    Expression(ExpressionBytes),
}

/// How to recover the caller's value of a register.
///
/// # Sources
/// DWARF 5 §6.4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterRule {
    /// No rule: a callee-saved register keeps its value, any other is lost.
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
    /// The value is in memory at the address the expression computes.
    Expression(ExpressionBytes),
    /// The value is the result of the expression.
    ValExpression(ExpressionBytes),
}
