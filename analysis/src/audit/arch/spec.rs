//! The items every architecture defines.

use gimli::{CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression, UnwindSection};

/// How sections are read.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// What a frame-pointer walk that starts in a row's bytes does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Right, with a plain frame.
    Framed,
    /// Right, with a realigned stack.
    Realigned,
    /// Right, because there is no caller.
    Root,
    /// The caller's frame pointer was just pushed where a frame begins. If the frame is set up next, the register still
    /// belongs to the caller; else it is a saved register like any other.
    Pushed,
    /// Skips the caller.
    DropsCaller,
    /// Breaks.
    Breaks,
    /// A linkage stub; skips the caller.
    Stub,
}

/// A row, with its expressions at hand.
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

    /// The rule of a register; `None` when no instruction named it.
    pub(crate) fn rule(&self, register: Register) -> Option<RegisterRule<usize>> {
        self.row.register(register)
    }

    /// Where a register is saved, relative to the CFA.
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

/// Whether a function calls, from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The bytes alone do not tell.
    Unclear,
}

/// What lies at an address a call may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The start of a function, or a linkage stub.
    Start,
    /// Other code.
    Code,
    /// Data that pointers can be read from.
    Data,
    /// Nothing of this file.
    Nothing,
}

/// What is known about addresses of a file.
pub(crate) trait Context {
    /// What lies there.
    fn at(&self, svma: u64) -> Target;
}

/// The facts of an architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// The stack pointer.
    pub(crate) sp: Register,
    /// The CFA at a function's first instruction, relative to the stack pointer.
    pub(crate) entry_cfa: i64,
    /// Callee-saved registers beside the frame pointer.
    pub(crate) others: &'static [u16],
    /// Bytes of an address.
    pub(crate) word_bytes: u8,
    /// Bytes by which code is read beyond the window, so that no instruction is cut.
    pub(crate) longest_call: usize,
}
