//! Runs a manifest's commands in a shell.

use crate::output::private_log;
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a command in `dir`; its output goes to `log`.
pub(super) fn shell(command: &str, dir: &Path, log: &Path) -> anyhow::Result<()> {
    let file = private_log(log).context("opening the log")?;
    let err = file.try_clone().context("duplicating the log")?;
    let status = Command::new("sh")
        .args(["-e", "-c", command])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(err)
        .status()
        .context("starting sh")?;
    let log_text = fs::read_to_string(log).unwrap_or_default();
    let last = log_text.lines().rfind(|line| line.contains("error")).unwrap_or_default().to_owned();
    anyhow::ensure!(status.success(), "{status}: {last} (log: {})", log.display());
    Ok(())
}

/// Quotes a word for the shell.
pub(super) fn quoted(text: &OsStr) -> String {
    let text = String::from_utf8_lossy(text.as_bytes()).into_owned();
    format!("'{}'", text.replace('\'', r"'\''"))
}
