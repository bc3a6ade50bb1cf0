//! `fpprof doctor`: checks kernel support and permissions.

use crate::agent::{Config, outlook};
use crate::exit::{DONE, FAILED, error_chain};
use crate::output;
use fpprof_collector::doctor::{self, Advice, Check, Verdict};
use fpprof_reports::terminal::{self, CheckStatus};
use std::path::Path;

/// Check kernel support and permissions
///
/// Tries everything that recording needs, including loading the BPF programs, and shows how to allow what is refused.
/// Exits with 1 if nothing can be recorded, not even with perf events.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also advise on capabilities for recording other users' running processes
    #[arg(long)]
    with_ptrace: bool,
    /// Print libbpf's messages, and the verifier's log if the kernel rejects the BPF programs
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the subcommand; fails if nothing can be recorded, not even without BPF.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if args.verbose {
        fpprof_collector::print_libbpf_messages();
    }
    let found = doctor::probe();
    let can_record = doctor::can_record(&found);
    let program = std::env::current_exe().unwrap_or_else(|_| "fpprof".into());
    let (possible, advice) = doctor::conclude(&found, &program, args.with_ptrace);
    let checks: Vec<terminal::Check> = found.into_iter().map(shown).collect();
    output::write_whole(Path::new("-"), |mut out| {
        terminal::checks(&checks, &output::style(), &mut out)?;
        writeln!(out, "possible   {possible}")?;
        writeln!(out, "agent      {}", agent())?;
        match &advice {
            None => Ok(()),
            Some(Advice::Change(sentence)) => writeln!(out, "for more   {sentence}"),
            Some(Advice::Allow { commands, consequence }) => {
                writeln!(out, "for more   as root:")?;
                commands.iter().try_for_each(|command| writeln!(out, "             {command}"))?;
                writeln!(out, "           {consequence}")
            }
        }
    })?;
    Ok(if can_record { DONE } else { FAILED })
}

/// What `fpprof agent` could do here, by its configuration file or, without one, by the defaults.
fn agent() -> String {
    let (config, is_default) = match Config::default_file() {
        Some(config) => (config, false),
        None => (Ok(Config::default()), true),
    };
    let outlook = match config.and_then(|config| outlook(&config)) {
        Ok(outlook) => outlook,
        Err(error) => return format!("cannot run: {}", error_chain(&error)),
    };
    let sampling = match outlook.sampling {
        Ok(words) => format!("would sample by {}", words.first().map_or("", |words| words)),
        Err(error) => return format!("cannot run: {error}"),
    };
    match outlook.store {
        _ if is_default => sampling,
        Ok(store) => format!("{sampling}, and {store}"),
        Err(error) => format!("{sampling}, but {error}"),
    }
}

fn shown(check: Check) -> terminal::Check {
    let status = match check.verdict {
        Verdict::Ok => CheckStatus::Ok,
        Verdict::Reduced => CheckStatus::Limited,
        Verdict::Missing => CheckStatus::Missing,
    };
    let remedy = (!check.remedy.is_empty()).then_some(check.remedy);
    terminal::Check { name: check.name.to_owned(), status, found: check.detail, remedy }
}
