//! The experiment as text.

use super::cells::{Figure, Line, Sheet, note_letter, shares};
use super::verdict::{RULE, findings};
use super::words::{environment, method};
use crate::escape::shown;
use crate::figures::{count, percent};
use crate::finding::{Finding, Judgement, Piece};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::experiment::Experiment;
use std::io::{self, Write};

/// Writes verdict, cost table, stacks table, notes and method.
///
/// # Errors
/// If the writer fails.
pub fn terminal(experiment: &Experiment, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let sheet = Sheet::new(experiment);
    let mut line = Paragraph::new("command", 10);
    line.words(Tone::Plain, &shown(&experiment.command.join(" ")));
    line.write(style, out)?;
    let mut line = Paragraph::new("on", 10);
    for (index, part) in environment(experiment).iter().enumerate() {
        line.part(Tone::Plain, format!("{}{}", if index > 0 { "· " } else { "" }, shown(&part.1)));
    }
    line.write(style, out)?;
    let metric = format!("{} against none", shown(&sheet.metric));
    let tables = [
        ("Size and cost", cost(&sheet)),
        ("Samples: fired = recorded + lost + skipped + dropped", samples(&sheet)),
        (&metric, against_none(&sheet)),
        ("Stacks of the target", stacks(&sheet)),
    ];
    for (title, table) in tables {
        style.heading(title, out)?;
        table.write(style, out)?;
    }
    notes(&sheet, experiment, style, out)?;
    style.heading("Verdict", out)?;
    for finding in findings(experiment) {
        sentence(&finding).write(style, out)?;
    }
    for (label, text) in [("rule", RULE.to_owned()), ("method", method(experiment))] {
        let mut line = Paragraph::new(label, 10);
        line.words(Tone::Dim, &shown(&text));
        writeln!(out)?;
        line.write(style, out)?;
    }
    Ok(())
}

fn cost(sheet: &Sheet) -> Table {
    let mut table = Table::new(vec![
        Column::left("mode").shrinking(12),
        Column::right("bytes"),
        Column::right("per sample"),
        Column::right("× fp"),
        Column::right("CPU"),
        Column::right("BPF/tick"),
        Column::left("CPU time").shrinking(12),
    ]);
    for line in sheet.lines.iter().filter(|line| line.records()) {
        let figures = [&line.bytes, &line.bytes_per_sample, &line.times_fp, &line.cpu, &line.bpf];
        let mut cells = vec![mode(line)];
        cells.extend(figures.into_iter().map(figure));
        cells.push(Cell::new(Tone::Dim, line.cpu.detail.clone()));
        table.row(cells);
    }
    table
}

fn samples(sheet: &Sheet) -> Table {
    let mut table = Table::new(vec![
        Column::left("mode").shrinking(12),
        Column::right("fired"),
        Column::right("recorded"),
        Column::right("lost"),
        Column::left("by cause").shrinking(8),
        Column::right("skipped"),
        Column::right("dropped"),
        Column::right("gaps"),
        Column::left("balance"),
    ]);
    for line in sheet.lines.iter().filter(|line| line.records()) {
        let balance = &line.balance;
        let mut cells = vec![mode(line)];
        cells.extend([&balance.fired, &balance.recorded, &balance.lost].map(figure));
        cells.push(shown(&balance.lost.detail).into());
        cells.extend([&balance.skipped, &balance.dropped].map(figure));
        cells.push(figure(&line.lost_chunks));
        cells.push(Cell::new(if balance.holds { Tone::Good } else { Tone::Bad }, balance.check.clone()));
        table.row(cells);
    }
    table
}

fn against_none(sheet: &Sheet) -> Table {
    let mut table = Table::new(vec![
        Column::left("mode").shrinking(12),
        Column::right(&shown(&sheet.metric)).shrinking(10),
        Column::left("change").shrinking(12),
        Column::left("attributed"),
    ]);
    for line in &sheet.lines {
        let change = shown(&line.metric.detail);
        table.row(vec![mode(line), figure(&line.metric), change.into(), figure(&line.attributed)]);
    }
    table
}

fn mode(line: &Line) -> Cell {
    Cell::new(Tone::Strong, shown(&line.mode))
}

fn figure(figure: &Figure) -> Cell {
    let note = figure.note.map_or(String::new(), |note| format!(" [{}]", note_letter(note)));
    format!("{}{note}", shown(&figure.text)).into()
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
        Err(missing) if missing.note.is_none() => return,
        Err(missing) => {
            table.row(vec![mode(line), figure(missing)]);
            return;
        }
    };
    let mut head = mode(line);
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
                std::mem::take(&mut head),
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

fn notes(sheet: &Sheet, experiment: &Experiment, style: &Style, out: &mut dyn Write) -> io::Result<()> {
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
