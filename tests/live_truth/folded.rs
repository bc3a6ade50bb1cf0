//! The stacks of a recording as the folded export gives them, against the outcomes the manifest states.

use crate::support::{fpprof, ran};
use fpprof_workloads::{Chain, Outcome};
use std::path::Path;

/// One distinct user stack of a recording: names leaf first, class and name of its stop reason, samples.
pub(crate) struct Stack {
    pub(crate) names: Vec<String>,
    class: String,
    stop: String,
    samples: u64,
}

/// The user stacks of a recording under a strategy, from the folded export.
pub(crate) fn stacks(file: &Path, strategy: &str) -> Vec<Stack> {
    let folded = ran(fpprof().arg("export").arg(file).args(["--format", "folded", "--strategy", strategy]));
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    folded.stdout.lines().filter_map(stack).collect()
}

/// `comm;[truncated: reason];main;burn 42`, root first; `None` for a stack that is all kernel.
fn stack(line: &str) -> Option<Stack> {
    let (frames, samples) = line.rsplit_once(' ')?;
    let mut frames = frames.split(';').skip(1).peekable();
    let marker = frames.next_if(|frame| frame.starts_with("[truncated: ") || frame.starts_with("[broken: "));
    let (class, stop) = match marker.and_then(|marker| marker.trim_matches(['[', ']']).split_once(": ")) {
        Some((class, stop)) => (class.to_owned(), stop.to_owned()),
        None => ("complete".to_owned(), String::new()),
    };
    let user = frames.filter(|frame| !frame.ends_with("_[k]"));
    let plain = |frame: &str| {
        ["_[i]", "_[h]", "_[fp]"].iter().fold(frame, |name, end| name.strip_suffix(end).unwrap_or(name)).to_owned()
    };
    let mut names: Vec<String> = user.map(plain).collect();
    names.reverse();
    (!names.is_empty()).then(|| Stack { names, class, stop, samples: samples.parse().unwrap_or(0) })
}

/// Samples that the start and the end of a program may take, however few there are in all on a busy machine.
const START_AND_END: u64 = 2;

/// Samples that have one of the outcomes, and all.
fn count(stacks: &[Stack], outcomes: &[Outcome]) -> (u64, u64) {
    let is_right = |stack: &&Stack| {
        let names: Vec<&str> = stack.names.iter().map(String::as_str).collect();
        outcomes.iter().any(|outcome| outcome.matches(&names, &stack.class, &stack.stop))
    };
    let right = stacks.iter().filter(is_right).map(|stack| stack.samples).sum();
    (right, stacks.iter().map(|stack| stack.samples).sum())
}

fn commonest(stacks: &[Stack]) -> String {
    let most = stacks.iter().max_by_key(|stack| stack.samples);
    most.map_or("no stacks".to_owned(), |most| format!("{} < … {} {}", most.names.join("<"), most.class, most.stop))
}

/// What of a chain is not as the manifest says.
pub(crate) fn chain_faults(chain: &Chain, dwarf: &[Stack], fp: &[Stack]) -> Vec<String> {
    let judge = |strategy: &str, stacks: &[Stack], outcomes: &[Outcome]| {
        let (right, all) = count(stacks, outcomes);
        let wanted = (all * u64::from(chain.least_percent)).div_ceil(100);
        let is_right = outcomes.is_empty() || right > 0 && right + START_AND_END >= wanted;
        let commonest = || commonest(stacks);
        (!is_right).then(|| format!("{strategy}: {right} of {all} as stated, not {wanted}; commonest: {}", commonest()))
    };
    [judge("dwarf", dwarf, chain.dwarf), judge("fp", fp, chain.fp)].into_iter().flatten().collect()
}
