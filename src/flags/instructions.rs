//! Instruction counts from valgrind: they hardly vary, but are not a cost.

use super::manifest::EXE;
use super::rounds::command;
use super::supervisor::{Run, Supervisor};
use anyhow::Context as _;
use std::fs;
use std::path::Path;

/// Counts the instructions of one run of a binary.
pub(super) fn count(here: &Path, dir: &Path, words: &str, supervisor: &mut Supervisor) -> anyhow::Result<u64> {
    let is_alone = words.split_whitespace().next() == Some(EXE);
    anyhow::ensure!(is_alone, "the benchmark runs more than the binary (`{words}`)");
    let run = command(here, dir, 0, words);
    let mut args: Vec<_> =
        ["--tool=exp-bbv", "--instr-count-only=yes", "--bb-out-file=/dev/null"].map(Into::into).into();
    args.push(run.program.clone());
    args.extend(run.args.iter().cloned());
    let output = dir.join("valgrind.log");
    supervisor
        .run(&Run { program: "valgrind".into(), args, env: None, output: Some(output.clone()), ..run })
        .context("valgrind")?;
    let text = fs::read(&output).with_context(|| format!("reading {}", output.display()))?;
    total(&String::from_utf8_lossy(&text)).context("valgrind printed no instruction count")
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
