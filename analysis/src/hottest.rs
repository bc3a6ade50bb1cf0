//! Functions by their samples.

use crate::folded::Folded;
use crate::summary::HotFunction;
use rustc_hash::{FxHashMap, FxHashSet};

/// The `max` functions with the most self samples (then total samples, then by name).
///
/// A function counts once for each sample it is in, however often it recurs there. What is inlined counts as a
/// function; the innermost one at the sampled instruction has the self sample.
#[must_use]
pub fn hottest(folded: &Folded, max: usize) -> Vec<HotFunction> {
    let mut counts: FxHashMap<(&str, &str), (u64, u64)> = FxHashMap::default();
    let mut seen: FxHashSet<(&str, &str)> = FxHashSet::default();
    for stack in &folded.stacks {
        seen.clear();
        let functions = stack.frames.iter().filter_map(|&frame| folded.frames.get(frame as usize));
        let mut leaf = None;
        for frame in functions {
            let function = (frame.name.as_str(), frame.module.as_str());
            leaf = Some(function);
            if seen.insert(function) {
                let total = &mut counts.entry(function).or_default().1;
                *total = total.saturating_add(stack.samples);
            }
        }
        if let Some(count) = leaf.and_then(|leaf| counts.get_mut(&leaf)) {
            count.0 = count.0.saturating_add(stack.samples);
        }
    }
    let mut functions: Vec<HotFunction> = counts
        .into_iter()
        .map(|((name, module), (self_samples, total_samples))| HotFunction {
            name: name.to_string(),
            module: module.to_string(),
            self_samples,
            total_samples,
        })
        .collect();
    functions.sort_unstable_by(|a, b| {
        let counts = |function: &HotFunction| std::cmp::Reverse((function.self_samples, function.total_samples));
        (counts(a), &a.name, &a.module).cmp(&(counts(b), &b.name, &b.module))
    });
    functions.truncate(max);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::{FoldedStack, FrameLabel, Origin};
    use fpprof_unwind::{Root, StopReason};

    /// Check that a recursion counts once in a sample's total, that only the leaf has self samples, that the same name
    /// in two modules is two functions, and that the order is that of self samples.
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
        };
        let stacks = vec![stack(&[0, 1, 3, 1], 5), stack(&[0, 1, 2], 7), stack(&[0, 3], 5), stack(&[], 100)];
        let found = hottest(&Folded { frames, stacks }, 3);
        let found: Vec<_> = found
            .iter()
            .map(|hot| (hot.name.as_str(), hot.module.as_str(), hot.self_samples, hot.total_samples))
            .collect();
        assert_eq!(found, [("f", "b", 7, 7), ("f", "a", 5, 12), ("g", "a", 5, 10)]);
    }
}
