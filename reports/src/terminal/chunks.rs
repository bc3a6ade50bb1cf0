//! How large a chunk would have been enough.

use super::{Cell, Column, Style, Table, Tone};
use crate::escape::shown;
use crate::figures::{bytes, count, share};
use fpprof_analysis::summary::{ChunkNeeds, ChunkPoint, Summary};
use std::io::{self, Write};

/// Per cent of the stacks that the table names a size for.
const PERCENTS: [u8; 4] = [50, 90, 99, 100];
/// Sizes that the table names completeness for: those perf's users choose from.
const SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Process names that are listed; the JSON has more.
const MAX_NAMES: usize = 4;

/// Writes the smallest chunks for shares of the stacks, and what common sizes give.
pub(super) fn chunks(summary: &Summary, style: &Style, out: &mut impl Write) -> io::Result<()> {
    if summary.chunk_sizes.is_empty() {
        return Ok(());
    }
    style.heading("How large a chunk would do", out)?;
    let mut columns = vec![Column::left("process").shrinking(8)];
    columns.extend(PERCENTS.map(|percent| Column::right(&format!("{percent} % need"))));
    columns.extend(SIZES.map(|size| Column::right(&format!("at {}K", size >> 10))));
    let mut table = Table::new(columns);
    let all = summary.chunk_sizes.first().map_or(0, |all| all.samples);
    for needs in summary.chunk_sizes.iter().take(MAX_NAMES + 1).filter(|needs| is_large(needs.samples, all)) {
        table.row(row(needs));
    }
    table.write(style, out)?;
    let copied = summary.chunk_sizes.first().map(|all| copied(&all.curve)).unwrap_or_default();
    if !copied.is_empty() {
        writeln!(out, "  Bytes copied a sample, up to the end of the stack: {copied}.")?;
    }
    Ok(())
}

/// 1 % of the samples or more.
fn is_large(samples: u64, of: u64) -> bool {
    u128::from(samples) * 100 >= u128::from(of)
}

fn row(needs: &ChunkNeeds) -> Vec<Cell> {
    let name = if needs.comm.is_empty() { "all".to_owned() } else { shown(&needs.comm).into_owned() };
    let mut cells = vec![Cell::new(Tone::Strong, name)];
    for percent in PERCENTS {
        let smallest = needs.smallest_bytes.get(&percent).copied().flatten();
        cells.push(match smallest {
            Some(size) => count(size).into(),
            None => Cell::new(Tone::Dim, "\u{2013}".to_owned()),
        });
    }
    for size in SIZES {
        let point = needs.curve.iter().find(|point| point.chunk_bytes == size);
        cells.push(point.map_or_else(|| "\u{2013}".to_owned(), |point| share(point.complete, needs.samples)).into());
    }
    cells
}

fn copied(curve: &[ChunkPoint]) -> String {
    let points = curve.iter().filter(|point| SIZES.contains(&point.chunk_bytes));
    let each = points.map(|point| format!("{} at {}K", bytes(point.mean_copied_bytes), point.chunk_bytes >> 10));
    each.collect::<Vec<_>>().join(", ")
}
