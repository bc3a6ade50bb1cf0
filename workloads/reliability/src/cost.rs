//! Measures the cost of a command, its children included.
//!
//! This program starts itself for each measurement, so that the kernel's account of all reaped children is that of the
//! command alone.

use crate::place::Place;
use crate::process::words;
use crate::suite::{Figures, figures};
use anyhow::{Context as _, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The cost of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) cpu_s: f64,
    /// The largest peak memory of any of its processes.
    pub(crate) peak_mb: f64,
}

/// Runs fpprof with stdout to a file, and returns its cost. It must succeed.
pub(crate) fn of_fpprof(place: &Place, args: &[&str], stdout: &Path) -> anyhow::Result<Cost> {
    let stdout = std::fs::File::create(stdout)?;
    let mut command = place.part("cost");
    command.arg(&place.fpprof).args(args).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let output = command.spawn()?.wait_with_output()?;
    let stderr = words(&output.stderr);
    ensure!(output.status.success(), "fpprof {}: {stderr}", args.join(" "));
    let figures = figures(&stderr);
    Ok(Cost { cpu_s: figures.number("cpu_s")?, peak_mb: figures.number("peak_mb")? })
}

/// The main function of the measuring process.
pub(crate) fn run(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, args) = command.split_first().context("no command")?;
    let status = Command::new(program).args(args).status()?;
    writeln!(std::io::stderr(), "{}", of_children()?)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cost of all children that this process waited for, as a line of figures.
pub(crate) fn of_children() -> anyhow::Result<String> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu = usage.user_time() + usage.system_time();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds and kilobytes of a run are far below 2^53")]
    let (cpu_s, peak_mb) = (cpu.num_milliseconds() as f64 / 1e3, usage.max_rss() as f64 * 1024.0 / 1e6);
    Ok(format!("{} cpu_s={cpu_s:.2} peak_mb={peak_mb:.1}", Figures::MARK))
}
