//! The `fpprof` command: parse, plan, run, exit code.
#![forbid(unsafe_code)]

mod cli;
mod closing;
mod cmd;
mod compare;
mod exit;
mod flags;
mod gate;
mod output;
mod positioned;
mod progress;
mod recordings;
mod top;
mod unwinding;
mod values;
#[cfg(target_arch = "x86_64")]
mod verify;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let result = match cli.command {
        cli::Command::Record(args) => cmd::record::run(&args),
        cli::Command::Report(args) => cmd::report::run(&args),
        cli::Command::Flamegraph(args) => cmd::flamegraph::run(&args),
        cli::Command::Export(args) => cmd::export::run(&args),
        cli::Command::Compare(args) => cmd::compare::run(&args),
        cli::Command::Diff(args) => cmd::diff::run(&args),
        cli::Command::Cfi(args) => cmd::cfi::run(&args),
        cli::Command::Unwind(args) => cmd::unwind::run(&args),
        cli::Command::Verify(args) => cmd::verify::run(&args),
        cli::Command::Audit(args) => cmd::audit::run(&args),
        cli::Command::Flags(args) => cmd::flags::run(&args),
        cli::Command::Import(args) => cmd::import::run(&args),
        cli::Command::Top(args) => cmd::top::run(&args),
        cli::Command::Doctor(args) => cmd::doctor::run(&args),
    };
    exit::code(result)
}

/// The command line's definition, for manual pages and completions.
pub fn command() -> clap::Command {
    cli::Cli::command()
}
