//! Instruction counts, from valgrind: they hardly vary, and are not a cost.

use super::manifest::EXE;
use super::rounds::command;
use anyhow::Context as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Instructions of a run of a binary.
pub(super) fn count(here: &Path, dir: &Path, words: &str) -> anyhow::Result<u64> {
    let is_alone = words.split_whitespace().next() == Some(EXE);
    anyhow::ensure!(is_alone, "the benchmark is more than the binary (`{words}`)");
    let run = command(here, dir, 0, words);
    let output = Command::new("valgrind")
        .args(["--tool=exp-bbv", "--instr-count-only=yes", "--bb-out-file=/dev/null"])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .context("starting valgrind")?;
    anyhow::ensure!(output.status.success(), "valgrind: {}", output.status);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    total(&text).context("valgrind told no total of instructions")
}

/// The number after `Total instructions:`, the last one if processes forked.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains("Total instructions:"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the total is found among valgrind's other lines.
    #[test]
    fn total_is_found() {
        let text = "==1== exp-bbv\n# Total intervals: 0 (Interval Size 100000000)\n# Total instructions: 1234567\n# Total reps: 5\n";
        assert_eq!(total(text), Some(1_234_567));
        assert_eq!(total("nothing"), None);
    }
}
