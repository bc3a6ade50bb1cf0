//! The text of `fpprof report --function`. Its JSON is the model itself ([`crate::json::value`]).

use crate::escape::shown;
use crate::figures::{count, nanoseconds, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::callers::{Call, Calls};
use std::io::{self, Write};

/// The most callers and callees listed; the JSON has all.
const MAX_LISTED: usize = 20;
/// Column in which the text after a label starts.
const INDENT: usize = 10;

/// Writes a function's share of all stacks, and how it divides among its callers and its callees.
///
/// # Errors
/// If the writer fails.
pub fn terminal(calls: &Calls, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Paragraph::new("function", INDENT);
    line.part(Tone::Strong, shown(&calls.function)).part(Tone::Dim, format!("· {}", shown(&calls.modules.join(", "))));
    line.write(style, out)?;
    let mut line = Paragraph::new("", INDENT);
    line.part(Tone::Plain, format!("self {}", share(calls.own, calls.all)))
        .part(Tone::Plain, format!("· total {}", share(calls.total, calls.all)))
        .part(Tone::Plain, format!("of {}", amount(calls.all, calls)));
    line.write(style, out)?;
    list("Callers", &calls.callers, calls, style, out)?;
    list("Callees", &calls.callees, calls, style, out)
}

fn list(heading: &str, listed: &[Call], calls: &Calls, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading(&format!("{heading} (shares of the function's total)"), out)?;
    if listed.is_empty() {
        return writeln!(out, "  none");
    }
    let mut table = Table::new(vec![
        Column::right("share"),
        Column::right(if calls.unit == "ns" { "time" } else { "samples" }),
        Column::left("function").shrinking(20),
        Column::left("module").shrinking(10),
    ]);
    for call in listed.iter().take(MAX_LISTED) {
        let function = match &call.function {
            Some(name) => Cell::from(shown(name)),
            None => Cell::new(Tone::Dim, "(none: the stack begins here)"),
        };
        let figures = [share(call.amount, calls.total), amount_cell(call.amount, calls)];
        let mut row: Vec<Cell> = figures.into_iter().map(Cell::from).collect();
        row.extend([function, Cell::new(Tone::Dim, shown(&call.module))]);
        table.row(row);
    }
    table.write(style, out)?;
    match listed.len().saturating_sub(MAX_LISTED) {
        0 => Ok(()),
        rest => writeln!(out, "  … and {rest} more with --json"),
    }
}

fn amount(n: u64, calls: &Calls) -> String {
    if calls.unit == "ns" { amount_cell(n, calls) } else { format!("{} samples", count(n)) }
}

fn amount_cell(n: u64, calls: &Calls) -> String {
    if calls.unit == "ns" { nanoseconds(n as f64) } else { count(n) }
}
