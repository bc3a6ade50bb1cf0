//! The text of `fpprof report`.

use super::closing::{blocked, waits_line};
use super::paint::INDENT;
use super::strategies::{processes, strategies};
use super::{Cell, Closing, Column, Paragraph, Style, Table, Tone, closing};
use crate::agreement::pairs;
use crate::escape::shown;
use crate::figures::{count, plural, processors, seconds, share};
use fpprof_analysis::summary::Summary;
use std::io::{self, Write};

/// The most functions listed; the JSON has more.
const MAX_HOTTEST: usize = 20;

/// Writes the summary of a recording: the hottest functions, what was recorded, balance, volume, own cost, quality by
/// strategy and by process, how strategies agree, what chunks of other sizes would have given, and every warning.
///
/// # Errors
/// If the writer fails.
pub fn summary(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    hottest(summary, style, out)?;
    style.heading("Recording", out)?;
    recorded(summary, style, out)?;
    closing(&Closing::from(summary), style, out)?;
    summary.waits.as_ref().map_or(Ok(()), |waits| waits_line(waits, style, out))?;
    strategies(summary, style, out)?;
    processes(summary, style, out)?;
    pairs(&summary.agreements, style, out)?;
    super::chunks::chunks(summary, style, out)?;
    warnings(summary, style, out)
}

fn recorded(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let environment = &summary.environment;
    let mut line = Paragraph::new("target", INDENT);
    line.part(Tone::Strong, shown(&environment.target))
        .part(Tone::Plain, format!("· {} in {}", amount(summary), seconds(summary.duration_s)))
        .part(Tone::Plain, format!("· {}", shown(&environment.mode)))
        .part(Tone::Plain, format!("· {} {}", shown(&environment.event), shown(&environment.rate)))
        .part(Tone::Plain, format!("· {}", shown(&environment.collector)));
    line.write(style, out)?;
    if let Some(words) = environment.times() {
        let mut line = Paragraph::new("times", INDENT);
        line.words(Tone::Plain, &words);
        line.write(style, out)?;
    }
    let mut line = Paragraph::new("on", INDENT);
    line.part(Tone::Plain, processors(environment.cpus, &shown(&environment.cpu_model)))
        .part(Tone::Plain, format!("· Linux {}", shown(&environment.kernel)));
    if !environment.distribution.is_empty() {
        line.part(Tone::Plain, format!("· {}", shown(&environment.distribution)));
    }
    line.write(style, out)?;
    if let Some(filtered) = &summary.filtered {
        let mut line = Paragraph::new("filter", INDENT);
        let all = share(filtered.samples, summary.recorded);
        line.part(Tone::Strong, shown(&filtered.filter))
            .part(Tone::Plain, format!("· {} samples ({all})", count(filtered.samples)))
            .part(Tone::Plain, "· functions, stacks and chunk sizes are of these only");
        line.write(style, out)?;
    }
    let mut line = Paragraph::new("ended", INDENT);
    let tone = if summary.ended_in_order { Tone::Plain } else { Tone::Bad };
    line.words(tone, &shown(&summary.ended));
    line.write(style, out)
}

/// How much was recorded: samples, or for waits, time.
fn amount(summary: &Summary) -> String {
    match summary.blocked_ns {
        None => format!("{} sample{}", count(summary.recorded), plural(summary.recorded)),
        Some(ns) => {
            format!("{} wait{}, blocked for {}", count(summary.recorded), plural(summary.recorded), blocked(ns))
        }
    }
}

fn hottest(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if summary.hottest.is_empty() {
        return Ok(());
    }
    let heading = if summary.blocked_ns.is_some() { "Blocked longest" } else { "Hottest functions" };
    let whose = match summary.strategies.len() {
        0 | 1 => String::new(),
        _ => format!(" ({} stacks)", shown(&summary.hottest_strategy)),
    };
    style.heading(&format!("{heading}{whose}"), out)?;
    let (listed, rest) = summary.hottest.split_at(summary.hottest.len().min(MAX_HOTTEST));
    let mut columns = vec![Column::right("self"), Column::right("total")];
    columns.extend(summary.blocked_ns.map(|_| Column::right("time")));
    columns.extend([Column::left("function").shrinking(20), Column::left("module").shrinking(10)]);
    let mut table = Table::new(columns);
    for function in listed {
        // For waits all three figures are times.
        let (own, total) = match function.self_blocked_ns.zip(function.total_blocked_ns) {
            Some((own, total)) => (own, total),
            None => (function.self_samples, function.total_samples),
        };
        let all = summary.shown_amount();
        let mut row: Vec<Cell> = vec![share(own, all).into(), share(total, all).into()];
        row.extend(summary.blocked_ns.map(|_| blocked(total).into()));
        row.extend([shown(&function.name).into(), Cell::new(Tone::Dim, shown(&function.module))]);
        table.row(row);
    }
    table.write(style, out)?;
    if !rest.is_empty() {
        writeln!(out, "  … and {} more with --json", rest.len())?;
    }
    Ok(())
}

fn warnings(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
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
