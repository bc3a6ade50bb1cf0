//! `fpprof diff`: where two strategies disagree over the same samples.

use crate::exit::{DONE, FAILED, Usage};
use crate::output::{self, say};
use crate::recordings::Source;
use anyhow::Context as _;
use fpprof_analysis::agreement::{Disagreement, Options, disagreement};
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::{agreement, json};
use std::num::NonZeroUsize;
use std::path::Path;

/// Say where two strategies disagree over the same samples: which frame first, why, and who is right
///
/// Frames are told apart by return address and frame address, so that recursion does not confuse them. Who is right is
/// said where the instructions before the return addresses show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Strategies: fp, dwarf, dwarf@BYTES (the same with smaller chunks), elfutils, libunwind.

Examples:
  fpprof diff run.fpprof --strategies dwarf,elfutils
  fpprof diff run.fpprof --strategies dwarf,fp --examples 1
  fpprof diff run.fpprof --strategies dwarf,elfutils --min-same 99 --json > diff.json")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Two strategies, by a comma; the first is the reference
    #[arg(long, alias = "strategy", value_name = "REF,OTHER", value_delimiter = ',', default_value = "dwarf,fp")]
    strategies: Vec<Strategy>,
    /// Examples for each reason, each at another place
    #[arg(long, value_name = "N", default_value_t = 2)]
    examples: usize,
    /// Fail unless so many per cent of the stacks that both call complete have the same frames
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    min_same: Option<f64>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If the recording cannot be read or does not support a strategy.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let &[reference, other] = args.strategies.as_slice() else {
        return Err(Usage("give two strategies, such as --strategies dwarf,elfutils".to_owned()).into());
    };
    let modules = args.source.modules();
    let mut recording = args.source.open()?;
    let options = Options {
        reference,
        other,
        max_examples: args.examples,
        resolver: &modules,
        n_threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let report = disagreement(&mut recording, &options).with_context(|| args.source.file.display().to_string())?;
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => json::value(&report, &mut out),
        false => agreement::terminal(&report, &output::style(), &mut out),
    })?;
    let failure = args.min_same.and_then(|min| failure(&report, min));
    if let Some(failure) = &failure {
        say(&format!("fpprof: {failure}"));
    }
    Ok(if failure.is_none() { DONE } else { FAILED })
}

/// What is wrong with the share of equal stacks; nothing to compare fails too.
#[expect(clippy::cast_precision_loss, reason = "samples of a recording are below 2^53")]
fn failure(report: &Disagreement, min: f64) -> Option<String> {
    let (same, all) = (report.both_complete_same, report.both_complete);
    if all == 0 {
        return Some("no stack is complete under both strategies".to_owned());
    }
    let percent = same as f64 / all as f64 * 100.0;
    (percent < min)
        .then(|| format!("{same} of {all} stacks complete under both are the same ({percent:.3} %), below {min} %"))
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_error| format!("`{text}` is not a number"))?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("give 0 to 100".to_owned()) }
}
