//! Benchmarks fpprof's unwinder against framehop, libdw and libunwind: the same samples of real programs, the same
//! machine, one run.
//!
//! Inputs are recorded once and kept. Every engine measures every input in a process of its own, so that memory use and
//! first touches are its own. The engines take turns, so that no engine gets a quieter machine than another. The times
//! are CPU time of one thread: of the first pass, including everything that is read and built for it, and of the best
//! later pass. Loading the samples is not timed.
//!
//! To see where the time goes, run `measure` under callgrind, which counts instructions and cache misses of the passes
//! alone: `valgrind --tool=callgrind --cache-sim=yes --toggle-collect='*Engine*::pass' fpprof-bench measure ours FILE
//! --warm 0`. The results are in `workloads/results/unwind-limits.md`.
#![forbid(unsafe_code)]

mod clock;
mod end_to_end;
mod engines;
mod generate;
mod goals;
mod inputs;
mod load;
mod measure;
mod measured;
mod progress;
mod report;

use clap::{Parser, Subcommand};
use engines::Name;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

/// Measures unwinders over the same samples.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Records what is missing, measures everything and writes unwind.json and unwind.md
    Unwind(Box<RunArgs>),
    /// Measures one engine over one recording; prints JSON
    Measure {
        /// The engine
        engine: Name,
        /// The recording
        file: PathBuf,
        /// Where a hash of each stack goes, of a pass of its own that is not timed
        #[arg(long)]
        hashes: Option<PathBuf>,
        /// Passes after the first
        #[arg(long, default_value_t = 4)]
        warm: usize,
    },
    /// What inferno-collapse-perf does: the text of perf script from stdin, folded stacks to stdout
    Collapse,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Where inputs are kept and results go
    #[arg(long, default_value = "target/bench-unwind")]
    dir: PathBuf,
    /// The fpprof that records, imports and exports
    #[arg(long, default_value = "target/release/fpprof")]
    fpprof: PathBuf,
    /// How often each engine measures each input; engines take turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of the inputs that run as long as they are told
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Only these inputs
    #[arg(long, value_delimiter = ',')]
    inputs: Vec<String>,
    /// Leave out perf and what it is compared with
    #[arg(long)]
    no_end_to_end: bool,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Unwind(args) => run(&args),
        Command::Measure { engine, file, hashes, warm } => {
            let measured = measure::measure(engine, &file, hashes.as_deref(), warm)?;
            Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&measured)?)?)
        }
        Command::Collapse => end_to_end::collapse(),
    }
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let mut report = report::Report::new()?;
    for input in inputs::all().iter().filter(|input| args.inputs.is_empty() || args.inputs.contains(&input.name)) {
        let file = inputs::recorded(input, &args.dir, &args.fpprof, args.seconds)?;
        report.inputs.push(measure::compare(&input.name, &file, &args.dir, args.rounds)?);
        if !args.no_end_to_end {
            report.end_to_end.push(end_to_end::measure(input, &args.dir, &args.fpprof, args.seconds, args.rounds)?);
        }
    }
    let mut json = BufWriter::new(std::fs::File::create(args.dir.join("unwind.json"))?);
    serde_json::to_writer_pretty(&mut json, &report)?;
    json.flush()?;
    let text = report.markdown();
    std::fs::write(args.dir.join("unwind.md"), &text)?;
    Ok(write!(std::io::stdout(), "{text}")?)
}
