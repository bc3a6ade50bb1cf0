//! The text of `fpprof diff`.

use super::examples::examples;
use super::words::{name, short, tone, verdict_name};
use crate::escape::shown;
use crate::figures::{count, plural, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::accuracy::{Agreement, DisputedFunction, Relation};
use fpprof_analysis::agreement::{Disagreement, EvidenceVerdict};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Column in which the text after a label starts.
const INDENT: usize = 10;
/// The most functions and modules listed.
const MAX_FUNCTIONS: usize = 12;

/// Writes how often two strategies agree, how their stacks differ and end, after which functions they first differ, and
/// examples.
///
/// # Errors
/// If the writer fails.
pub fn terminal(report: &Disagreement, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    head(report, style, out)?;
    reasons(report, style, out)?;
    let Agreement { functions: list, modules, samples, .. } = &report.agreement;
    functions("Functions whose caller they disagree on", list, *samples, MAX_FUNCTIONS, style, out)?;
    if modules.len() > 1 {
        functions("By file", modules, *samples, MAX_FUNCTIONS, style, out)?;
    }
    examples(report, style, out)?;
    style.warnings(&report.warnings, out)
}

fn head(report: &Disagreement, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let agreement = &report.agreement;
    let mut line = Paragraph::new("compared", INDENT);
    line.part(Tone::Strong, format!("{} with {}", shown(&agreement.other), shown(&agreement.reference)));
    line.part(
        Tone::Plain,
        format!("· {} sample{} with a user stack", count(agreement.samples), plural(agreement.samples)),
    );
    line.write(style, out)?;
    let mut line = Paragraph::new("same", INDENT);
    let tone = if agreement.same == agreement.samples { Tone::Good } else { Tone::Strong };
    line.part(tone, share(agreement.same, agreement.samples))
        .part(Tone::Plain, format!("· {} of {}", count(agreement.same), count(agreement.samples)));
    let both = share(agreement.both_complete_same, agreement.both_complete);
    line.part(Tone::Plain, format!("· where both are complete {both}"));
    line.part(Tone::Dim, format!("({} of {})", count(agreement.both_complete_same), count(agreement.both_complete)));
    line.write(style, out)?;
    let mut line = Paragraph::new("frames", INDENT);
    let frames = &agreement.frames;
    line.part(Tone::Plain, format!("{} same", count(frames.n_same)));
    for (n, words) in [
        (frames.n_missing, "missing"),
        (frames.n_not_reached, "not reached"),
        (frames.n_wrong, "wrong"),
        (frames.n_beyond, "beyond the reference"),
    ] {
        if n > 0 {
            line.part(Tone::Plain, format!("· {} {words}", count(n)));
        }
    }
    line.write(style, out)?;
    if report.verdicts.is_empty() {
        return Ok(());
    }
    let mut line = Paragraph::new("right", INDENT);
    line.words(Tone::Plain, &verdicts(&report.verdicts, report));
    line.words(Tone::Dim, "(by the instructions before the return addresses)");
    line.write(style, out)
}

fn reasons(report: &Disagreement, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("By relation and by how the stacks end", out)?;
    let mut table = Table::new(vec![
        Column::left(""),
        Column::left(&shown(&report.agreement.reference)).shrinking(12),
        Column::left(&shown(&report.agreement.other)).shrinking(12),
        Column::right("samples"),
        Column::right("share"),
        Column::left("right").shrinking(8),
    ]);
    for reason in &report.reasons {
        table.row(vec![
            Cell::new(tone(reason.relation), name(reason.relation)),
            shown(&reason.reference_end).into(),
            shown(&reason.other_end).into(),
            count(reason.samples).into(),
            share(reason.samples, report.agreement.samples).into(),
            Cell::new(Tone::Dim, verdicts(&reason.verdicts, report)),
        ]);
    }
    table.write(style, out)
}

/// Writes functions, or files where no function name is known, by the number of differences attributed to them.
pub(super) fn functions(
    title: &str,
    list: &[DisputedFunction],
    samples: u64,
    max: usize,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    style.heading(title, out)?;
    let is_named = list.iter().any(|function| !function.name.is_empty());
    let seen: Vec<Relation> =
        Relation::ALL.into_iter().filter(|relation| list.iter().any(|f| f.relations.contains_key(relation))).collect();
    let mut columns = if is_named { vec![Column::left("function").shrinking(16)] } else { Vec::new() };
    columns.extend([Column::left("file").shrinking(8), Column::right("samples"), Column::right("share")]);
    columns.extend(seen.iter().map(|&relation| Column::right(short(relation))));
    let mut table = Table::new(columns);
    for function in list.iter().take(max) {
        let mut cells: Vec<Cell> = if is_named { vec![shown(&function.name).into()] } else { Vec::new() };
        cells.extend([
            Cell::new(Tone::Dim, shown(&function.module)),
            count(function.samples).into(),
            share(function.samples, samples).into(),
        ]);
        cells.extend(seen.iter().map(|relation| {
            let n = function.relations.get(relation).copied().unwrap_or(0);
            Cell::new(if n == 0 { Tone::Dim } else { tone(*relation) }, count(n))
        }));
        table.row(cells);
    }
    table.write(style, out)?;
    let n_more = list.len().saturating_sub(max);
    if n_more > 0 { writeln!(out, "  and {n_more} more") } else { Ok(()) }
}

/// `dwarf in 12, undecided in 3`.
fn verdicts(verdicts: &BTreeMap<EvidenceVerdict, u64>, report: &Disagreement) -> String {
    let part = |(&verdict, &n): (&EvidenceVerdict, &u64)| format!("{} in {}", verdict_name(verdict, report), count(n));
    verdicts.iter().map(part).collect::<Vec<_>>().join(", ")
}
