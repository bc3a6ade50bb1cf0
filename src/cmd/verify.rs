//! `fpprof verify`: steps a program and checks every strategy against its true stack.

use crate::exit::{DONE, FAILED, Usage};
use crate::{output, verify};
use fpprof_analysis::oracle::{Verification, Wanted, available_strategies, check_strategy};
use fpprof_analysis::strategy::Strategy;
use fpprof_reports::oracle;
use fpprof_reports::terminal::Style;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Step a program, and check every strategy against its true stack at every instruction
///
/// The true stack is kept by following calls, returns and signals; it needs neither frame pointers nor unwind
/// information. All threads of the command are stepped, and it is followed through exec; processes it makes run
/// freely and are counted. The command shares one CPU with us. Stepping takes some ten microseconds an instruction; with
/// `--leap` most of the program runs some hundred times faster. Without `-o` the command's standard output goes to
/// standard error, so that only the report is on standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof verify -- ls -l
  fpprof verify --every 100 --show 5 -- /bin/true
  fpprof verify --leap 5000 -- python3 -c 'print(1)'
  fpprof verify --strategies dwarf,elfutils --json -- ./program
  fpprof verify --min-exact 99.8 --max-wrong 0.05 -- ./program")]
pub(crate) struct Args {
    /// Strategies to check: fp, dwarf, dwarf@BYTES, elfutils, libunwind [default: all that are built]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    strategies: Vec<Strategy>,
    /// Check one in N instructions, chosen at random
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Check none of the first N instructions
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Kill the program after N instructions
    #[arg(long, value_name = "N")]
    max_instructions: Option<u64>,
    /// Step windows only, and run past some N calls, returns and jumps at full speed between two of them
    ///
    /// One in N of these turns begins a window; every turn has the same chance. Of code without turns, such as a long
    /// loop, less is checked than of other code. Breakpoints stop the program where its true stack changes, so that it
    /// stays known.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    leap: Option<u64>,
    /// Instructions in a window between two leaps, on average
    #[arg(long, value_name = "N", default_value_t = 200, requires = "leap", value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// Choose the same instructions as the run whose report says this seed [default: another one for each run]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Show the first N disagreements, each kind once at each instruction: both stacks and the row behind it
    #[arg(long, value_name = "N", default_value_t = 0)]
    show: usize,
    /// Show those of this strategy, and gate on it
    #[arg(long, value_name = "STRATEGY", default_value = "dwarf")]
    of: Strategy,
    /// Fail if less than PCT per cent of the stacks are exact
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    min_exact: Option<f64>,
    /// Fail if more than PCT per cent of the stacks are wrong and do not say so
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    max_wrong: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the report goes; `-` is stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Become the command, stopped for the parent that steps it: what a run of this subcommand starts first
    #[arg(long, hide = true)]
    stepped: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// Runs the subcommand; gives the exit status.
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

/// The instructions asked for.
fn choice(args: &Args) -> anyhow::Result<verify::Choice> {
    anyhow::ensure!(
        args.seed.is_none() || args.leap.is_some() || args.every > 1,
        Usage("--seed without --leap or --every: all instructions are checked, and none are chosen".to_owned())
    );
    Ok(verify::Choice {
        every: args.every,
        skip: args.skip,
        max: args.max_instructions,
        leaps: args.leap.map(|turns| verify::Leaps { window: args.window, turns }),
        // Short enough to be typed, and for every reader of JSON.
        seed: args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
    })
}

/// The strategies asked for, or all of this build, once each.
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

/// The exit status, with a line for every limit that was not met.
fn gate(args: &Args, verification: &Verification) -> u8 {
    let own = args.of.to_string();
    let Some(verdicts) = verification.strategies.iter().find(|verdicts| verdicts.name == own) else { return DONE };
    let share = |part: u64| percent(part, verification.checked);
    let wrong = verdicts.wrong.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
    let mut status = DONE;
    if let Some(least) = args.min_exact
        && (verification.checked == 0 || share(verdicts.exact) < least)
    {
        output::say(&format!("fpprof: {own}: {:.3} % exact, less than {least} %", share(verdicts.exact)));
        status = FAILED;
    }
    if let Some(most) = args.max_wrong
        && (verification.checked == 0 || share(wrong) > most)
    {
        output::say(&format!("fpprof: {own}: {:.3} % wrong without a flag, more than {most} %", share(wrong)));
        status = FAILED;
    }
    status
}

#[expect(clippy::cast_precision_loss, reason = "compared with a percentage that was typed")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is not a percentage from 0 to 100")),
    }
}
