//! Explains a row in readable form.

use crate::core_dump::arch_name;
use crate::modules::LoneModule;
use fpprof_unwind::{Arch, CfaRule, Error, ExpressionBytes, RegisterRule, Row, SectionKind, row_at};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::ops::Range;

/// A row in readable form. Field names are the keys of `cfi --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRow {
    /// The requested address.
    pub svma: u64,
    /// The function and the offset in it, if it has a name.
    pub place: Option<String>,
    /// `x86-64`, `i386` or `aarch64`.
    pub arch: String,
    /// `.eh_frame` or `.debug_frame`.
    pub section: String,
    /// First SVMA of the FDE.
    pub entry_start: u64,
    /// First SVMA above the FDE.
    pub entry_end: u64,
    /// First SVMA of the row.
    pub row_start: u64,
    /// First SVMA above the row.
    pub row_end: u64,
    /// The frame is a signal frame: its caller was interrupted, so the caller's address is looked up unchanged.
    pub is_signal_frame: bool,
    /// The rule for the canonical frame address.
    pub cfa: String,
    /// The rule for the return address; if undefined, there is no caller.
    pub return_address: String,
    /// The rules for other registers; those without a rule are left out.
    pub registers: Vec<RegisterRow>,
    /// Bytes of arguments on the stack (`DW_CFA_GNU_args_size`).
    pub args_size: u64,
    /// The row in readelf's format.
    pub readelf: String,
}

/// The rule for a register of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterRow {
    /// Its name.
    pub name: String,
    /// The rule in readable form.
    pub rule: String,
}

/// Explains the row that covers an SVMA.
///
/// # Errors
/// [`Error::NoRow`] if no row covers it; otherwise what is wrong with the FDE.
pub fn explain(file: &LoneModule, svma: u64) -> Result<ExplainedRow, Error> {
    let row = row_at(file.module(), svma)?;
    let return_address = row.return_address_register;
    let registers = row.registers.iter().filter(|&&(register, _)| register != return_address);
    let function = file.function_at(svma);
    let place = function.map(|function| match svma.wrapping_sub(function.svma) {
        0 => function.name,
        offset => format!("{}+{offset:#x}", function.name),
    });
    Ok(ExplainedRow {
        svma,
        place,
        arch: arch_name(row.arch).to_owned(),
        section: match row.section {
            SectionKind::EhFrame => ".eh_frame",
            SectionKind::DebugFrame => ".debug_frame",
        }
        .to_owned(),
        entry_start: row.entry_range.start,
        entry_end: row.entry_range.end,
        row_start: row.range.start,
        row_end: row.range.end,
        is_signal_frame: row.is_signal_frame,
        cfa: cfa(&row),
        return_address: match row.register(return_address) {
            // With a link register, no rule means that the return address is still in it.
            RegisterRule::Unspecified if row.arch == Arch::Aarch64 => {
                format!("still in {}", name(&row, return_address))
            }
            how => rule(&row, how),
        },
        registers: registers
            .map(|&(register, how)| RegisterRow { name: name(&row, register), rule: rule(&row, how) })
            .collect(),
        args_size: row.args_size,
        readelf: row.to_string(),
    })
}

/// Describes the call frame information of a file that has none for the requested address.
#[must_use]
pub fn describe_coverage(file: &LoneModule) -> String {
    let mut all: Option<Range<u64>> = None;
    file.module().for_each_range(|range| {
        let known = all.take().unwrap_or_else(|| range.clone());
        all = Some(known.start.min(range.start)..known.end.max(range.end));
    });
    match all {
        _ if file.image().segments.is_empty() => "this is an unlinked object file, which has no addresses".to_owned(),
        Some(range) => format!("the file's call frame information covers {:#x} to {:#x}", range.start, range.end),
        None if !file.has_sections() => {
            "the file has no section headers: it is truncated, a core dump, or they were stripped".to_owned()
        }
        None => "neither the file nor its debug file has any".to_owned(),
    }
}

fn cfa(row: &Row) -> String {
    match row.cfa {
        CfaRule::None => "unknown: the entry is corrupt".to_owned(),
        CfaRule::RegisterOffset { register, offset } => format!("{}{offset:+}", name(row, register)),
        CfaRule::AtRegister { register, offset } => format!("the word at {}{offset:+}", name(row, register)),
        CfaRule::Expression(bytes) => format!("result of expression {}", expression(row, bytes)),
    }
}

fn rule(row: &Row, rule: RegisterRule) -> String {
    match rule {
        RegisterRule::Unspecified => "unknown".to_owned(),
        RegisterRule::Undefined => "undefined".to_owned(),
        RegisterRule::SameValue => "unchanged".to_owned(),
        RegisterRule::Offset(offset) => format!("saved at CFA{offset:+}"),
        RegisterRule::ValOffset(offset) => format!("CFA{offset:+}"),
        RegisterRule::AtRegister { register, offset } => format!("saved at {}{offset:+}", name(row, register)),
        RegisterRule::Register(register) => format!("in {}", name(row, register)),
        RegisterRule::Expression(bytes) => format!("saved at the result of expression {}", expression(row, bytes)),
        RegisterRule::ValExpression(bytes) => format!("result of expression {}", expression(row, bytes)),
    }
}

fn name(row: &Row, register: u16) -> String {
    row.arch.register_name(register).map_or_else(|| format!("r{register}"), str::to_owned)
}

fn expression(row: &Row, bytes: ExpressionBytes) -> String {
    let mut text = String::new();
    for byte in row.expression(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
