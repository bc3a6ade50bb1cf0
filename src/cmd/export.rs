//! `fpprof export`: the stacks of a recording for other tools.

use crate::exit::DONE;
use crate::output;
use crate::recordings::Source;
use anyhow::Context as _;
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::folded;
use std::path::PathBuf;

/// Write the stacks of a recording for other tools
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof export run.fpprof --format folded | inferno-flamegraph > run.svg")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Folded)]
    format: Format,
    /// How to unwind: fp, dwarf, dwarf@BYTES, elfutils or libunwind
    #[arg(long, value_name = "S")]
    strategy: Option<Strategy>,
    /// Where it goes; `-` is stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line for each distinct stack: frames from the root, separated by `;`, then the number of samples
    Folded,
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If the recording cannot be read or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let wanted: Vec<Strategy> = args.strategy.iter().copied().collect();
    let analysis = args.source.analyse(&wanted)?;
    let stacks = analysis.folded.get(&analysis.default_strategy).context("the strategy was analysed")?;
    output::write_whole(&args.output, |mut out| match args.format {
        Format::Folded => folded::write(stacks, &mut out),
    })?;
    Ok(DONE)
}
