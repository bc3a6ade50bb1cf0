//! The output of `doctor`.

use super::{Cell, Column, Paragraph, Style, Table, Tone};
use crate::escape::shown;
use std::io::{self, Write};

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked, such as `CAP_BPF` or `hardware cycles`.
    pub name: String,
    /// The result.
    pub status: CheckStatus,
    /// What was found, in words.
    pub found: String,
    /// What it is needed for and how to get it; `None` if nothing needs to be done.
    pub remedy: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStatus {
    /// Available.
    Ok,
    /// Not available, but there is another way, which `remedy` names.
    Limited,
    /// Not available, and something cannot be done.
    Missing,
}

/// Writes the table of checks, the remedy under each, and the count.
///
/// # Errors
/// If the writer fails.
pub fn checks(checks: &[Check], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(vec![Column::left(""), Column::left("check"), Column::left("found").shrinking(20)]);
    for check in checks {
        let (tone, word) = match check.status {
            CheckStatus::Ok => (Tone::Good, "ok"),
            CheckStatus::Limited => (Tone::Warn, "limited"),
            CheckStatus::Missing => (Tone::Bad, "missing"),
        };
        let found = shown(&check.found);
        table.row(vec![Cell::new(tone, word), shown(&check.name).as_ref().into(), found.as_ref().into()]);
        if let Some(remedy) = &check.remedy {
            let mut note = Paragraph::new("", 11);
            note.part(Tone::Dim, "→").words(Tone::Dim, &shown(remedy));
            table.note(note);
        }
    }
    table.write(style, out)?;
    let n = |status| checks.iter().filter(|check| check.status == status).count();
    let (ok, limited, missing) = (n(CheckStatus::Ok), n(CheckStatus::Limited), n(CheckStatus::Missing));
    writeln!(out, "\n{ok} ok, {limited} limited, {missing} missing")
}
