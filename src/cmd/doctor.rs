//! `fpprof doctor`: what this kernel and user may do, and how to get the rest.

use crate::exit::{DONE, FAILED};
use crate::output;
use fpprof_collector::doctor::{self, Check, Verdict};
use fpprof_reports::terminal::{self, CheckStatus};
use std::path::Path;

/// Say what this kernel and this user may do, and how to get the rest
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the subcommand; fails when nothing can be recorded, not even without BPF.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn run(_args: &Args) -> anyhow::Result<u8> {
    let found = doctor::probe();
    let can_record = doctor::can_record(&found);
    let program = std::env::current_exe().unwrap_or_else(|_| "fpprof".into());
    let (possible, command) = doctor::conclude(&found, &program);
    let checks: Vec<terminal::Check> = found.into_iter().map(shown).collect();
    output::write_whole(Path::new("-"), |mut out| {
        terminal::checks(&checks, &output::style(), &mut out)?;
        writeln!(out, "possible   {possible}")?;
        command.map_or(Ok(()), |command| writeln!(out, "for more   {command}"))
    })?;
    Ok(if can_record { DONE } else { FAILED })
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
