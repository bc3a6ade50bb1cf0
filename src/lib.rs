//! The `fpprof` command: parse, plan, run, exit code.
#![forbid(unsafe_code)]

mod agent;
mod cli;
mod closing;
mod cmd;
mod compare;
mod debuginfod;
mod exit;
mod flags;
mod gate;
mod http;
mod http_client;
mod live;
mod output;
mod positioned;
mod progress;
mod recordings;
mod serve;
mod stored;
mod tables;
mod top;
mod unwinding;
mod values;
#[cfg(target_arch = "x86_64")]
mod verify;
mod worker;

use clap::FromArgMatches as _;
use std::process::ExitCode;
use worker::Files;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| cli::Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    // If this fails, waiting for a child fails, too, and is reported.
    let _ = fpprof_collector::keep_ended_children();
    let result = match cli.command {
        cli::Command::Record(_) if worker::is_worker() => {
            worker::run(&Files::confined_by_itself(), worker::serve_parser)
        }
        cli::Command::Record(args) => cmd::record::run(&args),
        cli::Command::Report(args) => worker::run(&args.files(), || cmd::report::run(&args)),
        cli::Command::Flamegraph(args) => worker::run(&args.files(), || cmd::flamegraph::run(&args)),
        cli::Command::Export(args) => worker::run(&args.files(), || cmd::export::run(&args)),
        cli::Command::Compare(args) => cmd::compare::run(&args),
        cli::Command::Diff(args) => worker::run(&args.files(), || cmd::diff::run(&args)),
        cli::Command::Cfi(args) => worker::run(&args.files(), || cmd::cfi::run(&args)),
        cli::Command::Unwind(args) => worker::run(&args.files(), || cmd::unwind::run(&args)),
        cli::Command::Verify(args) => cmd::verify::run(&args),
        cli::Command::Audit(args) => worker::run(&args.files(), || cmd::audit::run(&args)),
        cli::Command::Flags(args) => cmd::flags::run(&args),
        cli::Command::Archive(args) => worker::run(&args.files(), || cmd::archive::run(&args)),
        cli::Command::Import(args) => worker::run(&args.files(), || cmd::import::run(&args)),
        cli::Command::Top(args) => cmd::top::run(&args),
        cli::Command::Agent(args) => cmd::agent::run(&args),
        cli::Command::Serve(args) => cmd::serve::run(&args),
        cli::Command::Query(args) => cmd::query::run(&args),
        cli::Command::Doctor(args) => cmd::doctor::run(&args),
    };
    exit::code(result)
}

/// The command line's definition, for manual pages and completions.
pub fn command() -> clap::Command {
    cli::command()
}
