//! `fpprof export`: the stacks of a recording for other tools.

use super::import;
use crate::exit::{DONE, Usage};
use crate::output::{self, say};
use crate::positioned::Positioned;
use crate::recordings::{Source, say_warnings};
use crate::worker::Files;
use anyhow::{Context as _, bail};
use fpprof_analysis::folded::Folded;
use fpprof_analysis::import::perf_events;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::{Options, fold_perf_data};
use fpprof_reports::folded;
use std::io::BufReader;
use std::path::PathBuf;

/// Bytes of perf's file read at a time: where samples are passed over, and where their stacks are.
const EVENT_BYTES: usize = 64;
const SAMPLE_BYTES: usize = 512;

/// Write the stacks of a recording for other tools
///
/// FILE may also be a perf.data file: its samples are unwound and folded as they are read, which is faster than importing
/// it first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof export run.fpprof --format folded | inferno-flamegraph > run.svg
  fpprof export perf.data --no-inline | inferno-flamegraph > perf.svg
  fpprof export run.fpprof --event off-cpu          # counts nanoseconds blocked, not samples")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Folded)]
    format: Format,
    /// Strategy to unwind with: fp, dwarf, dwarf@BYTES, cfi, sframe, elfutils or libunwind
    #[arg(long, value_name = "S")]
    strategy: Option<Strategy>,
    /// Output file, `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per distinct stack: frames from the root, separated by `;`, then samples (off-cpu: nanoseconds)
    Folded,
}

impl Args {
    /// What it may read and write.
    pub(crate) fn files(&self) -> Files {
        self.source.files([self.output.as_path()], self.strategy.as_slice())
    }
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If the recording cannot be read or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let wanted: Vec<Strategy> = args.strategy.iter().copied().collect();
    let write = |stacks: &Folded| {
        output::write_whole(&args.output, |mut out| match args.format {
            Format::Folded => folded::write(stacks, &mut out),
        })
    };
    if import::is_of_perf(&args.source.file)? {
        write(&of_perf(&args.source, wanted)?)?;
    } else {
        let analysis = args.source.analyse(&wanted)?;
        say_warnings(&analysis.summary);
        write(analysis.folded.get(&analysis.default_strategy).context("the strategy was analysed")?)?;
    }
    Ok(DONE)
}

/// The stacks of a perf.data file.
fn of_perf(source: &Source, strategies: Vec<Strategy>) -> anyhow::Result<Folded> {
    let context = || source.file.display().to_string();
    if !import::is_file_mode(&source.file)? {
        bail!("{}: perf wrote this into a pipe, so it must be converted first: `fpprof import`", context());
    }
    let positioned = || anyhow::Ok(Positioned::new(import::open(&source.file)?));
    if source.only.has_time() {
        let words = "--time needs a recording: convert the file first with `fpprof import`";
        return Err(Usage(words.to_owned()).into());
    }
    // Of the samples only the heads are read here.
    let events = perf_events(BufReader::with_capacity(EVENT_BYTES, positioned()?));
    let events = events.with_context(context)?;
    let modules = source.modules();
    let mut options = Options::new(&modules);
    options.strategies = strategies;
    options.event = source.event.clone();
    options.filter = source.only.filter();
    options.detail = source.detail();
    options.unwinding = source.unwinding.options();
    options.is_this_machine = source.is_this_machine(&events.0);
    let samples = BufReader::with_capacity(SAMPLE_BYTES, positioned()?);
    let stacks = fold_perf_data(events, samples, &options).with_context(context)?;
    import::say_imported(&stacks.imported);
    stacks.warnings.iter().for_each(|warning| say(&format!("warning  {warning}")));
    Ok(stacks.folded)
}
