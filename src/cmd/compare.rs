//! `fpprof compare`: runs every mode, interleaved and repeated, and writes one report directory.

use crate::compare::config::RunConfig;
use crate::compare::metric::Finder;
use crate::compare::mode::{self, Mode};
use crate::compare::{experiment, publish};
use crate::exit::{DONE, FAILED, Usage};
use crate::output::private_directory;
use crate::values;
use anyhow::Context as _;
use fpprof_analysis::experiment::Run;
use fpprof_collector::StopFlag;
use std::fs;
use std::path::{Path, PathBuf};

/// Run a command under several modes and compare their cost and their stacks
///
/// Runs every mode once per round, in random order. Writes a directory with results.json, report.md, report.html, flame
/// graphs, and the command's output. If interrupted, it writes the report of the runs until then. If a run fails, the
/// others go on, and the exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Modes: none (no profiler), none-again (the same again: any difference is noise), fp,
dwarf:BYTES, both:BYTES, cfi:BYTES; with perf: perf:fp, perf:dwarf:BYTES.

Examples:
  fpprof compare --metric '([0-9.]+) IOPS' -- ./bench.sh
  fpprof compare --modes none,none-again,fp,dwarf:8K,perf:dwarf:8K --repeat 5 -- ./program")]
pub(crate) struct Args {
    /// Modes to run
    #[arg(
        long, value_name = "M", value_delimiter = ',', value_parser = mode::parse,
        default_value = "none,none-again,fp,dwarf:4K,dwarf:8K,dwarf:16K,dwarf:32K,dwarf:64K,both:64K"
    )]
    modes: Vec<Mode>,
    /// Number of rounds; each runs every mode once, in random order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Regular expression that finds the workload's metric in its output, with one group around the number
    #[arg(long, value_name = "REGEX", value_parser = Finder::new)]
    metric: Option<Finder>,
    /// Name of the metric
    #[arg(long, value_name = "NAME", default_value = "metric", requires = "metric")]
    metric_name: String,
    /// Lower values of the metric are better (a time, not a throughput)
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// Samples per second on each CPU
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 999, value_parser = values::rate)]
    freq: u64,
    /// Seed for the order of the runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output directory; must not exist yet
    #[arg(short, long, value_name = "DIR", default_value = "fpprof-compare")]
    output: PathBuf,
    /// Keep the recordings
    #[arg(long)]
    keep: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs the subcommand; fails if a run failed, or has no metric although one was asked for.
///
/// # Errors
/// If the directory cannot be created, no mode can be run, or the report cannot be written.
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
    let stop = StopFlag::on_signals().context("cannot handle signals")?;
    let experiment = experiment::run(&config, &plan, stop)?;
    publish::write(&experiment, &args.output)?;
    if !args.keep {
        fs::remove_dir_all(args.output.join("recordings")).context("removing the directory of recordings")?;
    }
    let counts = |run: &&Run| args.metric.is_none() || run.metric.value().is_some();
    let all_ran = experiment.rows.iter().all(|row| row.runs.iter().filter(counts).count() >= args.repeat as usize);
    Ok(if all_ran && stop.signal().is_none() { DONE } else { FAILED })
}

fn checked_modes(args: &Args) -> anyhow::Result<Vec<Mode>> {
    let mut modes: Vec<Mode> = Vec::new();
    for &mode in &args.modes {
        anyhow::ensure!(!modes.contains(&mode), Usage(format!("mode {mode} is given twice")));
        modes.push(mode);
    }
    Ok(modes)
}

/// Creates the directory of an experiment, accessible to its owner only.
fn make_directory(dir: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot create {}; choose another directory with -o", dir.display());
    let made = [dir.to_owned(), dir.join("recordings"), dir.join("output")];
    made.iter().try_for_each(|dir| private_directory(dir, false)).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    /// Check that other users cannot read the output of an experiment's commands, nor its recordings.
    #[test]
    fn experiments_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("experiment");
        make_directory(&path).unwrap();
        for name in ["", "output", "recordings"] {
            assert_eq!(path.join(name).metadata().unwrap().mode() & 0o777, 0o700, "{name}");
        }
        assert!(make_directory(&path).is_err(), "it is there");
    }
}
