//! The text of `fpprof verify`.

use super::disagreements::disagreements;
use crate::escape::shown;
use crate::figures::{count, fine_share, most_frequent};
use crate::kernel_walks;
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::oracle::{Group, StrategyVerdicts, Verdicts, Verification};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Column in which the text after a label starts.
const INDENT: usize = 10;
/// The most rows of a table by function, file or compiler; one line counts the rest.
const MAX_GROUPS: usize = 12;
/// The most places listed per strategy where it first went wrong.
const MAX_CULPRITS: usize = 6;
/// The most reasons named per strategy; the rest is counted.
const MAX_REASONS: usize = 5;

/// Writes what was stepped, every strategy's verdicts with their reasons, tables by file, compiler and function, where
/// each strategy first went wrong, and the requested disagreements.
///
/// # Errors
/// If the writer fails.
pub fn terminal(verification: &Verification, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    head(verification, style, out)?;
    strategies(verification, style, out)?;
    groups(verification, "By file", &verification.files, style, out)?;
    groups(verification, "By compiler", &verification.compilers, style, out)?;
    groups(verification, "By function", &verification.functions, style, out)?;
    culprits(verification, style, out)?;
    disagreements(verification, style, out)?;
    style.warnings(&verification.warnings, out)
}

fn head(verification: &Verification, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let run = &verification.run;
    let mut line = Paragraph::new("stepped", INDENT);
    line.part(Tone::Strong, shown(&run.command.join(" ")))
        .part(Tone::Plain, format!("· {} instructions", count(run.instructions)))
        .part(Tone::Plain, format!("· {}", shown(&run.ended)));
    line.write(style, out)?;
    let mut line = Paragraph::new("checked", INDENT);
    line.part(Tone::Plain, count(verification.checked));
    if run.every > 1 {
        line.part(Tone::Plain, format!("· one in {}", count(run.every)));
    }
    if run.skipped > 0 {
        line.part(Tone::Plain, format!("· without the first {}", count(run.skipped)));
    }
    if let (Some(window), Some(leap)) = (run.window, run.leap) {
        let words = format!("· in windows of {}, about {} calls, returns and jumps apart", count(window), count(leap));
        line.part(Tone::Plain, words);
    }
    if let Some(seed) = run.seed {
        // As a user types it, without commas.
        line.part(Tone::Plain, format!("· seed {seed}"));
    }
    if verification.partly_judged > 0 {
        let words = "of them only up to where Go's run-time library ends the stack";
        line.part(Tone::Plain, format!("· {} {words}", count(verification.partly_judged)));
    }
    for (why, &n) in &verification.excluded {
        line.part(Tone::Warn, format!("· {} excluded: {}", count(n), shown(why)));
    }
    line.write(style, out)?;
    let mut line = Paragraph::new("followed", INDENT);
    let happened = run.events.iter().filter(|&(_, &n)| n > 0);
    for (index, (name, &n)) in happened.enumerate() {
        let dot = if index == 0 { "" } else { "· " };
        line.part(Tone::Plain, format!("{dot}{} {}", count(n), shown(&name.replace('_', " "))));
    }
    line.write(style, out)
}

fn strategies(verification: &Verification, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Compared with the true stack", out)?;
    let mut table = Table::new(vec![
        Column::left("strategy"),
        Column::right("exact"),
        Column::right("truncated"),
        Column::right("flagged"),
        Column::right("wrong"),
    ]);
    let checked = verification.checked;
    for verdicts in &verification.strategies {
        let [truncated, flagged, wrong] = [&verdicts.truncated, &verdicts.flagged, &verdicts.wrong].map(total);
        let tone = if wrong == 0 { Tone::Dim } else { Tone::Bad };
        table.row(vec![
            Cell::new(Tone::Strong, shown(&verdicts.name)),
            fine_share(verdicts.exact, checked).into(),
            fine_share(truncated, checked).into(),
            fine_share(flagged, checked).into(),
            Cell::new(tone, fine_share(wrong, checked)),
        ]);
        reasons(verdicts, checked).into_iter().for_each(|note| table.note(note));
        if let Some(walks) = verification.kernel_walks.as_ref().filter(|_| verdicts.name == "cfi") {
            for line in kernel_walks::lines(walks, "walks by the kernel's code") {
                let mut note = Paragraph::new("", 4);
                let tone = if walks.different > 0 { Tone::Bad } else { Tone::Dim };
                note.words(tone, &line);
                table.note(note);
            }
        }
    }
    table.write(style, out)?;
    let mut legend = Paragraph::new("", 2);
    let words = "truncated: right, but ends early, with a reason; flagged: not right, and marked so; wrong: not \
        right, and not marked";
    legend.words(Tone::Dim, words);
    legend.write(style, out)
}

fn reasons(verdicts: &StrategyVerdicts, checked: u64) -> Vec<Paragraph> {
    let classes = [("truncated", &verdicts.truncated), ("flagged", &verdicts.flagged), ("wrong", &verdicts.wrong)];
    let mut notes: Vec<Paragraph> = Vec::new();
    for (class, counts) in classes.into_iter().filter(|(_, counts)| total(counts) > 0) {
        let sorted = most_frequent(counts);
        let mut note = Paragraph::new("", 4);
        note.part(Tone::Dim, class);
        for &(reason, n) in sorted.iter().take(MAX_REASONS) {
            note.part(Tone::Dim, format!("{} {} ({})", shown(reason), fine_share(n, checked), count(n)));
        }
        let rest = sorted.iter().skip(MAX_REASONS).fold(0_u64, |sum, &(_, n)| sum.saturating_add(n));
        if rest > 0 {
            note.part(Tone::Dim, format!("others {} ({})", fine_share(rest, checked), count(rest)));
        }
        notes.push(note);
    }
    if verdicts.roots_missed > 0 {
        let mut note = Paragraph::new("", 4);
        let missed = verdicts.roots_missed;
        let words = format!("exact, but root not recognised in {} ({})", fine_share(missed, checked), count(missed));
        note.words(Tone::Dim, &words);
        notes.push(note);
    }
    let skips = verdicts.leaf_skips;
    if skips.real > 0 || skips.flagged > 0 {
        let mut note = Paragraph::new("", 4);
        let real = fine_share(skips.real, checked);
        let flagged = fine_share(skips.flagged, checked);
        let both = fine_share(skips.both, checked);
        let words = format!("caller of the leaf missing in {real}; flagged in {flagged}, rightly in {both}");
        note.words(Tone::Dim, &words);
        notes.push(note);
    }
    notes
}

fn groups(
    verification: &Verification,
    title: &str,
    groups: &[Group],
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    style.heading(title, out)?;
    let has_files = groups.iter().any(|group| !group.file.is_empty());
    let mut columns = vec![Column::left("").shrinking(16)];
    if has_files {
        columns.push(Column::left("file").shrinking(8));
    }
    columns.push(Column::right("checked"));
    for verdicts in &verification.strategies {
        columns.push(Column::right(&format!("{} exact", shown(&verdicts.name))));
        columns.push(Column::right("wrong"));
    }
    let mut table = Table::new(columns);
    for group in groups.iter().filter(|group| group.checked > 0).take(MAX_GROUPS) {
        let mut cells: Vec<Cell> = vec![shown(&group.name).into()];
        if has_files {
            cells.push(Cell::new(Tone::Dim, shown(&group.file)));
        }
        cells.push(count(group.checked).into());
        for verdicts in &group.leaf {
            let tone = if verdicts.wrong == 0 { Tone::Dim } else { Tone::Bad };
            cells.push(fine_share(verdicts.exact, group.checked).into());
            cells.push(Cell::new(tone, fine_share(verdicts.wrong, group.checked)));
        }
        table.row(cells);
    }
    table.write(style, out)?;
    let rest: Vec<&Group> = groups.iter().filter(|group| group.checked > 0).skip(MAX_GROUPS).collect();
    if !rest.is_empty() {
        let checked = rest.iter().fold(0_u64, |sum, group| sum.saturating_add(group.checked));
        writeln!(out, "  and {} more with {}", count(u64::try_from(rest.len()).unwrap_or(u64::MAX)), count(checked))?;
    }
    Ok(())
}

fn culprits(verification: &Verification, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(vec![
        Column::left("strategy"),
        Column::left("at a frame of").shrinking(16),
        Column::left("file").shrinking(8),
        Column::right("truncated"),
        Column::right("flagged"),
        Column::right("wrong"),
    ]);
    let mut n_rows = 0;
    for (index, verdicts) in verification.strategies.iter().enumerate() {
        let mut sorted: Vec<(&Group, Verdicts)> = Vec::new();
        for group in &verification.functions {
            let Some(&broke) = group.broke.get(index) else { continue };
            if broke != Verdicts::default() {
                sorted.push((group, broke));
            }
        }
        // The most wrong come first; names break ties, so that the order is deterministic.
        sorted.sort_by(|(a, x), (b, y)| {
            let key = |v: &Verdicts| (v.wrong, v.flagged, v.truncated);
            key(y).cmp(&key(x)).then_with(|| (&a.name, &a.file).cmp(&(&b.name, &b.file)))
        });
        let mut name: Cell = Cell::new(Tone::Strong, shown(&verdicts.name));
        for (group, broke) in sorted.into_iter().take(MAX_CULPRITS) {
            let tone = if broke.wrong == 0 { Tone::Dim } else { Tone::Bad };
            table.row(vec![
                std::mem::take(&mut name),
                shown(&group.name).into(),
                Cell::new(Tone::Dim, shown(&group.file)),
                count(broke.truncated).into(),
                count(broke.flagged).into(),
                Cell::new(tone, count(broke.wrong)),
            ]);
            n_rows += 1;
        }
    }
    if n_rows == 0 {
        return Ok(());
    }
    style.heading("Causes of wrong and early ends", out)?;
    table.write(style, out)
}

fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().fold(0, |sum, &n| sum.saturating_add(n))
}
