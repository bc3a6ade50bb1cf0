//! Cost of collecting: fpprof in every mode next to `perf record`, bpftrace and samply, on nbdkit and fio, in one run.
//!
//! Every round runs every mode once, starting with a different one each time, so that slow changes of the machine
//! affect all alike. The profiled command records its start and end, so that the profiler's time before and after is
//! known. Stacks from fpprof and perf are judged by the same unwinder, fpprof's, so that collectors are compared.
//!
//! Then the BPF program alone: nanoseconds per sample by stack size, next to a memcpy of as many bytes; and the whole
//! sampling interrupt, next to perf's.
#![forbid(unsafe_code)]

mod agent;
mod bpf_cost;
mod compiler;
mod config;
mod goals;
mod handler;
mod judge;
mod modes;
mod otel;
mod overhead;
mod processes;
mod progress;
mod report;
mod rules;
mod run;
mod summary;
mod target;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use config::RunConfig;
use modes::Mode;
use progress::print_progress;
use run::Run;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// Measures collectors.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs everything by turns and writes collect.json and collect.md
    Collect(Box<CollectArgs>),
    /// What profilers take from a program that computes; no other may run; writes overhead.json and overhead.md
    Overhead(overhead::Args),
    /// What continuous profiling costs; writes agent.md
    Agent(agent::Args),
    /// How soon walks in the kernel have their rules, and at which cost; writes rules.md
    Rules(rules::Args),
    /// Runs a command and writes into a file when it began and ended
    Target {
        /// The file
        times: PathBuf,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Makes a flame graph of the text of perf script: from stdin to stdout
    Svg,
}

#[derive(Debug, clap::Args)]
struct CollectArgs {
    /// Where recordings are kept for a while and results go
    #[arg(long, default_value = "target/bench-collect")]
    dir: PathBuf,
    /// The fpprof that records
    #[arg(long, default_value = "target/release/fpprof")]
    fpprof: PathBuf,
    /// The workload; it is given the seconds to run and prints `N IOPS`
    #[arg(long, default_value = "workloads/nbdkit-fio.sh")]
    workload: PathBuf,
    /// Samples a second and CPU
    #[arg(long, value_delimiter = ',', default_values_t = [99, 999, 4999])]
    rates: Vec<u64>,
    /// How often each mode runs at each rate
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// No further round of the tables begins that would end later than this after the start
    #[arg(long, default_value_t = 13)]
    minutes: u64,
    /// Every size of chunk at every rate, rather than at 999 Hz only
    #[arg(long)]
    all: bool,
    /// Only modes whose name contains one of these, and `none`
    #[arg(long, value_delimiter = ',')]
    modes: Vec<String>,
    /// One short round of the goals, and one of a second at 999 Hz in the main modes, to see that all of it works
    #[arg(long)]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Collect(args) => collect(*args),
        Command::Rules(args) => rules::bench(&args),
        Command::Agent(args) => agent::bench(&args),
        Command::Overhead(args) => overhead::run(&args),
        Command::Target { times, command } => std::process::exit(target::run(&times, &command)?),
        Command::Svg => judge::svg(),
    }
}

fn collect(mut args: CollectArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.rates, args.rounds, args.seconds) = (vec![999], 1, 1);
    }
    std::fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
    let config = RunConfig {
        fpprof: args.fpprof.canonicalize().context("finding fpprof; build it first, or give --fpprof")?,
        workload: args.workload.canonicalize().context("finding the workload")?,
        dir: args.dir.canonicalize()?,
        seconds: args.seconds,
        draws: true,
        program: None,
        names: &["nbdkit", "fio"],
    };
    let started = Instant::now();
    let goal_runs = goals::GoalRuns::measure(&config, args.quick);
    let costs = bpf_cost::measure(&config, args.quick)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut rounds = 0;
    let mut round_began = started.elapsed();
    for round in 0..args.rounds.max(1) {
        let spent = started.elapsed();
        if round > 0 && (spent + (spent - round_began)).as_secs() > args.minutes * 60 {
            print_progress(&format!("no time for round {} of {}", round + 1, args.rounds));
            break;
        }
        (rounds, round_began) = (round + 1, spent);
        for &rate in &args.rates {
            let modes = chosen(&args, rate);
            let turn = round as usize % modes.len().max(1);
            for &mode in modes.iter().cycle().skip(turn).take(modes.len()) {
                print_progress(&format!("{rate} Hz, round {} of {}: {mode}", round + 1, args.rounds));
                runs.push(run::run(&config, mode, rate, round, round == 0));
            }
        }
    }
    let report = report::Report::new(&args.rates, rounds, args.seconds, &runs, goal_runs, costs)?;
    let mut json = serde_json::to_string_pretty(&report)?;
    json.push('\n');
    std::fs::write(args.dir.join("collect.json"), json)?;
    let text = report.markdown();
    std::fs::write(args.dir.join("collect.md"), &text)?;
    Ok(write!(std::io::stdout(), "{text}")?)
}

fn chosen(args: &CollectArgs, rate: u64) -> Vec<Mode> {
    let every_size = args.all || (rate == 999 && !args.quick);
    let is_wanted = |mode: &Mode| {
        let name = mode.to_string();
        args.modes.is_empty() || *mode == Mode::None || args.modes.iter().any(|wanted| name.contains(wanted.as_str()))
    };
    modes::all(every_size).into_iter().filter(is_wanted).collect()
}
