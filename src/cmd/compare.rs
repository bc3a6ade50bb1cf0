//! `fpprof compare`: the experiment. Every mode, interleaved and repeated, into one report directory.

use crate::compare::metric::Finder;
use crate::compare::mode::{self, Mode};
use crate::compare::run::RunConfig;
use crate::compare::{experiment, publish};
use crate::exit::{DONE, FAILED, Usage};
use crate::values;
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Run a command under every mode, interleaved and repeated, and say what each costs and what it breaks
///
/// Writes one directory: results.json, report.md, report.html, flame graphs, and what the command printed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Modes: none, none-again (the command alone, a second time: what differs there is noise), fp, dwarf:BYTES, both:BYTES,
and for perf beside us perf:fp, perf:dwarf:BYTES.

Examples:
  fpprof compare --metric '([0-9.]+) IOPS' -- ./bench.sh
  fpprof compare --modes none,none-again,fp,dwarf:8K,perf:dwarf:8K --repeat 5 -- ./program"
)]
pub(crate) struct Args {
    /// Which modes, by commas
    #[arg(
        long, value_name = "M", value_delimiter = ',', value_parser = mode::parse,
        default_value = "none,none-again,fp,dwarf:4K,dwarf:8K,dwarf:16K,dwarf:32K,dwarf:64K,both:64K"
    )]
    modes: Vec<Mode>,
    /// Rounds; every round runs every mode once, in an order of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The workload's own figure in what it prints: a regular expression with one group around the number
    #[arg(long, value_name = "REGEX", value_parser = Finder::new)]
    metric: Option<Finder>,
    /// What the figure is called
    #[arg(long, value_name = "NAME", default_value = "metric", requires = "metric")]
    metric_name: String,
    /// A smaller figure is better (a time, not a throughput)
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// Samples a second and CPU
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 999, value_parser = values::rate)]
    freq: u64,
    /// Seed of the order of runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The directory of the report; it must not exist yet
    #[arg(short, long, value_name = "DIR", default_value = "fpprof-compare")]
    output: PathBuf,
    /// Keep the recordings
    #[arg(long)]
    keep: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs the subcommand; fails when a mode has no good run.
///
/// # Errors
/// If the directory cannot be made, no mode can be run, or the report cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let modes = checked_modes(args)?;
    make_directory(&args.output)?;
    let config = RunConfig {
        command: args.command.clone(),
        freq: args.freq,
        metric: args.metric.clone(),
        dir: args.output.clone(),
        keep: args.keep,
    };
    let plan = experiment::Plan {
        modes,
        repeats: args.repeat,
        seed: args.seed,
        metric_name: args.metric_name.clone(),
        lower_is_better: args.lower_is_better,
    };
    let experiment = experiment::run(&config, &plan)?;
    publish::write(&experiment, &args.output)?;
    if !args.keep {
        fs::remove_dir_all(args.output.join("recordings")).context("removing the directory of recordings")?;
    }
    let all_ran = experiment.rows.iter().all(|row| !row.runs.is_empty());
    Ok(if all_ran { DONE } else { FAILED })
}

fn checked_modes(args: &Args) -> anyhow::Result<Vec<Mode>> {
    let mut modes: Vec<Mode> = Vec::new();
    for &mode in &args.modes {
        anyhow::ensure!(!modes.contains(&mode), Usage(format!("mode {mode} is there twice")));
        modes.push(mode);
    }
    Ok(modes)
}

fn make_directory(dir: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot make {}: choose another directory with -o", dir.display());
    fs::create_dir(dir).with_context(context)?;
    fs::create_dir(dir.join("recordings")).with_context(context)?;
    fs::create_dir(dir.join("output")).with_context(context)
}
