//! Which chunk size would have been sufficient, what it would have cost, and how deep the stacks are.

use super::{Cell, Column, Paragraph, Style, Table, Tone};
use crate::escape::shown;
use crate::figures::{bytes, chunk_size, count, percent, share, stack_byte_count};
use crate::verdict::{PERCENTS, is_large, remedy};
use fpprof_analysis::summary::{ChunkNeeds, ChunkPoint, Summary};
use std::io::{self, Write};

/// The most bytes of stack that can be requested.
const LARGEST_CHUNK: u64 = 16 << 20;
/// The most process names listed; the JSON has more.
const MAX_NAMES: usize = 4;

/// Writes the smallest chunks for shares of the stacks, completeness and cost by chunk size, and the stacks' depth.
pub(super) fn chunks(summary: &Summary, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(all) = summary.chunk_sizes.first().filter(|all| all.samples > 0) else { return Ok(()) };
    let is_large = |needs: &&ChunkNeeds| is_large(needs.samples, all.samples);
    let shown: Vec<&ChunkNeeds> = summary.chunk_sizes.iter().take(MAX_NAMES + 1).filter(is_large).collect();
    style.heading("Chunk size needed to complete a share of the stacks", out)?;
    smallest(&shown).write(style, out)?;
    hidden(summary.chunk_sizes.len().saturating_sub(shown.len()), all, style, out)?;
    style.heading("Volume and complete stacks by chunk size", out)?;
    curve(&shown, all).write(style, out)?;
    let mut note = Paragraph::new("", 2);
    note.words(
        Tone::Dim,
        "Percentages: complete stacks. K: 1,024 bytes of stack. Volume: before compression; a chunk ends where the stack ends.",
    );
    note.write(style, out)?;
    depths(&shown, style, out)?;
    cut_off(summary, all, style, out)
}

/// Writes what would help the stacks that were not copied up to their root.
fn cut_off(summary: &Summary, all: &ChunkNeeds, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(dwarf) = summary.strategies.get("dwarf") else { return Ok(()) };
    let n = |reason: &str| dwarf.truncated.get(reason).copied().unwrap_or(0);
    let mut note = Paragraph::new("", 2);
    if n("shed") > 0 {
        let remedy = remedy("shed").unwrap_or_default();
        note.words(Tone::Warn, &format!("{} stacks were copied only in part (shed): {remedy}.", count(n("shed"))));
    }
    if n("chunk_end") > 0 {
        note.words(Tone::Warn, &format!("{} stacks end at the end of their chunk (chunk_end):", count(n("chunk_end"))));
        let has_chains = !summary.environment.mode.starts_with("dwarf");
        let mode = if has_chains { "both" } else { "dwarf" };
        let larger = all.depth_bytes.map(|depth| depth.max.clamp(1 << 10, LARGEST_CHUNK).next_power_of_two());
        let words = match larger {
            Some(larger) => format!("use --call-graph {mode},{}.", chunk_size(larger)),
            None => "record larger chunks.".to_owned(),
        };
        note.words(Tone::Warn, &words);
        if has_chains {
            note.words(Tone::Dim, "Frame pointers, where compiled in, reach further: --strategies fp.");
        }
    }
    if n("stack_switch") > 0 {
        let switched = count(n("stack_switch"));
        note.words(Tone::Warn, &format!("{switched} stacks end where the thread switched stacks (stack_switch):"));
        note.words(Tone::Dim, "a sample has the current stack, and the one that a signal interrupted, no others.");
    }
    let has_words = ["shed", "chunk_end", "stack_switch"].into_iter().any(|reason| n(reason) > 0);
    if has_words { note.write(style, out) } else { Ok(()) }
}

fn smallest(shown: &[&ChunkNeeds]) -> Table {
    let mut columns = vec![Column::left("process").shrinking(8), Column::right("samples")];
    columns.extend(PERCENTS.map(|percent| Column::right(&format!("{percent} %"))));
    let mut table = Table::new(columns);
    for needs in shown {
        let mut cells = vec![Cell::new(Tone::Strong, name(needs)), count(needs.samples).into()];
        for percent in PERCENTS {
            let smallest = needs.smallest_bytes.get(&percent).copied().flatten();
            cells.push(smallest.map_or_else(none, |size| chunk_size(size).into()));
        }
        table.row(cells);
    }
    table
}

/// Explains `–`, and counts the processes that are not listed.
fn hidden(n_more: usize, all: &ChunkNeeds, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut note = Paragraph::new("", 2);
    if all.smallest_bytes.values().any(Option::is_none) {
        let words = "–: too many stacks end early for other reasons, or need more than was copied.";
        note.words(Tone::Dim, words);
    }
    if n_more > 0 {
        note.words(Tone::Dim, &format!("{n_more} more name{} with --json.", if n_more == 1 { "" } else { "s" }));
    }
    if all.smallest_bytes.values().any(Option::is_none) || n_more > 0 { note.write(style, out) } else { Ok(()) }
}

/// One row per chunk size, up to the size sufficient for all processes.
fn curve(shown: &[&ChunkNeeds], all: &ChunkNeeds) -> Table {
    let mut columns = vec![Column::left("chunk"), Column::right("per sample"), Column::right("per minute")];
    columns.extend(shown.iter().map(|needs| Column::right(&name(needs)).shrinking(7)));
    let mut table = Table::new(columns);
    for point in &all.curve {
        let size = |at: &ChunkPoint| at.chunk_bytes == point.chunk_bytes;
        let mut cells = vec![
            Cell::new(Tone::Strong, chunk_size(point.chunk_bytes)),
            bytes(point.bytes_per_sample).into(),
            bytes(point.bytes_per_minute).into(),
        ];
        for needs in shown {
            // Beyond its last size a curve is flat.
            let at = needs.curve.iter().find(|at| size(at)).or(needs.curve.last());
            cells.push(at.map_or_else(none, |at| complete(at, needs)));
        }
        table.row(cells);
    }
    table
}

fn complete(at: &ChunkPoint, needs: &ChunkNeeds) -> Cell {
    let tone = match percent(at.complete, needs.samples) {
        good if good >= 99.0 => Tone::Good,
        fair if fair >= 90.0 => Tone::Warn,
        _ => Tone::Plain,
    };
    Cell::new(tone, share(at.complete, needs.samples))
}

fn depths(shown: &[&ChunkNeeds], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Stack depth, to the end of the stack's memory", out)?;
    let titles = ["min", "median", "90 %", "99 %", "max"];
    let mut columns = vec![Column::left("process").shrinking(8)];
    columns.extend(titles.map(Column::right));
    columns.push(Column::right("unknown"));
    let mut table = Table::new(columns);
    for needs in shown {
        let mut cells = vec![Cell::new(Tone::Strong, name(needs))];
        match needs.depth_bytes {
            Some(depth) => {
                cells.extend(
                    [depth.min, depth.p50, depth.p90, depth.p99, depth.max].map(|size| stack_byte_count(size).into()),
                );
            }
            None => cells.extend(titles.map(|_| none())),
        }
        cells.push(share(needs.without_depth, needs.samples).into());
        table.row(cells);
    }
    table.write(style, out)
}

fn name(needs: &ChunkNeeds) -> String {
    if needs.comm.is_empty() { "all".to_owned() } else { shown(&needs.comm).into_owned() }
}

fn none() -> Cell {
    Cell::new(Tone::Dim, "–")
}
