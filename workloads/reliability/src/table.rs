//! The printed table.

use crate::found::{Found, Verdict};
use crate::goal::Goal;
use std::fmt::Write as _;

/// A goal and its result.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) goal: Goal,
    pub(crate) found: Found,
}

impl Row {
    pub(crate) fn is_missed(&self) -> bool {
        self.found.verdict == Verdict::Missed
    }
}

/// The rows as Markdown, and the number of goals that are met.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| goal | what is done | what it should be | measured | met |\n|---|---|---|---|---|\n");
    for Row { goal, found } in rows {
        let met = match found.verdict {
            Verdict::Met => "yes",
            Verdict::Missed => "no",
            Verdict::Elsewhere => "–",
        };
        let cells = [goal.id, goal.what, goal.goal, &found.figure, met].map(|cell| cell.replace('|', "\\|"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let of = |verdict| rows.iter().filter(|row| row.found.verdict == verdict).count();
    let measured = rows.len() - of(Verdict::Elsewhere);
    let _ =
        writeln!(text, "\n{} of {measured} goals met; {} not measured here.", of(Verdict::Met), of(Verdict::Elsewhere));
    text
}

/// The first line of a text, for a cell; the rest is printed elsewhere.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}
