//! Writes the files of a report.

use super::ours::STACKS;
use crate::output;
use anyhow::Context as _;
use fpprof_analysis::experiment::{Experiment, ExperimentMethod, ExperimentRow};
use fpprof_reports::experiment::Pictures;
use fpprof_reports::{experiment, json};
use std::fs;
use std::path::Path;

/// Writes results.json, report.md and report.html into `dir`, prints the table, and says how to open the page.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(results: &Experiment, dir: &Path) -> anyhow::Result<()> {
    output::write_whole(&dir.join("results.json"), |mut out| json::value(results, &mut out))?;
    output::write_whole(&dir.join("report.md"), |mut out| experiment::markdown(results, &mut out))?;
    let pictures = pictures(results, dir)?;
    let recording = recording(results, dir)?;
    let page = dir.join("report.html");
    output::write_whole(&page, |mut out| experiment::html_with(results, &pictures, recording.as_deref(), &mut out))?;
    output::write_whole(Path::new("-"), |mut out| experiment::terminal(results, &output::style(), &mut out))?;
    output::print_message(&format!(
        "\nreport: {}\nopen it with: xdg-open {0}  (or any browser; it needs no network)",
        page.display()
    ));
    Ok(())
}

/// The page of the first repeat's recording with both kinds of stack; `None` if there was none.
fn recording(results: &Experiment, dir: &Path) -> anyhow::Result<Option<String>> {
    let is_first =
        |row: &ExperimentRow| row.method == ExperimentMethod::Both && row.runs.iter().any(|run| run.repeat == 0);
    if !results.rows.iter().any(is_first) {
        return Ok(None);
    }
    let path = dir.join(STACKS);
    Ok(Some(fs::read_to_string(&path).with_context(|| path.display().to_string())?))
}

/// The flame graphs that were drawn, by file name.
fn pictures(results: &Experiment, dir: &Path) -> anyhow::Result<Pictures> {
    let runs = results.rows.iter().flat_map(|row| &row.runs);
    let stacks = runs.filter_map(|run| run.stacks.value()).flatten();
    let files = stacks.filter_map(|stacks| stacks.flame_graph.value());
    files
        .map(|file| {
            let path = dir.join(file);
            Ok((file.clone(), fs::read(&path).with_context(|| path.display().to_string())?))
        })
        .collect()
}
