//! The hottest functions.

use crate::folded::{Folded, Unit};
use crate::summary::HotFunction;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// The `max` functions with the most self samples (then total samples, then by name); for waits, with the most time.
///
/// A function counts once for each sample it is in, however often it recurs there. Inlined functions count as
/// functions; the innermost one at the sampled instruction gets the self sample.
#[must_use]
pub fn hottest(folded: &Folded, max: usize) -> Vec<HotFunction> {
    let mut numbers: FxHashMap<(&str, &str), usize> = FxHashMap::default();
    let mut counts: Vec<Count<'_>> = Vec::new();
    let numbered = folded.frames.iter().map(|frame| {
        let (name, module) = (frame.name.as_str(), frame.module.as_str());
        *numbers.entry((name, module)).or_insert_with(|| {
            counts.push(Count { name, module, last_stack: None, own: 0, total: 0, own_amount: 0, total_amount: 0 });
            counts.len() - 1
        })
    });
    let of_frames: Vec<usize> = numbered.collect();
    for (at, stack) in folded.stacks.iter().enumerate() {
        let functions = stack.frames.iter().filter_map(|&frame| of_frames.get(frame as usize).copied());
        let leaf = functions.clone().next_back();
        let amount = folded.amount(stack);
        for function in functions {
            if let Some(count) = counts.get_mut(function).filter(|count| count.last_stack != Some(at)) {
                count.last_stack = Some(at);
                count.total = count.total.saturating_add(stack.samples);
                count.total_amount = count.total_amount.saturating_add(amount);
            }
        }
        if let Some(count) = leaf.and_then(|leaf| counts.get_mut(leaf)) {
            count.own = count.own.saturating_add(stack.samples);
            count.own_amount = count.own_amount.saturating_add(amount);
        }
    }
    counts.retain(|count| count.last_stack.is_some());
    counts.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    let is_blocked = folded.unit == Unit::BlockedNs;
    let function = |count: &Count<'_>| HotFunction {
        name: count.name.to_string(),
        module: count.module.to_string(),
        self_samples: count.own,
        total_samples: count.total,
        self_blocked_ns: is_blocked.then_some(count.own_amount),
        total_blocked_ns: is_blocked.then_some(count.total_amount),
    };
    counts.iter().take(max).map(function).collect()
}

/// Counts for a function.
#[derive(Debug)]
struct Count<'a> {
    name: &'a str,
    module: &'a str,
    /// Index of the last stack that was counted.
    last_stack: Option<usize>,
    own: u64,
    total: u64,
    /// The same in the unit of the stacks.
    own_amount: u64,
    total_amount: u64,
}

impl<'a> Count<'a> {
    fn order(&self) -> (Reverse<(u64, u64)>, &'a str, &'a str) {
        (Reverse((self.own_amount, self.total_amount)), self.name, self.module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::{FoldedStack, FrameLabel, Origin};
    use fpprof_unwind::{Root, StopReason};

    /// Check that a recursion counts once in a sample's total, that only the leaf has self samples, that the same name
    /// in two modules is two functions, and that functions are sorted by self samples.
    #[test]
    fn functions_are_counted_once_for_each_sample() {
        let label = |name: &str, module: &str| FrameLabel {
            name: name.to_string(),
            module: module.to_string(),
            origin: Origin::Cfi,
        };
        let frames = vec![label("main", "a"), label("f", "a"), label("f", "b"), label("g", "a")];
        let stack = |frames: &[u32], samples| FoldedStack {
            comm: String::new(),
            pid: 1,
            frames: frames.to_vec(),
            stop: StopReason::Complete(Root::Start),
            samples,
            weight: 1000 - samples,
        };
        let stacks = vec![stack(&[0, 1, 3, 1], 5), stack(&[0, 1, 2], 7), stack(&[0, 3], 5), stack(&[], 100)];
        let mut folded = Folded { frames, stacks, unit: Unit::Samples };
        let found = hottest(&folded, 3);
        let found: Vec<_> = found
            .iter()
            .map(|hot| (hot.name.as_str(), hot.module.as_str(), hot.self_samples, hot.total_samples))
            .collect();
        assert_eq!(found, [("f", "b", 7, 7), ("f", "a", 5, 12), ("g", "a", 5, 10)]);
        folded.unit = Unit::BlockedNs;
        let found = hottest(&folded, 2);
        let found = found.iter().map(|hot| (hot.name.as_str(), hot.self_blocked_ns, hot.total_blocked_ns));
        let expected = [("g", Some(995), Some(1990)), ("f", Some(995), Some(1988))];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
