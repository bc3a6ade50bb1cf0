//! The experiment in GitHub's Markdown.

use super::cells::{Figure, Line, Sheet, note_letter, shares};
use super::link::beside;
use super::verdict::{RULE, findings};
use super::words::{environment, method};
use crate::escape::shown;
use crate::finding::{Finding, Piece};
use fpprof_analysis::experiment::Experiment;
use std::io::{self, Write};

/// Writes title, verdict, table, stacks by process, notes, environment and method.
///
/// # Errors
/// If the writer fails.
pub fn markdown(experiment: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    let sheet = Sheet::new(experiment);
    writeln!(out, "# What each mode costs and gets wrong\n")?;
    writeln!(out, "Command: {}\n", text(&experiment.command.join(" ")))?;
    for (label, value) in environment(experiment) {
        writeln!(out, "- {label}: {}", text(&value))?;
    }
    writeln!(out, "\n## Verdict\n")?;
    for finding in findings(experiment) {
        writeln!(out, "- {}", sentence(&finding))?;
    }
    writeln!(out, "\nRule: {RULE}\n\n## Cost and stacks\n")?;
    main_table(&sheet, out)?;
    writeln!(out, "\n## Stacks by process\n")?;
    stacks_table(&sheet, out)?;
    notes(&sheet, experiment, out)?;
    writeln!(out, "\n## Method\n\n{}", text(&method(experiment)))
}

fn main_table(sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    let titles = [
        "mode",
        "bytes",
        "bytes/sample",
        "× fp",
        "samples: fired = recorded + lost + skipped",
        "gaps",
        "collector CPU",
        "BPF/tick",
        &format!("{} against none", text(&sheet.metric)),
        "attributed",
        "complete / truncated / broken",
        "flame graph",
    ];
    writeln!(out, "| {} |", titles.join(" | "))?;
    writeln!(out, "|:--|--:|--:|--:|:--|--:|--:|--:|:--|:--|:--|:--|")?;
    for line in &sheet.lines {
        let mut cells = vec![text(&line.mode)];
        let figures = [&line.bytes, &line.bytes_per_sample, &line.times_fp, &line.samples, &line.lost_chunks];
        cells.extend(figures.into_iter().map(figure));
        cells.push(figure(&line.cpu));
        cells.push(figure(&line.bpf));
        cells.push(figure(&line.metric));
        cells.push(figure(&line.attributed));
        cells.push(ends(line));
        cells.push(flame_graphs(line));
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

fn stacks_table(sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| mode | strategy | process | samples | complete | truncated | broken | reasons |")?;
    writeln!(out, "|:--|:--|:--|--:|--:|--:|--:|:--|")?;
    for line in &sheet.lines {
        for strategy in line.stacks.iter().flatten() {
            for process in &strategy.processes {
                let [complete, truncated, broken] = shares(&process.ends);
                let samples = crate::figures::count(process.ends.samples);
                let reasons = process.reasons.iter().map(|reason| text(reason)).collect::<Vec<_>>().join(", ");
                let (mode, label, name) = (text(&line.mode), text(&strategy.label), text(&process.name));
                writeln!(
                    out,
                    "| {mode} | {label} | {name} | {samples} | {complete} | {truncated} | {broken} | {reasons} |"
                )?;
            }
        }
    }
    Ok(())
}

fn figure(figure: &Figure) -> String {
    let mut cell = text(&figure.text);
    if let Some(note) = figure.note {
        cell.push_str(&format!(" <sup>{}</sup>", note_letter(note)));
    }
    if !figure.detail.is_empty() {
        cell.push_str(&format!("<br>{}", text(&figure.detail)));
    }
    cell
}

fn ends(line: &Line) -> String {
    match &line.stacks {
        Err(missing) => figure(missing),
        Ok(strategies) => strategies
            .iter()
            .filter_map(|strategy| {
                let all = strategy.processes.first()?;
                Some(format!("{}: {}", text(&strategy.label), shares(&all.ends).join(" / ")))
            })
            .collect::<Vec<_>>()
            .join("<br>"),
    }
}

fn flame_graphs(line: &Line) -> String {
    let strategies = line.stacks.iter().flatten();
    strategies
        .map(|strategy| match &strategy.flame_graph {
            Ok(file) => format!("[{}]({})", text(&strategy.label), beside(file)),
            Err(missing) => figure(missing),
        })
        .collect::<Vec<_>>()
        .join("<br>")
}

fn notes(sheet: &Sheet, experiment: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    if sheet.notes.is_empty() && experiment.notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n## Notes\n")?;
    for (index, note) in sheet.notes.iter().enumerate() {
        writeln!(out, "- <sup>{}</sup> {}", note_letter(index), text(note))?;
    }
    experiment.notes.iter().try_for_each(|note| writeln!(out, "- {}", text(note)))
}

fn sentence(finding: &Finding) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Words(words) => text(words),
        Piece::Name(name) => format!("**{}**", text(name)),
    };
    finding.pieces.iter().map(piece).collect()
}

/// Escapes `raw` so that Markdown shows it as plain text, in table cells too.
///
/// # Sources
/// `CommonMark` 0.31 §2.4: a backslash before ASCII punctuation makes it literal; GFM §4.10 for `|` in cells.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() + 8);
    for c in shown(raw).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '|' | '~' | '#' | '$' | '!') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
