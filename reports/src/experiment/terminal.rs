//! The experiment as text.

use super::cells::{Figure, Line, Sheet, note_letter, shares};
use super::verdict::{Finding, Judgement, Piece, RULE, findings};
use super::words::{environment, method};
use crate::escape::shown;
use crate::figures::{count, percent};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::experiment::Experiment;
use std::io::{self, Write};

/// Writes verdict, cost table, stacks table, notes and method.
///
/// # Errors
/// Those of the writer.
pub fn terminal(experiment: &Experiment, style: &Style, out: &mut impl Write) -> io::Result<()> {
    let sheet = Sheet::new(experiment);
    let mut line = Paragraph::new("command", 10);
    line.words(Tone::Plain, &shown(&experiment.command.join(" ")));
    line.write(style, out)?;
    let mut line = Paragraph::new("on", 10);
    for (index, part) in environment(experiment).iter().enumerate() {
        line.part(Tone::Plain, format!("{}{}", if index > 0 { "· " } else { "" }, shown(&part.1)));
    }
    line.write(style, out)?;
    style.heading("Cost", out)?;
    cost(&sheet).write(style, out)?;
    style.heading("Stacks of the target", out)?;
    stacks(&sheet).write(style, out)?;
    notes(&sheet, experiment, style, out)?;
    style.heading("Verdict", out)?;
    for finding in findings(experiment) {
        sentence(&finding).write(style, out)?;
    }
    for (label, text) in [("rule", RULE.to_owned()), ("method", method(experiment))] {
        let mut line = Paragraph::new(label, 10);
        line.words(Tone::Dim, &text);
        writeln!(out)?;
        line.write(style, out)?;
    }
    Ok(())
}

fn cost(sheet: &Sheet) -> Table {
    let mut table = Table::new(vec![
        Column::left("mode").shrinking(12),
        Column::right("bytes"),
        Column::right("a sample"),
        Column::right("× fp"),
        Column::left("fired = recorded + lost").shrinking(24),
        Column::right("lost chunks"),
        Column::right("CPU"),
        Column::right("BPF/tick"),
        Column::left(&shown(&sheet.metric)).shrinking(16),
    ]);
    for line in &sheet.lines {
        let figures =
            [&line.bytes, &line.bytes_per_sample, &line.times_fp, &line.samples, &line.lost_chunks, &line.cpu];
        let mut cells = vec![Cell::new(Tone::Strong, shown(&line.mode))];
        cells.extend(figures.into_iter().map(short));
        cells.push(short(&line.bpf));
        cells.push(long(&line.metric));
        table.row(cells);
    }
    table
}

fn short(figure: &Figure) -> Cell {
    let note = figure.note.map_or(String::new(), |note| format!(" [{}]", note_letter(note)));
    format!("{}{note}", shown(&figure.text)).into()
}

fn long(figure: &Figure) -> Cell {
    let detail = if figure.detail.is_empty() { String::new() } else { format!("  {}", figure.detail) };
    let note = figure.note.map_or(String::new(), |note| format!(" [{}]", note_letter(note)));
    format!("{}{note}{detail}", shown(&figure.text)).into()
}

fn stacks(sheet: &Sheet) -> Table {
    let mut table = Table::new(vec![
        Column::left("mode").shrinking(12),
        Column::left("strategy").shrinking(8),
        Column::left("process").shrinking(8),
        Column::right("samples"),
        Column::right("complete"),
        Column::right("truncated"),
        Column::right("broken"),
        Column::left("mostly").shrinking(20),
    ]);
    for line in &sheet.lines {
        stack_rows(line, &mut table);
    }
    table
}

fn stack_rows(line: &Line, table: &mut Table) {
    let strategies = match &line.stacks {
        Ok(strategies) => strategies,
        Err(figure) if figure.note.is_none() => return,
        Err(figure) => {
            table.row(vec![Cell::new(Tone::Strong, shown(&line.mode)), short(figure)]);
            return;
        }
    };
    let mut mode = Cell::new(Tone::Strong, shown(&line.mode));
    for strategy in strategies {
        let mut label: Cell = shown(&strategy.label).into();
        for process in &strategy.processes {
            let complete = percent(process.ends.complete, process.ends.samples);
            let tone = if complete >= 99.0 {
                Tone::Good
            } else if complete >= 90.0 {
                Tone::Warn
            } else {
                Tone::Bad
            };
            let [complete, truncated, broken] = shares(&process.ends);
            table.row(vec![
                std::mem::take(&mut mode),
                std::mem::take(&mut label),
                shown(&process.name).into(),
                count(process.ends.samples).into(),
                Cell::new(tone, complete),
                truncated.into(),
                broken.into(),
                Cell::new(Tone::Dim, process.reasons.first().map_or("".into(), |reason| shown(reason))),
            ]);
        }
    }
}

fn notes(sheet: &Sheet, experiment: &Experiment, style: &Style, out: &mut impl Write) -> io::Result<()> {
    if sheet.notes.is_empty() && experiment.notes.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    for (index, note) in sheet.notes.iter().enumerate() {
        let mut line = Paragraph::new(&format!("  [{}]", note_letter(index)), 6);
        line.words(Tone::Dim, &shown(note));
        line.write(style, out)?;
    }
    for note in &experiment.notes {
        let mut line = Paragraph::new("  !", 6);
        line.words(Tone::Warn, &shown(note));
        line.write(style, out)?;
    }
    Ok(())
}

fn sentence(finding: &Finding) -> Paragraph {
    let (mark, tone) = match finding.judgement {
        Judgement::Good => ("  +", Tone::Good),
        Judgement::Neutral => ("  ·", Tone::Plain),
        Judgement::Bad => ("  −", Tone::Bad),
    };
    let text: String = finding
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Words(words) => shown(words),
            Piece::Name(name) => shown(name),
        })
        .collect();
    let mut line = Paragraph::new(mark, 4);
    line.words(tone, &text);
    line
}
