//! Runs tools.

use anyhow::{Context as _, ensure};
use std::process::{Command, Stdio};

/// Runs a tool, which must succeed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop)
}

/// Runs a tool, which must succeed; returns its stdout.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    let stderr = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{name} failed, {}: {}", ended.status, stderr.trim());
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}
