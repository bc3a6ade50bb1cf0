//! One row of the call frame information table.

use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;

use super::program::{Program, Scratch, Sections, State};
use super::rules::{CfaRule, ExpressionBytes, RegisterRule};
use crate::arch::Arch;
use crate::error::Error;
use crate::module::{Module, SectionKind};

/// The row of call frame information that covers an address. [`core::fmt::Display`] writes it as readelf does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The architecture of the code.
    pub arch: Arch,
    /// SVMAs the row covers.
    pub range: Range<u64>,
    /// SVMAs the FDE covers.
    pub entry_range: Range<u64>,
    /// `.eh_frame` or `.debug_frame`.
    pub section: SectionKind,
    /// The frame is a signal frame: its caller was interrupted instead of calling.
    pub is_signal_frame: bool,
    /// DWARF number of the return address column.
    pub return_address_register: u16,
    /// How to compute the CFA.
    pub cfa: CfaRule,
    /// How to recover registers, by DWARF number; registers without a rule are left out.
    pub registers: Vec<(u16, RegisterRule)>,
    /// `DW_CFA_GNU_args_size`, bytes.
    pub args_size: u64,
    /// The bytes of the section, for expressions.
    pub(super) bytes: Bytes,
}

impl Row {
    /// The rule of a register.
    #[must_use]
    pub fn register(&self, register: u16) -> RegisterRule {
        match self.registers.binary_search_by_key(&register, |&(register, _)| register) {
            Ok(index) => self.registers.get(index).map_or(RegisterRule::Unspecified, |&(_, rule)| rule),
            Err(_) => RegisterRule::Unspecified,
        }
    }

    /// The bytes of one of this row's expressions.
    #[must_use]
    pub fn expression(&self, expression: ExpressionBytes) -> &[u8] {
        expression.of(&self.bytes).unwrap_or(&[])
    }
}

/// The row that covers an SVMA, as the unwinder would use it.
///
/// # Errors
/// [`Error::NoRow`] if no row covers it; otherwise what is wrong with the entry.
pub fn row_at(module: &Module, svma: u64) -> Result<Row, Error> {
    let mut scratch = Scratch::new();
    let fde = module.find(svma)?;
    let sections = Sections::new(module);
    let mut program = Program::new(module, &sections, &fde, &mut scratch)?;
    while let Some(range) = program.next_row()? {
        if range.contains(&svma) {
            let state: &State = program.state();
            let named = (0u16..).zip(&state.rules).filter(|(_, rule)| **rule != RegisterRule::Unspecified);
            return Ok(Row {
                arch: module.arch(),
                range,
                entry_range: fde.range(),
                section: fde.kind,
                is_signal_frame: fde.is_signal_frame(),
                return_address_register: fde.entry.cie().return_address_register().0,
                cfa: state.cfa,
                registers: named.map(|(register, rule)| (register, *rule)).collect(),
                args_size: state.args_size,
                bytes: module.section(fde.kind).map_or_else(Bytes::new, |section| section.bytes.clone()),
            });
        }
    }
    Err(Error::NoRow(svma))
}
