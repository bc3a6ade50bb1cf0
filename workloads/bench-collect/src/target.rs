//! The profiled command, with its start and end times.

use anyhow::Context as _;
use nix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// `CLOCK_MONOTONIC` in seconds.
pub(crate) fn now_s() -> anyhow::Result<f64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9)
}

/// Runs `command` and writes its start and end times to `times`; returns its exit status.
pub(crate) fn run(times: &Path, command: &[OsString]) -> anyhow::Result<i32> {
    let began = now_s()?;
    let (program, arguments) = command.split_first().context("no command")?;
    let status = Command::new(program).args(arguments).status().context("starting the workload")?;
    std::fs::write(times, format!("{began:.9} {:.9}\n", now_s()?))?;
    Ok(status.code().unwrap_or(1))
}

/// Reads the start and end times of a command.
pub(crate) fn read(times: &Path) -> anyhow::Result<(f64, f64)> {
    let text = std::fs::read_to_string(times).context("the command did not run to its end")?;
    let (began, ended) = text.trim().split_once(' ').context("two times")?;
    Ok((began.parse()?, ended.parse()?))
}
