//! The items every architecture defines.

use gimli::{CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression, UnwindSection};

/// Reads sections.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// What a frame-pointer walk that starts at an instruction with this row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Finds the caller; an ordinary frame.
    Framed,
    /// Finds the caller; a frame with a realigned stack.
    Realigned,
    /// Ends correctly: there is no caller.
    Root,
    /// The caller's frame pointer was just pushed, as at the start of a frame. If the frame is set up next, the
    /// register still belongs to the caller; otherwise it is a saved register like any other.
    Pushed,
    /// Skips the caller.
    DropsCaller,
    /// Breaks.
    Breaks,
    /// A linkage stub; skips the caller.
    Stub,
}

/// A row, with access to its expressions.
pub(crate) struct Row<'r, 's, S> {
    pub(crate) row: &'r gimli::UnwindTableRow<usize>,
    pub(crate) section: &'s S,
}

impl<'a, S: UnwindSection<Reader<'a>>> Row<'_, '_, S> {
    /// The CFA as register and offset.
    pub(crate) fn cfa(&self) -> Option<(Register, i64)> {
        match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some((*register, *offset)),
            CfaRule::Expression(_) => None,
        }
    }

    /// The bytes of the CFA's expression.
    pub(crate) fn cfa_expression(&self) -> Option<&'a [u8]> {
        match self.row.cfa() {
            CfaRule::RegisterAndOffset { .. } => None,
            CfaRule::Expression(expression) => self.bytes(*expression),
        }
    }

    /// The rule of a register; `None` if it has none.
    pub(crate) fn rule(&self, register: Register) -> Option<RegisterRule<usize>> {
        self.row.register(register)
    }

    /// The slot of a register, relative to the CFA.
    pub(crate) fn saved_at(&self, register: Register) -> Option<i64> {
        match self.rule(register) {
            Some(RegisterRule::Offset(offset)) => Some(offset),
            _ => None,
        }
    }

    /// The bytes of an expression.
    pub(crate) fn bytes(&self, expression: UnwindExpression<usize>) -> Option<&'a [u8]> {
        let expression = expression.get(self.section).ok()?;
        Some(expression.0.slice())
    }
}

/// Whether a function contains a call, judged from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// It calls.
    Yes,
    /// It does not.
    No,
    /// The bytes alone do not decide.
    Unclear,
}

/// What is at the target address of a possible call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The start of a function, or a linkage stub.
    Start,
    /// Other code.
    Code,
    /// Data that pointers can be read from.
    Data,
    /// Not part of this file.
    Nothing,
}

/// Knows what is at the addresses of a file.
pub(crate) trait Context {
    /// What is at an address.
    fn at(&self, svma: u64) -> Target;
}

/// Describes an architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// The stack pointer.
    pub(crate) sp: Register,
    /// The CFA at a function's first instruction, relative to the stack pointer.
    pub(crate) entry_cfa: i64,
    /// Callee-saved registers other than the frame pointer.
    pub(crate) others: &'static [u16],
    /// Size of an address in bytes.
    pub(crate) word_bytes: u8,
    /// Bytes of code to read beyond the window, so that no instruction is cut.
    pub(crate) longest_call: usize,
}
