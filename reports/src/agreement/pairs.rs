//! How strategies agree, in `report`: one row per pair, and what broke the chain.

use super::terminal::functions;
use super::words::{short, tone};
use crate::escape::shown;
use crate::figures::{count, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::accuracy::{Agreement, Difference, Relation};
use std::io::{self, Write};

/// The most pairs listed in addition to those with the best reference.
const MAX_PAIRS: usize = 6;
/// The most files listed for the explained pair.
const MAX_FILES: usize = 6;
/// The most functions listed for it.
const MAX_FUNCTIONS: usize = 8;

/// Writes how each strategy compares with the best reference, and after which files and functions frame-pointer stacks
/// first differ from it.
pub(crate) fn pairs(agreements: &[Agreement], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(best) = agreements.first().map(|pair| &pair.reference) else { return Ok(()) };
    style.heading("Agreement of strategies, by return address and frame address", out)?;
    let is_shown = |pair: &&Agreement| agreements.len() <= MAX_PAIRS || pair.reference == *best;
    let listed: Vec<&Agreement> = agreements.iter().filter(is_shown).collect();
    table(&listed).write(style, out)?;
    let n_more = agreements.len().saturating_sub(listed.len());
    let mut note = Paragraph::new("", 2);
    note.words(Tone::Dim, "frames: frames of the reference that the other also has.");
    if n_more > 0 {
        note.words(Tone::Dim, &format!("{n_more} more pairs with --json."));
    }
    note.write(style, out)?;
    let differs = |pair: &&&Agreement| pair.same < pair.samples;
    let explained = listed.iter().filter(differs).find(|pair| pair.other == "fp").or(listed.iter().find(differs));
    explained.map_or(Ok(()), |pair| breaking_functions(pair, style, out))
}

fn table(pairs: &[&Agreement]) -> Table {
    let occurs = |relation: &Relation| pairs.iter().any(|pair| pair.relations.get(relation).is_some_and(|&n| n > 0));
    let different: Vec<Relation> =
        Relation::ALL.into_iter().filter(|relation| *relation != Relation::Same && occurs(relation)).collect();
    let mut columns = vec![
        Column::left("reference").shrinking(8),
        Column::left("other").shrinking(8),
        Column::right("samples"),
        Column::right("same"),
        Column::right("frames"),
    ];
    columns.extend(different.iter().map(|&relation| Column::right(short(relation))));
    let mut table = Table::new(columns);
    for pair in pairs {
        let same_tone = if pair.same == pair.samples { Tone::Good } else { Tone::Strong };
        let Difference { n_same, n_missing, n_not_reached, .. } = pair.frames;
        let of_reference = n_same.saturating_add(n_missing).saturating_add(n_not_reached);
        let mut cells = vec![
            Cell::new(Tone::Strong, shown(&pair.reference)),
            Cell::new(Tone::Strong, shown(&pair.other)),
            count(pair.samples).into(),
            Cell::new(same_tone, share(pair.same, pair.samples)),
            share(n_same, of_reference).into(),
        ];
        cells.extend(different.iter().map(|relation| {
            let n = pair.relations.get(relation).copied().unwrap_or(0);
            Cell::new(if n == 0 { Tone::Dim } else { tone(*relation) }, share(n, pair.samples))
        }));
        table.row(cells);
    }
    table
}

fn breaking_functions(pair: &Agreement, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let (other, reference) = (shown(&pair.other), shown(&pair.reference));
    let title = format!("Where {other} misses the caller that {reference} finds, by file");
    functions(&title, &pair.modules, pair.samples, MAX_FILES, style, out)?;
    functions("By function", &pair.functions, pair.samples, MAX_FUNCTIONS, style, out)
}
