//! The files of a report.

use crate::output;
use fpprof_analysis::experiment::Experiment;
use fpprof_reports::{experiment, json};
use std::path::Path;

/// Writes results.json, report.md and report.html into `dir`, prints the table, and says how to look at the page.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(results: &Experiment, dir: &Path) -> anyhow::Result<()> {
    output::write_whole(&dir.join("results.json"), |mut out| json::value(results, &mut out))?;
    output::write_whole(&dir.join("report.md"), |mut out| experiment::markdown(results, &mut out))?;
    let page = dir.join("report.html");
    output::write_whole(&page, |mut out| experiment::html(results, &mut out))?;
    output::write_whole(Path::new("-"), |mut out| experiment::terminal(results, &output::style(), &mut out))?;
    output::say(&format!(
        "\nreport: {}\nopen it with: xdg-open {0}  (or any browser; it needs no network)",
        page.display()
    ));
    Ok(())
}
