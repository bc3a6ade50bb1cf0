//! Samples by what a frame-pointer walk does at their address.

use super::lists::Listing;
use crate::escape::shown;
use crate::figures::{count, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::audit::{Weighed, Weights};
use std::io::{self, Write};

/// Rows of samples: name, samples, meaning. They add up to all samples.
pub(super) fn rows(weights: &Weights) -> [(&'static str, u64, &'static str); 7] {
    [
        ("ok", weights.ok, "a frame-pointer walk finds the function's caller"),
        ("drops caller", weights.drops_caller, "it goes on without the function's caller"),
        ("breaks chain", weights.breaks_chain, "the register holds something else"),
        ("no CFI", weights.no_cfi, "unknown: no unwind information"),
        ("Go", weights.go, "framed by Go's convention"),
        ("not audited", weights.unaudited, "the file is missing, changed, or not supported"),
        ("no file", weights.no_file, "JIT code, or no user stack"),
    ]
}

/// Writes the samples of a recording, in total and by file.
pub(super) fn weight(weighed: &Weighed, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Samples, by the first step of a frame-pointer walk", out)?;
    let mut table =
        Table::new(vec![Column::left("samples"), Column::right("count"), Column::right("share"), Column::left("")]);
    for (name, n, meaning) in rows(&weighed.total) {
        table.row(vec![
            name.into(),
            count(n).into(),
            share(n, weighed.total.samples).into(),
            Cell::new(Tone::Dim, meaning),
        ]);
    }
    table.write(style, out)?;
    let mut titles = vec![Column::left("file").shrinking(20), Column::right("samples")];
    titles.extend(["ok", "drops", "breaks", "no CFI", "Go"].map(Column::right));
    let mut table = Table::new(titles);
    for file in weighed.files.iter().take(listing.rows) {
        let weights = &file.weights;
        let mut cells: Vec<Cell> = vec![shown(&file.path).into(), share(weights.samples, weighed.total.samples).into()];
        let classes = [weights.ok, weights.drops_caller, weights.breaks_chain, weights.no_cfi, weights.go];
        cells.extend(classes.map(|n| Cell::from(share(n, weights.samples))));
        table.row(cells);
        if let Some(reason) = &file.reason {
            let mut note = Paragraph::new("", 4);
            note.words(Tone::Warn, &format!("not audited: {}", shown(reason)));
            table.note(note);
        }
    }
    table.write(style, out)
}
