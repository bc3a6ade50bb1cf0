//! `fpprof flamegraph`: draws the stacks of a recording or a store as SVG.

use crate::exit::DONE;
use crate::output::{self, beside, print_message};
use crate::recordings::{Source, print_warnings};
use crate::stored::{self, Rows, is_store, refuse_of_recordings};
use crate::worker::Files;
use anyhow::Context as _;
use fpprof_analysis::Analysis;
use fpprof_analysis::folded::Folded;
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::flamegraph;
use fpprof_reports::store::folded;
use std::io;
use std::path::{Path, PathBuf};

/// Draw a flame graph as SVG
///
/// Truncated and broken stacks have a root of their own, which says why. Colours show how each frame was found. FILE may also
/// be the directory of a store, whose intervals are added up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof flamegraph run.fpprof -o run.svg
  fpprof flamegraph run.fpprof --strategy fp -o fp.svg
  fpprof flamegraph run.fpprof --event off-cpu -o blocked.svg
  fpprof flamegraph run.fpprof -o - | rsvg-convert > run.png
  fpprof flamegraph /var/lib/fpprof --where service=nginx.service --from 2026-11-26T14:00:00Z -o nginx.svg")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    rows: Rows,
    /// Strategy to unwind with: fp, dwarf, dwarf@BYTES, cfi, sframe, elfutils or libunwind
    #[arg(long, value_name = "S")]
    strategy: Option<Strategy>,
    /// Output file, `-` for stdout [default: the recording's name with .svg; for a store, store.svg]
    #[arg(short, long, value_name = "SVG")]
    output: Option<PathBuf>,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        let files = self.source.files([self.output().as_path()], self.strategy.as_slice());
        // Those of a store are found by the process that parses them.
        Files { reads: files.reads || is_store(&self.source.file), ..files }
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| match is_store(&self.source.file) {
            true => PathBuf::from("store.svg"),
            false => beside(&self.source.file, "svg"),
        })
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the recording or store cannot be read or has no such samples, or the picture cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let output = args.output();
    if is_store(&args.source.file) {
        draw_store(args, &output)?;
    } else {
        args.rows.refuse()?;
        draw_recording(args, &output)?;
    }
    if output != Path::new("-") {
        print_message(&format!("{} (open it in a browser: click to zoom, Ctrl-F to search)", output.display()));
    }
    Ok(DONE)
}

fn draw_recording(args: &Args, output: &Path) -> anyhow::Result<()> {
    let wanted: Vec<Strategy> = args.strategy.iter().copied().collect();
    let analysis = args.source.analyse(&wanted)?;
    print_warnings(&analysis.summary);
    let mut subject = args.source.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(filtered) = &analysis.summary.filtered {
        subject.push_str(&format!(" {}", filtered.filter));
    }
    draw(&analysis, &analysis.default_strategy, &subject, output)
}

fn draw_store(args: &Args, output: &Path) -> anyhow::Result<()> {
    refuse_of_recordings(&args.source)?;
    let profile = stored::profile(&args.source, &args.rows, args.strategy)?;
    let event = profile.events.first().map(|event| event.name.clone()).unwrap_or_default();
    let mut title = args.source.file.display().to_string();
    title.push_str(&args.rows.conditions());
    let options = flamegraph::Options { title, event, strategy: profile.strategy.clone(), width: None };
    write(&folded(&profile), &options, output)
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
    write(folded, &options, output)
}

fn write(folded: &Folded, options: &flamegraph::Options, output: &Path) -> anyhow::Result<()> {
    output::write_whole(output, |mut out| flamegraph::svg(folded, options, &mut out).map_err(io::Error::from))
}
