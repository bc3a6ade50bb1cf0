//! Measures the robustness of `fpprof`: prints a table with one row per goal, with the test procedure, the result, and
//! whether the goal is met.
//!
//! Each row runs a real test now: tests of the workspace that print figures, or `fpprof` as root under a generated
//! load. A goal that cannot be measured counts as missed.
#![forbid(unsafe_code)]

mod churn;
mod clock;
mod cost;
mod crash;
mod files;
mod found;
mod fuzzed;
mod goal;
mod goals;
mod many;
mod mutants;
mod neighbour;
mod object;
mod place;
mod process;
mod rights;
mod ring;
mod same;
mod soak;
mod sources;
mod starved;
mod stop;
mod storm;
mod suite;
mod table;

use anyhow::Context as _;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use found::{Found, Verdict};
use goal::{Goal, How};
use goals::GOALS;
use place::{Place, Sizes};
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use table::Row;

/// Measures what fpprof withstands; one table at the end, exit status 1 if a row that is measured misses its goal.
#[derive(Debug, Parser)]
struct Args {
    /// The goals; all by default
    #[arg(ignore_case = true, value_parser = PossibleValuesParser::new(GOALS.iter().map(|goal| goal.id)))]
    goals: Vec<String>,
    /// The fpprof that is measured [default: release/fpprof in cargo's target directory]
    #[arg(long)]
    fpprof: Option<PathBuf>,
    /// Seconds of the storm of processes (R8)
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(30..=3600))]
    seconds: u64,
    /// Seconds of the recording that goes on and on (R10)
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(60..=86400))]
    soak: u64,
    /// Damaged files of perf's (R4)
    #[arg(long, default_value_t = 10_000)]
    mutants: u32,
    /// Be a part of a measurement: this program starts itself
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// The arguments of that part
    #[arg(last = true, hide = true)]
    words: Vec<OsString>,
}

/// What this program does when it was started by itself.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Part {
    /// Run a command and say what it cost.
    Cost,
    /// Give damaged files to fpprof.
    Mutants,
    /// Work a little, with many others.
    Spin,
    /// Start programs, as many as can be.
    Start,
    /// Make processes, threads and mappings.
    Storm,
    /// Start programs from files that are replaced.
    Upgrades,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(part) = args.part {
        match part {
            Part::Cost => return cost::run(&args.words),
            Part::Mutants => mutants::run(&args.words)?,
            Part::Spin => storm::spin(&args.words)?,
            Part::Start => neighbour::start(&args.words)?,
            Part::Storm => storm::run(&args.words)?,
            Part::Upgrades => soak::upgrade(&args.words)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let sizes = Sizes { storm_seconds: args.seconds, soak_seconds: args.soak, mutants: args.mutants };
    let place = Place::new(args.fpprof.as_deref(), sizes)?;
    let is_chosen =
        |goal: &&Goal| args.goals.is_empty() || args.goals.iter().any(|id| id.eq_ignore_ascii_case(goal.id));
    let rows: Vec<Row> = GOALS.iter().filter(is_chosen).map(|goal| measured(goal, &place)).collect();
    let table = table::table(&rows);
    let file = place.target.join("reliability/table.md");
    fs::write(&file, &table).with_context(|| format!("writing {}", file.display()))?;
    write!(std::io::stdout(), "{table}")?;
    Ok(if rows.iter().any(Row::is_missed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures one goal. An error goes to its row, so that the other goals are still measured.
fn measured(goal: &Goal, place: &Place) -> Row {
    let mut stderr = std::io::stderr();
    // If stderr is closed, there is nowhere to report the error.
    let _ = writeln!(stderr, "{}: {} ...", goal.id, goal.what);
    let began = Instant::now();
    let found = match &goal.how {
        How::Measured(measure) => measure(place),
        How::Tests(suites) => suite::all_pass(place, suites),
        How::By(recipe) => Ok(Found { figure: format!("by `{recipe}`"), verdict: Verdict::Elsewhere }),
        How::NotBuilt => Ok(Found { figure: "not built".to_owned(), verdict: Verdict::Elsewhere }),
    };
    let found = found.unwrap_or_else(|error| {
        let _ = writeln!(stderr, "{}: {error:#}", goal.id);
        Found::new(false, format!("not measured: {}", table::first_line(&format!("{error:#}"))))
    });
    let _ = writeln!(stderr, "{}: {} ({:.0} s)", goal.id, found.figure, began.elapsed().as_secs_f64());
    Row { goal: *goal, found }
}
