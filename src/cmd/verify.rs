//! `fpprof verify`: steps a program and checks every strategy against its true stack.

use crate::exit::{DONE, FAILED, Usage};
use crate::{gate, output, verify};
use fpprof_analysis::oracle::{Verification, Wanted, available_strategies, check_strategy};
use fpprof_analysis::statistics;
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::oracle;
use fpprof_reports::terminal::Style;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Single-step a program and check every strategy against its true stack
///
/// The true stack comes from following calls, returns and signals, and needs neither frame pointers nor unwind
/// information. Steps all threads of the command, also after an exec; child processes run freely and are counted. The
/// command shares one CPU with fpprof. Each step takes about ten microseconds; with `--leap`, most of the program runs
/// about a hundred times faster. Without `-o`, the command's stdout goes to stderr, and stdout holds the report only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof verify -- ls -l
  fpprof verify --every 100 --show 5 -- /bin/true
  fpprof verify --leap 5000 -- python3 -c 'print(1)'
  fpprof verify --strategies dwarf,elfutils --json -- ./program
  fpprof verify --recording checked.fpprof -- ./program && fpprof flamegraph checked.fpprof
  fpprof verify --min-exact 99.8 --max-wrong 0.05 -- ./program")]
pub(crate) struct Args {
    /// Strategies to check: fp, dwarf, dwarf@BYTES, cfi (walks by the code that runs in the kernel), sframe, elfutils,
    /// libunwind [default: all in this build but sframe]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    strategies: Vec<Strategy>,
    /// Check one in N instructions, chosen at random
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Skip the first N instructions
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Kill the program after N instructions
    #[arg(long, value_name = "N")]
    max_instructions: Option<u64>,
    /// Step in random windows only, and run at full speed past about N calls, returns and jumps in between
    ///
    /// Each call, return or jump starts a window with a chance of 1 in N, so code without them, such as a long loop, is
    /// checked less. Breakpoints where the true stack changes keep it known.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    leap: Option<u64>,
    /// Average number of instructions per window of --leap
    #[arg(long, value_name = "N", default_value_t = 200, requires = "leap", value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// Seed of an earlier run's report, to check the same instructions [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Show the first N wrong stacks, each kind once per instruction: both stacks and the CFI row
    #[arg(long, value_name = "N", default_value_t = 0)]
    show: usize,
    /// Strategy that --show, --min-exact and --max-wrong look at
    #[arg(long, value_name = "STRATEGY", default_value = "dwarf")]
    of: Strategy,
    /// Write a recording with a sample of each checked instruction
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// Fail if less than PCT of the stacks are exact
    #[arg(long, value_name = "PCT", value_parser = gate::percent)]
    min_exact: Option<f64>,
    /// Fail if more than PCT of the stacks are wrong without a flag
    #[arg(long, value_name = "PCT", value_parser = gate::percent)]
    max_wrong: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Output file, `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Become the command, stopped for the parent that steps it: what a run of this subcommand starts first
    #[arg(long, hide = true)]
    stepped: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the command cannot be started or stepped, or the report cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if args.stepped {
        return Err(verify::become_stepped(&args.command));
    }
    let strategies = strategies(args)?;
    let to_stdout = args.output == Path::new("-");
    let options = verify::Options {
        command: args.command.clone(),
        is_stdout_ours: to_stdout,
        strategies,
        choice: choice(args)?,
        wanted: Wanted { max: args.show, strategy: args.of },
        recording: args.recording.clone(),
    };
    let verification = verify::run(&options)?;
    let style = if to_stdout { output::style() } else { Style::default() };
    output::write_whole(&args.output, |mut out| {
        if args.json {
            fpprof_reports::json::value(&verification, &mut out)
        } else {
            oracle::terminal(&verification, &style, &mut out)
        }
    })?;
    Ok(gate(args, &verification))
}

/// The instructions to check.
fn choice(args: &Args) -> anyhow::Result<verify::Choice> {
    anyhow::ensure!(
        args.seed.is_none() || args.leap.is_some() || args.every > 1,
        Usage("--seed needs --leap or --every: without them, every instruction is checked".to_owned())
    );
    Ok(verify::Choice {
        every: args.every,
        skip: args.skip,
        max: args.max_instructions,
        leaps: args.leap.map(|transfers| verify::Leaps { window: args.window, transfers }),
        // Short enough for a user to type, and small enough for every JSON reader.
        seed: args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
    })
}

/// The requested strategies, or all of this build, without duplicates.
fn strategies(args: &Args) -> anyhow::Result<Vec<Strategy>> {
    let mut strategies = Vec::new();
    for &strategy in &args.strategies {
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    if strategies.is_empty() {
        strategies = available_strategies();
    }
    for &strategy in &strategies {
        check_strategy(strategy).map_err(|error| Usage(error.to_string()))?;
    }
    let needs_own = args.show > 0 || args.min_exact.is_some() || args.max_wrong.is_some();
    anyhow::ensure!(
        !needs_own || strategies.contains(&args.of),
        Usage(format!("strategy {} is not among those that are checked; choose one with --of", args.of))
    );
    Ok(strategies)
}

/// The exit status; prints a line for every limit that was not met.
fn gate(args: &Args, verification: &Verification) -> u8 {
    let own = args.of.to_string();
    let Some(verdicts) = verification.strategies.iter().find(|verdicts| verdicts.name == own) else { return DONE };
    if verification.checked == 0 && (args.min_exact.is_some() || args.max_wrong.is_some()) {
        output::print_message(&format!("fpprof: {own}: no instruction was checked: see --skip and --every"));
        return FAILED;
    }
    let share = |part: u64| statistics::percent(part, verification.checked).unwrap_or(0.0);
    let wrong = verdicts.wrong.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
    let mut status = DONE;
    if let Some(least) = args.min_exact
        && share(verdicts.exact) < least
    {
        output::print_message(&format!(
            "fpprof: {own}: {:.3} % of the stacks are exact (required: {least} %)",
            share(verdicts.exact)
        ));
        status = FAILED;
    }
    if let Some(most) = args.max_wrong
        && share(wrong) > most
    {
        output::print_message(&format!(
            "fpprof: {own}: {:.3} % of the stacks are wrong without a flag (allowed: {most} %)",
            share(wrong)
        ));
        status = FAILED;
    }
    status
}
