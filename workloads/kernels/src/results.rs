//! The guest's results: how each step ended, what it printed, and its recording as read by fpprof on this machine.

use crate::run::output;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directories of a guest's results, and the fpprof that reads its recordings.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) fpprof: PathBuf,
    /// The guest's files, in which modules are searched.
    pub(crate) root: PathBuf,
    pub(crate) dir: PathBuf,
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Samples with the same stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) comm: String,
    /// User functions, root first.
    pub(crate) functions: Vec<String>,
    /// Samples, or nanoseconds of waits.
    pub(crate) weight: u64,
}

impl Results {
    /// The outcome of a step, successful or not.
    pub(crate) fn ended(&self, step: &str) -> anyhow::Result<Ended> {
        let status = self.text(step, "status")?;
        let status = status.trim().parse().with_context(|| format!("{step}: the status {status:?}"))?;
        Ok(Ended { status, stdout: self.text(step, "stdout")?, stderr: self.text(step, "stderr")? })
    }

    /// The outcome of a step that must succeed.
    pub(crate) fn succeeded(&self, step: &str) -> anyhow::Result<Ended> {
        let ended = self.ended(step)?;
        ensure!(
            ended.status == 0,
            "expected exit status 0, got {}; it said:\n{}",
            ended.status,
            tail(&ended.stderr, 8)
        );
        Ok(ended)
    }

    /// The content of a file that a step wrote.
    pub(crate) fn text(&self, step: &str, file: &str) -> anyhow::Result<String> {
        let path = self.dir.join(step).join(file);
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What the guest's kernel printed.
    pub(crate) fn kernel_log(&self) -> anyhow::Result<String> {
        let path = self.dir.join("dmesg");
        Ok(String::from_utf8_lossy(&fs::read(&path).with_context(|| format!("reading {}", path.display()))?)
            .into_owned())
    }

    /// `fpprof report --json` of a step's recording.
    pub(crate) fn report(&self, step: &str, args: &[&str]) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&output(self.command("report", step).arg("--json").args(args))?)?)
    }

    /// The stacks of a step's recording.
    pub(crate) fn stacks(&self, step: &str, args: &[&str]) -> anyhow::Result<Vec<Stack>> {
        output(self.command("export", step).arg("--no-inline").args(args))?.lines().map(stack).collect()
    }

    fn command(&self, subcommand: &str, step: &str) -> Command {
        let mut command = Command::new(&self.fpprof);
        command.arg(subcommand).arg(self.dir.join(step).join("fpprof.fpprof")).arg("--symfs").arg(&self.root);
        command
    }
}

/// Parses a folded line: the name, frames from the root, a blank, the weight. Kernel frames end in `_[k]`, those found
/// by a frame pointer against the rule in `_[fp]`.
fn stack(line: &str) -> anyhow::Result<Stack> {
    let (frames, weight) = line.rsplit_once(' ').with_context(|| format!("the folded line {line:?}"))?;
    let mut frames = frames.split(';');
    let comm = frames.next().unwrap_or_default().to_owned();
    let functions = frames.filter(|frame| !frame.ends_with("_[k]"));
    let functions = functions.map(|frame| frame.strip_suffix("_[fp]").unwrap_or(frame).to_owned()).collect();
    Ok(Stack { comm, functions, weight: weight.parse().with_context(|| format!("the weight of {line:?}"))? })
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Reads a file's text; empty if it does not exist.
pub(crate) fn text_or_nothing(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a folded line is parsed, without kernel frames.
    #[test]
    fn folded_lines() {
        let expected =
            Stack { comm: "known".to_owned(), functions: vec!["main".to_owned(), "burn".to_owned()], weight: 12 };
        assert_eq!(stack("known;main_[fp];burn;asm_sysvec_[k];update_[k] 12").expect("a stack"), expected);
        assert!(stack("known").is_err());
    }
}
