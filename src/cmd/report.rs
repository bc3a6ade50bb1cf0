//! `fpprof report`: prints the summary of a recording.

use crate::exit::{DONE, FAILED};
use crate::gate::Gate;
use crate::output::{self, print_message};
use crate::recordings::{Source, print_warnings};
use crate::worker::Files;
use anyhow::Context as _;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::{Analysis, callers};
use fpprof_reports::{calls, json, page, terminal};
use std::path::{Path, PathBuf};

/// Show a recording: hottest functions, lost samples, how stacks end, cost
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Strategies: fp, dwarf, dwarf@BYTES (with smaller chunks), cfi (recordings of that mode), sframe, elfutils (or libdw), libunwind.

Examples:
  fpprof report run.fpprof
  fpprof report run.fpprof --strategies fp,dwarf@4K,dwarf@8K,dwarf,libdw,libunwind
  fpprof report run.fpprof --json | jq .strategies.dwarf
  fpprof report run.fpprof --comm fio --time 2..5
  fpprof report run.fpprof --cgroup /system.slice/nginx.service
  fpprof report run.fpprof --function malloc   # who calls it, and what it calls
  fpprof report run.fpprof --html run.html     # also flame graphs and lost samples over time
  fpprof report run.fpprof --event off-cpu     # recorded with --off-cpu: what blocked longest
  fpprof report run.fpprof --fail-below complete=95 --max-lost 0.1
  fpprof report run.fpprof --strategies dwarf,libdw --fail-below complete=95,agreement=99"
)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Strategies to unwind with [default: fp and dwarf, as recorded]
    #[arg(long, alias = "strategy", value_name = "S", value_delimiter = ',')]
    strategies: Vec<Strategy>,
    /// Print only the callers and callees of this function
    #[arg(
        long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new(),
        conflicts_with_all = ["html", "fail_below", "max_lost"]
    )]
    function: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write an HTML page instead, which opens offline in any browser; `-` for stdout
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Fail if fewer stacks are complete (complete=95, fp:complete=50) or have the same frames as under the best strategy
    /// (agreement=99, elfutils:agreement=99); complete= without a strategy is about the stacks of the hottest functions
    #[arg(long = "fail-below", value_name = "[S:]complete|agreement=PERCENT", value_delimiter = ',')]
    fail_below: Vec<Gate>,
    /// Fail if more than PERCENT of the samples were lost, dropped or missed
    #[arg(long, value_name = "PERCENT", value_parser = crate::gate::percent)]
    max_lost: Option<f64>,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        self.source.files(self.html.as_deref(), &self.strategies)
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the recording cannot be read.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if let Some(function) = &args.function {
        return around(args, function);
    }
    let analysis = match args.html.is_some() {
        true => args.source.analyse_counted(&args.strategies, true)?,
        false => args.source.analyse_for(&args.strategies, |options| options.page = !args.json)?,
    };
    let summary = &analysis.summary;
    // A gate with nothing to judge is a usage error, printed instead of a report.
    let mut failures = Vec::new();
    for gate in &args.fail_below {
        failures.extend(gate.failures(summary, &analysis.default_strategy)?);
    }
    failures.extend(args.max_lost.and_then(|max| crate::gate::summary_lost_failure(summary, max)));
    if let Some(path) = &args.html {
        write_page(&analysis, path)?;
    } else {
        output::write_whole(Path::new("-"), |mut out| match args.json {
            true => json::summary(summary, &mut out),
            false => {
                let style = output::style();
                terminal::verdict(&analysis, &style, &mut out)?;
                terminal::summary(summary, &style, &mut out)?;
                terminal::rule(&analysis, &style, &mut out)
            }
        })?;
    }
    for failure in &failures {
        print_message(&format!("fpprof: {failure}"));
    }
    Ok(if failures.is_empty() { DONE } else { FAILED })
}

/// Prints the callers and callees of a function.
fn around(args: &Args, function: &str) -> anyhow::Result<u8> {
    /// The most names suggested.
    const MAX_NAMES: usize = 10;
    let analysis = args.source.analyse(&args.strategies)?;
    print_warnings(&analysis.summary);
    let folded = analysis.folded.get(&analysis.default_strategy).context("the strategy was analysed")?;
    let Some(found) = callers::calls(folded, function) else {
        let like = callers::names_with(folded, function, MAX_NAMES);
        let like = if like.is_empty() { String::new() } else { format!("; similar: {}", like.join(", ")) };
        anyhow::bail!("{}: no stack has a function named {function}{like}", args.source.file.display());
    };
    if analysis.folded.len() > 1 {
        print_message(&format!("fpprof: from the {} stacks; --strategies chooses others", analysis.default_strategy));
    }
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => json::value(&found, &mut out),
        false => calls::terminal(&found, &output::style(), &mut out),
    })?;
    Ok(DONE)
}

/// Writes the HTML page, and prints its size.
fn write_page(analysis: &Analysis, path: &Path) -> anyhow::Result<()> {
    output::write_whole(path, |mut out| page::html(analysis, &mut out))?;
    if path != Path::new("-") {
        let bytes = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        print_message(&format!("wrote {} ({} kB)", path.display(), bytes.div_ceil(1000)));
    }
    Ok(())
}
