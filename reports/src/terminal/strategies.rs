//! How the stacks of each strategy ended, over all samples and by process.

use super::{Cell, Column, Paragraph, Style, Table, Tone};
use crate::escape::shown;
use crate::figures::{self, count, most_frequent, percent, plural, share, stack_byte_count};
use fpprof_analysis::kernel_walks::KernelWalks;
use fpprof_analysis::spread::Spread;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::summary::{ProcessSummary, Quality, Summary};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The most processes listed; one line counts the rest.
const MAX_PROCESSES: usize = 12;

/// The most rows of processes and strategies: the more strategies, the fewer processes are listed.
const MAX_ROWS: usize = 36;

/// The most reasons named per strategy; the rest is counted.
const MAX_REASONS: usize = 4;

/// Writes one row per strategy, with its reasons.
pub(super) fn strategies(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
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
        Column::right("frames"),
        Column::right("stack needed"),
    ]);
    for (name, quality) in ordered(&summary.strategies) {
        let mut cells = vec![Cell::new(Tone::Strong, shown(name))];
        cells.extend(quality_cells(quality));
        cells.push(three(quality.frames_per_stack, count));
        cells.push(three(quality.needed_bytes, stack_byte_count));
        table.row(cells);
        for note in reasons(quality) {
            table.note(note);
        }
        if let Some(&n) = summary.no_call_before.get(name) {
            table.note(no_call_before(n, quality.samples));
        }
        if name == "cfi" {
            summary.kernel_walks.iter().flat_map(kernel_walks).for_each(|note| table.note(note));
        }
    }
    table.write(style, out)?;
    let mut note = Paragraph::new("", 2);
    note.words(Tone::Dim, "frames per stack, stack needed by a complete one: median / 99 % / max");
    note.write(style, out)
}

/// Writes one row per process and strategy.
pub(super) fn processes(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
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
        Column::right("frames"),
    ]);
    let n_listed = (MAX_ROWS / summary.strategies.len().max(1)).clamp(3, MAX_PROCESSES);
    for process in summary.processes.iter().take(n_listed) {
        process_rows(process, summary.n_shown(), &mut table);
    }
    table.write(style, out)?;
    let rest = summary.processes.get(n_listed..).unwrap_or_default();
    if !rest.is_empty() {
        let samples = rest.iter().fold(0_u64, |sum, process| sum.saturating_add(process.samples));
        let more = ProcessSummary::total(rest);
        let (processes, samples_word) = (if more == 1 { "process" } else { "processes" }, plural(samples));
        let is_merged = rest.iter().any(|process| process.processes.is_some());
        let merged = if is_merged { "; --json has the first thousand one by one and the others by name" } else { "" };
        writeln!(out, "  and {} more {processes} with {} sample{samples_word}{merged}", count(more), count(samples))?;
    }
    Ok(())
}

/// Strategies ordered by kind and size, not by name: `dwarf@8192` before `dwarf@16384`.
fn ordered(strategies: &BTreeMap<String, Quality>) -> Vec<(&String, &Quality)> {
    let mut all: Vec<_> = strategies.iter().collect();
    // Unknown names, such as those of a later version, come last, by name.
    all.sort_by_key(|(name, _)| (name.parse::<Strategy>().is_err(), name.parse::<Strategy>().ok()));
    all
}

fn process_rows(process: &ProcessSummary, all: u64, table: &mut Table) {
    let mut head =
        vec![process.pid.to_string().into(), shown(&process.comm).into(), share(process.samples, all).into()];
    for (name, quality) in ordered(&process.strategies) {
        let mut cells = std::mem::replace(&mut head, vec![Cell::default(); 3]);
        cells.push(shown(name).into());
        cells.extend(quality_cells(quality));
        cells.push(three(quality.frames_per_stack, count));
        table.row(cells);
    }
    if process.strategies.is_empty() {
        table.row(head);
    }
}

/// A cell with median, 99th percentile and maximum.
fn three(spread: Option<Spread>, words: impl Fn(u64) -> String) -> Cell {
    match spread {
        Some(Spread { p50, p99, max, .. }) => format!("{} / {} / {}", words(p50), words(p99), words(max)).into(),
        None => Cell::new(Tone::Dim, "–"),
    }
}

/// Cells for samples, complete, truncated, broken.
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

/// The number of stacks that have a doubtful frame, however they ended.
fn no_call_before(n: u64, samples: u64) -> Paragraph {
    let mut note = Paragraph::new("", 4);
    let text = format!("{}, marked _[?] in folded stacks", figures::no_call_before(n, samples));
    note.words(Tone::Warn, &text);
    note
}

/// The results of walks in the kernel; differing frames are a defect.
fn kernel_walks(walks: &KernelWalks) -> Vec<Paragraph> {
    let lines = crate::kernel_walks::lines(walks, crate::kernel_walks::IN_KERNEL);
    let tone = if walks.different == 0 { Tone::Dim } else { Tone::Bad };
    let note = |words: &String| {
        let mut note = Paragraph::new("", 4);
        note.words(tone, words);
        note
    };
    lines.iter().map(note).collect()
}

/// The most frequent reasons of a strategy, one line for each class, and the suspected causes of skipped callers.
fn reasons(quality: &Quality) -> Vec<Paragraph> {
    let mut notes = Vec::new();
    let mut doubt = 0;
    for (class, counts) in [("truncated", &quality.truncated), ("broken", &quality.broken)] {
        if total(counts) > 0 {
            notes.push(reason_line(class, counts, quality.samples));
        }
        doubt |= total(counts);
    }
    let flags = [
        ("leaf_skip_suspect", quality.leaf_skip_suspects, "the leaf's caller is missing, even in complete stacks"),
        ("fp_in_jit", quality.fp_in_jit, "callers in JIT-compiled code by its frame pointers, right if it keeps them"),
        ("fp_fallback", quality.fp_fallback, "callers by frame pointers where there is no call frame information"),
    ];
    for (flag, n, meaning) in flags.into_iter().filter(|&(_, n, _)| n > 0) {
        let mut note = Paragraph::new("", 4);
        note.words(Tone::Dim, &format!("{flag} in {} ({}): {meaning}", share(n, quality.samples), count(n)));
        notes.push(note);
    }
    if total(&quality.no_stack) > 0 {
        let mut note = Paragraph::new("", 4);
        let n = total(&quality.no_stack);
        let names: Vec<&str> = quality.no_stack.keys().map(String::as_str).collect();
        let text = format!("{} sample{} without a user stack ({}) not counted", count(n), plural(n), names.join(", "));
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
    let sorted = most_frequent(counts);
    let mut note = Paragraph::new("", 4);
    note.part(Tone::Dim, class);
    let last = sorted.len().min(MAX_REASONS);
    for (index, &(reason, n)) in sorted.iter().take(MAX_REASONS).enumerate() {
        let comma = if index + 1 < last || sorted.len() > MAX_REASONS { "," } else { "" };
        note.part(Tone::Dim, format!("{} {} ({}){comma}", shown(reason), share(n, samples), count(n)));
    }
    let rest = sorted.get(MAX_REASONS..).unwrap_or_default();
    if !rest.is_empty() {
        let n = rest.iter().fold(0_u64, |sum, &(_, n)| sum.saturating_add(n));
        note.part(Tone::Dim, format!("{} more {} ({})", rest.len(), share(n, samples), count(n)));
    }
    note
}

fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().fold(0, |sum, &n| sum.saturating_add(n))
}
