//! The text of `fpprof report`.

use super::closing::{INDENT, plural};
use super::{Cell, Closing, Column, Paragraph, Style, Table, Tone, closing};
use crate::escape::shown;
use crate::figures::{count, percent, seconds, share};
use fpprof_analysis::summary::{ProcessSummary, Quality, Summary};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Functions that are listed; the JSON has more.
const MAX_HOTTEST: usize = 20;

/// Processes listed; the rest is counted in one line.
const MAX_PROCESSES: usize = 12;

/// Reasons named under a strategy; the rest is counted.
const MAX_REASONS: usize = 4;

/// Writes what a recording says: what was recorded, balance, volume, own cost, quality by strategy and by process, the
/// hottest functions, and every warning.
///
/// # Errors
/// Those of the writer.
pub fn summary(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    recorded(summary, style, out)?;
    closing(&Closing::from(summary), style, out)?;
    strategies(summary, style, out)?;
    processes(summary, style, out)?;
    super::chunks::chunks(summary, style, out)?;
    hottest(summary, style, out)?;
    warnings(summary, style, out)
}

fn recorded(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    let environment = &summary.environment;
    let mut line = Paragraph::new("recorded", INDENT);
    line.part(Tone::Strong, shown(&environment.target))
        .part(Tone::Plain, format!("· {} samples in {}", count(summary.recorded), seconds(summary.duration_s)))
        .part(Tone::Plain, format!("· {}", shown(&environment.mode)))
        .part(Tone::Plain, format!("· {} {}", shown(&environment.event), shown(&environment.rate)))
        .part(Tone::Plain, format!("· {}", shown(&environment.collector)));
    line.write(style, out)?;
    let mut line = Paragraph::new("on", INDENT);
    let cpus = environment.cpus;
    line.part(Tone::Plain, format!("{cpus} × {}", shown(&environment.cpu_model)))
        .part(Tone::Plain, format!("· Linux {}", shown(&environment.kernel)));
    if !environment.distribution.is_empty() {
        line.part(Tone::Plain, format!("· {}", shown(&environment.distribution)));
    }
    line.write(style, out)?;
    let mut line = Paragraph::new("ended", INDENT);
    let tone = if summary.ended_in_order { Tone::Plain } else { Tone::Bad };
    line.words(tone, &shown(&summary.ended));
    line.write(style, out)
}

fn strategies(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    if summary.strategies.is_empty() {
        return Ok(());
    }
    style.heading("Stacks by strategy", out)?;
    let mut table = Table::new(vec![
        Column::left("strategy").shrinking(8),
        Column::right("samples"),
        Column::right("complete"),
        Column::right("truncated"),
        Column::right("broken"),
        Column::right("frames/stack"),
    ]);
    for (name, quality) in &summary.strategies {
        let mut cells = vec![Cell::new(Tone::Strong, shown(name))];
        cells.extend(quality_cells(quality));
        cells.push(frames_per_stack(quality).into());
        table.row(cells);
        for note in reasons(quality) {
            table.note(note);
        }
    }
    table.write(style, out)
}

fn processes(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    if summary.processes.is_empty() {
        return Ok(());
    }
    style.heading("Processes", out)?;
    let mut table = Table::new(vec![
        Column::right("pid"),
        Column::left("name").shrinking(8),
        Column::right("share"),
        Column::left("strategy").shrinking(8),
        Column::right("samples"),
        Column::right("complete"),
        Column::right("truncated"),
        Column::right("broken"),
    ]);
    for process in summary.processes.iter().take(MAX_PROCESSES) {
        process_rows(process, summary.recorded, &mut table);
    }
    table.write(style, out)?;
    let rest = summary.processes.get(MAX_PROCESSES..).unwrap_or_default();
    if !rest.is_empty() {
        let samples = rest.iter().fold(0_u64, |sum, process| sum.saturating_add(process.samples));
        let more = count(u64::try_from(rest.len()).unwrap_or(u64::MAX));
        writeln!(out, "  and {more} more with {} samples", count(samples))?;
    }
    Ok(())
}

fn process_rows(process: &ProcessSummary, recorded: u64, table: &mut Table) {
    let mut head =
        vec![process.pid.to_string().into(), shown(&process.comm).into(), share(process.samples, recorded).into()];
    for (name, quality) in &process.strategies {
        let mut cells = std::mem::replace(&mut head, vec![Cell::default(); 3]);
        cells.push(shown(name).into());
        cells.extend(quality_cells(quality));
        table.row(cells);
    }
    if process.strategies.is_empty() {
        table.row(head);
    }
}

/// Samples, complete, truncated, broken.
fn quality_cells(quality: &Quality) -> [Cell; 4] {
    let (truncated, broken) = (total(&quality.truncated), total(&quality.broken));
    let samples = quality.samples;
    let complete = percent(quality.complete, samples);
    let tone = match complete {
        _ if samples == 0 => Tone::Plain,
        good if good >= 99.0 => Tone::Good,
        fair if fair >= 90.0 => Tone::Warn,
        _ => Tone::Bad,
    };
    let none = |n: u64| if n == 0 { Tone::Dim } else { Tone::Plain };
    [
        count(samples).into(),
        Cell::new(tone, share(quality.complete, samples)),
        Cell::new(none(truncated), share(truncated, samples)),
        Cell::new(none(broken), share(broken, samples)),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn frames_per_stack(quality: &Quality) -> String {
    if quality.samples == 0 {
        return "–".to_owned();
    }
    format!("{:.1}", quality.frames as f64 / quality.samples as f64)
}

/// The top reasons of a strategy, one line for each class, and the suspects of skipped callers.
fn reasons(quality: &Quality) -> Vec<Paragraph> {
    let mut notes = Vec::new();
    let mut doubt = 0;
    for (class, counts) in [("truncated", &quality.truncated), ("broken", &quality.broken)] {
        if total(counts) > 0 {
            notes.push(reason_line(class, counts, quality.samples));
        }
        doubt |= total(counts);
    }
    if quality.leaf_skip_suspects > 0 {
        let mut note = Paragraph::new("", 4);
        let n = quality.leaf_skip_suspects;
        let text = format!(
            "leaf_skip_suspect in {} ({}): the leaf's caller is missing, whatever the end",
            share(n, quality.samples),
            count(n)
        );
        note.words(Tone::Dim, &text);
        notes.push(note);
    }
    let sum = quality.complete.saturating_add(total(&quality.truncated)).saturating_add(total(&quality.broken));
    if sum != quality.samples || (doubt == 0 && quality.complete != quality.samples) {
        let mut note = Paragraph::new("", 4);
        let text = format!("ends add up to {}, not to the {} samples", count(sum), count(quality.samples));
        note.words(Tone::Bad, &text);
        notes.push(note);
    }
    notes
}

fn reason_line(class: &str, counts: &BTreeMap<String, u64>, samples: u64) -> Paragraph {
    let mut sorted: Vec<_> = counts.iter().filter(|&(_, &n)| n > 0).collect();
    // Most frequent first; names break ties so that the order never depends on anything else.
    sorted.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut note = Paragraph::new("", 4);
    note.part(Tone::Dim, class);
    let last = sorted.len().min(MAX_REASONS);
    for (index, &(reason, &n)) in sorted.iter().take(MAX_REASONS).enumerate() {
        let comma = if index + 1 < last || sorted.len() > MAX_REASONS { "," } else { "" };
        note.part(Tone::Dim, format!("{} {} ({}){comma}", shown(reason), share(n, samples), count(n)));
    }
    let rest = sorted.get(MAX_REASONS..).unwrap_or_default();
    if !rest.is_empty() {
        let n = rest.iter().fold(0_u64, |sum, &(_, &n)| sum.saturating_add(n));
        note.part(Tone::Dim, format!("{} more {} ({})", rest.len(), share(n, samples), count(n)));
    }
    note
}

fn hottest(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    if summary.hottest.is_empty() {
        return Ok(());
    }
    style.heading("Hottest functions", out)?;
    let (listed, rest) = summary.hottest.split_at(summary.hottest.len().min(MAX_HOTTEST));
    let mut table = Table::new(vec![
        Column::right("self"),
        Column::right("total"),
        Column::left("function").shrinking(20),
        Column::left("module").shrinking(10),
    ]);
    for function in listed {
        table.row(vec![
            share(function.self_samples, summary.recorded).into(),
            share(function.total_samples, summary.recorded).into(),
            shown(&function.name).into(),
            Cell::new(Tone::Dim, shown(&function.module)),
        ]);
    }
    table.write(style, out)?;
    if !rest.is_empty() {
        writeln!(out, "  … and {} more with --json", rest.len())?;
    }
    Ok(())
}

fn warnings(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    let n = summary.damage.len().saturating_add(summary.warnings.len());
    if n == 0 {
        return Ok(());
    }
    let n = u64::try_from(n).unwrap_or(u64::MAX);
    style.heading(&format!("{} warning{}", count(n), plural(n)), out)?;
    for (tone, text) in summary
        .damage
        .iter()
        .map(|text| (Tone::Bad, text))
        .chain(summary.warnings.iter().map(|text| (Tone::Warn, text)))
    {
        let mut line = Paragraph::new("  !", 4);
        line.words(tone, &shown(text));
        line.write(style, out)?;
    }
    Ok(())
}

fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().fold(0, |sum, &n| sum.saturating_add(n))
}
