//! One run of one mode: starts it, measures it, and reads the raw values from its recording.

use super::config::RunConfig;
use super::mode::Mode;
use super::recorded::Recorded;
use super::watch::{self, Watched};
use super::{ours, perf};
use crate::output::private_file;
use anyhow::Context as _;
use fpprof_analysis::experiment::{Measured, Run};
use fpprof_collector::StopFlag;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The reason for missing figures in a mode without a profiler.
pub(crate) const NO_PROFILER: &str = "this mode makes no recording";

/// A run, and what its recording says if it has one.
pub(super) struct Ran {
    pub(super) run: Run,
    pub(super) recorded: Option<Recorded>,
}

/// Runs `mode` once, or until `stop` is set.
///
/// # Errors
/// If the command failed or its recording cannot be read; the caller notes it and continues.
pub(super) fn run(config: &RunConfig, mode: Mode, repeat: u32, stop: &StopFlag) -> anyhow::Result<Ran> {
    let name = format!("{}-{}", mode.slug(), repeat + 1);
    let recording = config.dir.join("recordings").join(&name);
    let output = config.dir.join("output").join(format!("{name}.txt"));
    let watched = watch::run(&mut command(config, mode, &recording, &output)?, Some(stop.as_fd()))?;
    anyhow::ensure!(stop.signal().is_none(), "interrupted");
    let printed = fs::read(&output).with_context(|| format!("reading {}", output.display()))?;
    let printed = String::from_utf8_lossy(&printed);
    anyhow::ensure!(watched.status.success(), "{} ({})", watched.status, last_line(&printed));
    let mut run = bare(config, repeat, &watched, &printed);
    let recorded = match mode {
        Mode::None | Mode::NoneAgain => None,
        Mode::Fpprof(mode) => Some(ours::fill(config, mode, &recording, &name, &watched, &mut run)?),
        Mode::Perf(mode) => Some(perf::fill(mode, &recording, &watched, &mut run)?),
    };
    if let Some(recorded) = &recorded {
        run.wall_s = Measured::or_missing(recorded.command_s, "the recorder lost the start or the end of the command");
    }
    if mode.call_graph().is_some() && !config.keep {
        fs::remove_file(&recording).with_context(|| format!("removing {}", recording.display()))?;
    }
    Ok(Ran { run, recorded })
}

fn command(config: &RunConfig, mode: Mode, recording: &Path, output: &Path) -> anyhow::Result<Command> {
    let mut command = match (mode, mode.call_graph()) {
        (Mode::None | Mode::NoneAgain, _) | (_, None) => {
            let (program, args) = config.command.split_first().context("a command is needed")?;
            let mut command = Command::new(program);
            command.args(args);
            command
        }
        (Mode::Fpprof(_), Some(call_graph)) => {
            let mut command = Command::new(std::env::current_exe().context("finding fpprof itself")?);
            command.args(["record", "--quiet", "--stats", "-F", &config.freq.to_string(), "--call-graph", &call_graph]);
            command.arg("-o").arg(recording).arg("--").args(&config.command);
            command
        }
        (Mode::Perf(_), Some(call_graph)) => {
            let mut command = Command::new("perf");
            command.args(["record", "--quiet", "-F", &config.freq.to_string(), "--call-graph", &call_graph]);
            command.arg("-o").arg(recording).arg("--").args(&config.command);
            command
        }
    };
    let out = private_file(output).with_context(|| format!("making {}", output.display()))?;
    let err = out.try_clone().context("duplicating the output")?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    Ok(command)
}

/// The figures of a run that need no recording.
fn bare(config: &RunConfig, repeat: u32, watched: &Watched, printed: &str) -> Run {
    let metric = match &config.metric {
        Some(finder) => finder.find(printed).map_or_else(Measured::missing, Measured::Value),
        None => Measured::missing("no --metric was given"),
    };
    Run::unrecorded(repeat, Measured::Value(watched.wall_s()), metric, NO_PROFILER)
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing")
}
