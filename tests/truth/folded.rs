//! Compares the stacks of a recording with the manifest's outcomes.

use crate::support::stacks::{Stack, commonest};
use fpprof_workloads::{Chain, Outcome};

/// Samples that a program's start and end may take, even if there are few samples on a busy machine.
const START_AND_END: u64 = 2;

/// (samples that match one of the outcomes, all samples).
fn count(stacks: &[Stack], outcomes: &[Outcome]) -> (u64, u64) {
    let is_right = |stack: &&Stack| {
        let names: Vec<&str> = stack.names.iter().map(String::as_str).collect();
        outcomes.iter().any(|outcome| outcome.matches(&names, &stack.class, &stack.stop))
    };
    let right = stacks.iter().filter(is_right).map(|stack| stack.samples).sum();
    (right, stacks.iter().map(|stack| stack.samples).sum())
}

/// The minimum number of these samples that must have the chain.
pub(crate) fn least(chain: &Chain, samples: u64) -> u64 {
    (samples * u64::from(chain.least_percent)).div_ceil(100).saturating_sub(START_AND_END).max(1)
}

/// The deviations of a chain from the manifest.
pub(crate) fn chain_faults(chain: &Chain, dwarf: &[Stack], fp: &[Stack]) -> Vec<String> {
    let judge = |strategy: &str, stacks: &[Stack], outcomes: &[Outcome]| {
        let (right, all) = count(stacks, outcomes);
        let wanted = least(chain, all);
        let is_right = outcomes.is_empty() || right >= wanted;
        let commonest = || commonest(stacks);
        (!is_right).then(|| format!("{strategy}: {right} of {all} as stated, not {wanted}; commonest: {}", commonest()))
    };
    [judge("dwarf", dwarf, chain.dwarf), judge("fp", fp, chain.fp)].into_iter().flatten().collect()
}
