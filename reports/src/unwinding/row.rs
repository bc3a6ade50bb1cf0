//! The text of `fpprof cfi`.

use crate::escape::shown;
use crate::terminal::{Paragraph, Style, Tone};
use fpprof_analysis::cfi::ExplainedRow;
use std::io::{self, Write};

/// Writes a row: its section and place, its address range, and one line per rule.
///
/// # Errors
/// If the writer fails.
pub fn row(row: &ExplainedRow, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let registers = row.registers.iter().map(|register| register.name.len()).max().unwrap_or(0);
    let indent = registers.max("return address".len()) + 2;
    let mut line = |label: &str, tone: Tone, parts: &[&str]| {
        let mut line = Paragraph::new(label, indent);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            line.part(tone, shown(part));
        }
        line.write(style, out)
    };
    let place = row.place.as_deref().unwrap_or("in an unnamed function");
    line("address", Tone::Strong, &[&format!("{:#x}", row.svma), place])?;
    let entry = format!("{:#x}..{:#x}", row.entry_start, row.entry_end);
    let signal = if row.is_signal_frame { "signal frame" } else { "" };
    line("entry", Tone::Plain, &[&entry, "in", &row.section, &row.arch, signal])?;
    line("row", Tone::Plain, &[&format!("{:#x}..{:#x}", row.row_start, row.row_end)])?;
    line("CFA", Tone::Plain, &[&row.cfa])?;
    let end = if row.return_address == "undefined" { "(no caller)" } else { "" };
    line("return address", Tone::Plain, &[&row.return_address, end])?;
    for register in &row.registers {
        line(&shown(&register.name), Tone::Plain, &[&register.rule])?;
    }
    if row.args_size > 0 {
        line("arguments", Tone::Plain, &[&format!("{} bytes on the stack", row.args_size)])?;
    }
    line("as readelf", Tone::Dim, &[&row.readelf])
}
