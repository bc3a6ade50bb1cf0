//! `fpprof flamegraph`: draws the stacks of a recording as SVG.

use crate::exit::DONE;
use crate::output::{self, print_message};
use crate::recordings::{Source, print_warnings};
use crate::worker::Files;
use anyhow::Context as _;
use fpprof_analysis::Analysis;
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::flamegraph;
use std::io;
use std::path::{Path, PathBuf};

/// Draw a flame graph as SVG
///
/// Truncated and broken stacks have a root of their own, which says why. Colours show how each frame was found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof flamegraph run.fpprof -o run.svg
  fpprof flamegraph run.fpprof --strategy fp -o fp.svg
  fpprof flamegraph run.fpprof --event off-cpu -o blocked.svg
  fpprof flamegraph run.fpprof -o - | rsvg-convert > run.png")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Strategy to unwind with: fp, dwarf, dwarf@BYTES, cfi, sframe, elfutils or libunwind
    #[arg(long, value_name = "S")]
    strategy: Option<Strategy>,
    /// Output file, `-` for stdout [default: the recording's name with .svg]
    #[arg(short, long, value_name = "SVG")]
    output: Option<PathBuf>,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        self.source.files([self.output().as_path()], self.strategy.as_slice())
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| self.source.file.with_extension("svg"))
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the recording cannot be read or has no such samples, or the picture cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let wanted: Vec<Strategy> = args.strategy.iter().copied().collect();
    let analysis = args.source.analyse(&wanted)?;
    print_warnings(&analysis.summary);
    let output = args.output();
    let mut subject = args.source.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(filtered) = &analysis.summary.filtered {
        subject.push_str(&format!(" {}", filtered.filter));
    }
    draw(&analysis, &analysis.default_strategy, &subject, &output)?;
    if output != Path::new("-") {
        print_message(&format!("{} (open it in a browser: click to zoom, Ctrl-F to search)", output.display()));
    }
    Ok(DONE)
}

/// Draws the stacks of one strategy.
///
/// # Errors
/// If the picture cannot be written.
pub(crate) fn draw(analysis: &Analysis, strategy: &str, subject: &str, output: &Path) -> anyhow::Result<()> {
    let folded = analysis.folded.get(strategy).context("the strategy was analysed")?;
    let options = flamegraph::Options {
        title: subject.to_owned(),
        event: analysis.summary.environment.event.clone(),
        strategy: strategy.to_owned(),
        width: None,
    };
    output::write_whole(output, |mut out| flamegraph::svg(folded, &options, &mut out).map_err(io::Error::other))
}
