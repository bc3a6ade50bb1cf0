//! The printed table.

use crate::checks::CHECKS;
use crate::kernels::Kernel;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A kernel and its results.
#[derive(Debug)]
pub(crate) struct Row {
    name: &'static str,
    pub(crate) release: String,
    cells: BTreeMap<&'static str, String>,
    /// Failed checks, with what was expected and what was found.
    failures: Vec<(&'static str, String)>,
    /// The end of the guest's console output.
    pub(crate) console: String,
    pub(crate) seconds: u64,
}

impl Row {
    pub(crate) fn new(kernel: &Kernel) -> Self {
        let (cells, failures) = (BTreeMap::new(), Vec::new());
        Self { name: kernel.name, release: "–".to_owned(), cells, failures, console: String::new(), seconds: 0 }
    }

    /// Records the result of a check.
    pub(crate) fn cell(&mut self, check: &'static str, found: anyhow::Result<String>) {
        let cell = match found {
            Ok(cell) => cell,
            Err(error) => {
                self.failures.push((check, format!("{error:#}")));
                "FAILED".to_owned()
            }
        };
        self.cells.insert(check, cell);
    }

    /// Whether no check failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

/// The failed checks, and the end of the guest's console output.
pub(crate) fn details(row: &Row) -> String {
    let mut text = String::new();
    for (check, failure) in &row.failures {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}: {check}: {}", row.name, failure.trim_end().replace('\n', "\n    "));
    }
    if !row.is_good() && !row.console.is_empty() {
        let _ = writeln!(
            text,
            "{}: the end of the guest's console:\n    {}\n",
            row.name,
            row.console.replace('\n', "\n    ")
        );
    }
    text
}

/// One line per kernel, one column per check; `–` if a check does not apply or was impossible.
pub(crate) fn table(rows: &[Row]) -> String {
    let checks: Vec<&str> = ["boot"].into_iter().chain(CHECKS.iter().map(|check| check.name)).collect();
    let head = ["kernel", "release"].into_iter().chain(checks.iter().copied()).chain(["seconds"]);
    let mut lines: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for row in rows {
        let cells = checks.iter().map(|check| row.cells.get(check).map_or_else(|| "–".to_owned(), String::clone));
        let line = [row.name.to_owned(), row.release.clone()].into_iter().chain(cells);
        lines.push(line.chain([row.seconds.to_string()]).collect());
    }
    let n_columns = checks.len() + 3;
    let width =
        |column| lines.iter().filter_map(|line| line.get(column)).map(|cell: &String| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
