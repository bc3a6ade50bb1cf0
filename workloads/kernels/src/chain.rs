//! The known stacks of the guest's program.

use crate::results::Stack;
use anyhow::{bail, ensure};

/// The chain of `known SECONDS chain ROUNDS`, root first.
pub(crate) const CHAIN: &[&str] = &[
    "main", "level_1", "level_2", "level_3", "level_4", "level_5", "level_6", "level_7", "level_8", "level_9",
    "level_10", "level_11", "level_12", "burn",
];

/// The chain of `known SECONDS threads ROUNDS`.
pub(crate) const THREADS: &[&str] = &["thread_main", "worker", "burn"];

/// The chain of `known SECONDS waits ROUNDS`; functions of the C library follow.
pub(crate) const WAITS: &[&str] = &["main", "rest", "nap"];

/// Minimum share of the program's samples that have the chain. The shares of exec in the kernel, and of the program's
/// start and end, depend on the machine.
const LEAST_PERCENT: u64 = 50;

/// Maximum share of the leaf's samples that may be in its first instructions.
const MOST_PERCENT_ENTERING: u64 = 2;

/// Checks that all stacks with the chain's leaf are exactly the chain, and that most have that leaf; returns their
/// number.
///
/// With frame pointers, a few may lack the leaf's caller: a function's first instructions set up its frame.
pub(crate) fn exact(stacks: &[Stack], chain: &[&str], by_frame_pointers: bool) -> anyhow::Result<u64> {
    let Some((leaf, callers)) = chain.split_last() else { bail!("a chain of nothing") };
    let without_caller: Vec<&str> = callers.iter().rev().skip(1).rev().chain([leaf]).copied().collect();
    let (mut all, mut in_leaf, mut entering) = (0, 0, 0);
    for stack in stacks.iter().filter(|stack| stack.comm == "known") {
        all += stack.weight;
        let Some(at) = stack.functions.iter().rposition(|function| function == leaf) else { continue };
        in_leaf += stack.weight;
        let reached: Vec<&str> = stack.functions.iter().take(at + 1).map(String::as_str).collect();
        if by_frame_pointers && reached.ends_with(&without_caller) {
            entering += stack.weight;
            continue;
        }
        ensure!(reached.ends_with(chain), "expected {} below {leaf}, got {}", chain.join(";"), reached.join(";"));
    }
    ensure!(
        in_leaf > 0 && in_leaf * 100 >= all * LEAST_PERCENT,
        "expected {LEAST_PERCENT} % of the stacks to be in {leaf}, got {in_leaf} of {all}"
    );
    ensure!(
        entering * 100 <= in_leaf * MOST_PERCENT_ENTERING,
        "expected {MOST_PERCENT_ENTERING} % of the stacks to be without the caller of {leaf} at most, got {entering} of {in_leaf}"
    );
    Ok(in_leaf)
}

/// Checks that all stacks with the signing program's leaf are exactly `_start`, `run`, twelve times `level` and `leaf`;
/// returns their number.
pub(crate) fn exact_signed(stacks: &[Stack]) -> anyhow::Result<u64> {
    let levels = std::iter::repeat_n("level", SIGNED_LEVELS);
    let whole: Vec<&str> = ["_start", "run"].into_iter().chain(levels).chain(["leaf"]).collect();
    let in_leaf = |stack: &&Stack| stack.comm == "signed" && stack.functions.last().is_some_and(|name| name == "leaf");
    let mut n_in_leaf = 0;
    for stack in stacks.iter().filter(in_leaf) {
        ensure!(stack.functions == whole, "expected {}, got {}", whole.join(";"), stack.functions.join(";"));
        n_in_leaf += stack.weight;
    }
    ensure!(n_in_leaf > 0, "expected stacks in leaf, got none");
    Ok(n_in_leaf)
}

/// Number of nested calls of `level` in the signing program.
const SIGNED_LEVELS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &[&str], weight: u64) -> Stack {
        let functions = functions.iter().map(|&name| name.to_owned()).collect();
        Stack { comm: "known".to_owned(), functions, weight }
    }

    /// Check that a chain is found whole, whatever is outside it, and that one with a frame more or less is refused.
    #[test]
    fn chains_are_exact() {
        let good = [stack(&["_start", "thread_main", "worker", "burn"], 95), stack(&["execve"], 5)];
        assert_eq!(exact(&good, THREADS, false).expect("the chain"), 95);
        for wrong in [&["thread_main", "burn"][..], &["thread_main", "worker", "worker", "burn"], &["burn"]] {
            assert!(exact(&[good[0].clone(), stack(wrong, 1)], THREADS, false).is_err(), "{wrong:?}");
        }
        assert!(exact(&[stack(&["main"], 96), good[0].clone()], THREADS, false).is_err(), "too few in the leaf");
        assert!(exact(&[], THREADS, false).is_err(), "nothing at all");
    }

    /// Check that every stack with the signing program's leaf must be whole, and that there must be some.
    #[test]
    fn signed_stacks_are_exact() {
        let whole = |n| [&["_start", "run"][..], &vec!["level"; n], &["leaf"]].concat();
        let signed = |functions: &[&str]| Stack { comm: "signed".to_owned(), ..stack(functions, 5) };
        let good = [signed(&whole(12)), signed(&["_start", "run", "level"])];
        assert_eq!(exact_signed(&good).expect("true stacks"), 5);
        assert!(exact_signed(&[signed(&whole(11))]).is_err(), "a frame is missing");
        assert!(exact_signed(&[good[0].clone(), signed(&["run", "leaf"])]).is_err(), "no root");
        assert!(exact_signed(&good[1..]).is_err(), "none in the leaf");
    }

    /// Check that only with frame pointers a few stacks may lack the leaf's caller.
    #[test]
    fn few_may_enter_the_leaf() {
        let entering =
            |weight| [stack(&["thread_main", "worker", "burn"], 100 - weight), stack(&["thread_main", "burn"], weight)];
        assert_eq!(exact(&entering(2), THREADS, true).expect("a few"), 100);
        assert!(exact(&entering(2), THREADS, false).is_err(), "not by DWARF");
        assert!(exact(&entering(3), THREADS, true).is_err(), "too many");
    }

    /// Check that functions that the chain calls may follow it.
    #[test]
    fn waits_end_in_the_library() {
        let waits = [stack(&["_start", "main", "rest", "nap", "clock_nanosleep"], 7)];
        assert_eq!(exact(&waits, WAITS, false).expect("the chain"), 7);
    }
}
