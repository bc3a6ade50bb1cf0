//! The callers and callees of one function.

use crate::folded::{Folded, FoldedStack, Unit};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A function with its callers and callees. Amounts are samples, or nanoseconds for waits.
///
/// A stack counts once, however often the function recurs in it: its caller is that of the outermost call, its callee
/// that of the innermost. So the callers add up to `total`, and so do the callees with `own`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Its name.
    pub function: String,
    /// Base names of the modules it is in.
    pub modules: Vec<String>,
    /// Unit of the amounts: `samples` or `ns`.
    pub unit: String,
    /// Amount of all stacks.
    pub all: u64,
    /// Amount of the stacks it is in.
    pub total: u64,
    /// Amount of the stacks in which it is innermost.
    #[serde(rename = "self")]
    pub own: u64,
    /// Its callers, largest first; without a name where it is outermost.
    pub callers: Vec<Call>,
    /// Its callees, largest first.
    pub callees: Vec<Call>,
}

/// A caller or callee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its name; `None` for stacks that begin with the function.
    pub function: Option<String>,
    /// Base name of its module.
    pub module: String,
    /// Amount of the stacks with this call.
    pub amount: u64,
}

/// The callers and callees of the functions with this name; `None` if no stack has one.
#[must_use]
pub fn calls(folded: &Folded, function: &str) -> Option<Calls> {
    let is_function: Vec<bool> = folded.frames.iter().map(|frame| frame.name == function).collect();
    let is_function = |frame: &u32| is_function.get(*frame as usize).copied().unwrap_or(false);
    let mut callers: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let mut callees: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let (mut all, mut modules) = (0_u64, BTreeSet::new());
    for stack in &folded.stacks {
        let amount = folded.amount(stack);
        all = all.saturating_add(amount);
        let Some((outermost, innermost)) = ends(stack, is_function) else { continue };
        let caller = outermost.checked_sub(1).and_then(|at| stack.frames.get(at)).copied();
        let callee = stack.frames.get(innermost.saturating_add(1)).copied();
        for (edges, edge) in [(&mut callers, caller), (&mut callees, callee)] {
            let n = edges.entry(edge).or_default();
            *n = n.saturating_add(amount);
        }
        let of_function = stack.frames.iter().filter(|frame| is_function(frame));
        modules.extend(of_function.filter_map(|&frame| Some(&folded.frames.get(frame as usize)?.module)));
    }
    let total = callers.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
    let own = callees.remove(&None).unwrap_or(0);
    (!modules.is_empty()).then(|| Calls {
        function: function.to_owned(),
        modules: modules.into_iter().cloned().collect(),
        unit: if folded.unit == Unit::BlockedNs { "ns" } else { "samples" }.to_owned(),
        all,
        total,
        own,
        callers: named(folded, callers),
        callees: named(folded, callees),
    })
}

/// Names of functions that contain `text`, ignoring case; at most `max`.
#[must_use]
pub fn names_with<'a>(folded: &'a Folded, text: &str, max: usize) -> Vec<&'a str> {
    let text = text.to_lowercase();
    let names: BTreeSet<&str> = folded.frames.iter().map(|frame| frame.name.as_str()).collect();
    names.into_iter().filter(|name| name.to_lowercase().contains(&text)).take(max).collect()
}

/// Position of the function's outermost and innermost frame in a stack.
fn ends(stack: &FoldedStack, is_function: impl Fn(&u32) -> bool) -> Option<(usize, usize)> {
    let outermost = stack.frames.iter().position(&is_function)?;
    Some((outermost, stack.frames.iter().rposition(&is_function)?))
}

/// Names the callers or callees. Frames of a function that were found in different ways are merged.
fn named(folded: &Folded, edges: BTreeMap<Option<u32>, u64>) -> Vec<Call> {
    let mut functions: BTreeMap<(Option<&str>, &str), u64> = BTreeMap::new();
    for (frame, amount) in edges {
        let frame = frame.and_then(|frame| folded.frames.get(frame as usize));
        let function = frame.map_or((None, ""), |frame| (Some(frame.name.as_str()), frame.module.as_str()));
        let n = functions.entry(function).or_default();
        *n = n.saturating_add(amount);
    }
    let call = |((function, module), amount): ((Option<&str>, &str), u64)| Call {
        function: function.map(str::to_owned),
        module: module.to_owned(),
        amount,
    };
    let mut calls: Vec<Call> = functions.into_iter().map(call).collect();
    calls.sort_by_key(|call| Reverse(call.amount));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::{FrameLabel, Origin};
    use fpprof_unwind::{Root, StopReason};

    /// Check that callers and callees add up with recursion, that a function found in two ways is one, and that a stack
    /// that begins or ends with the function has its own row or share.
    #[test]
    fn callers_and_callees_add_up() {
        let label = |name: &str, origin| FrameLabel { name: name.to_owned(), module: "a".to_owned(), origin };
        let frames = vec![
            label("main", Origin::Cfi),
            label("f", Origin::Cfi),
            label("g", Origin::Cfi),
            label("f", Origin::Leaf),
            label("g", Origin::FramePointer),
        ];
        let stack = |frames: &[u32], samples| FoldedStack {
            comm: String::new(),
            pid: 1,
            frames: frames.to_vec(),
            stop: StopReason::Complete(Root::Start),
            samples,
            weight: 10 * samples,
        };
        let stacks = vec![
            stack(&[0, 1, 2, 1, 2], 1),
            stack(&[0, 4, 3], 2),
            stack(&[0, 2, 3], 4),
            stack(&[1], 8),
            stack(&[0, 2], 16),
        ];
        let mut folded = Folded { frames, stacks, unit: Unit::Samples };
        let named = |calls: &[Call]| -> Vec<(String, u64)> {
            calls.iter().map(|call| (call.function.clone().unwrap_or_default(), call.amount)).collect()
        };
        let found = calls(&folded, "f").unwrap();
        assert_eq!((found.all, found.total, found.own), (31, 15, 14));
        assert_eq!(named(&found.callers), [(String::new(), 8), ("g".to_owned(), 6), ("main".to_owned(), 1)]);
        assert_eq!(named(&found.callees), [("g".to_owned(), 1)]);
        folded.unit = Unit::BlockedNs;
        let found = calls(&folded, "g").unwrap();
        assert_eq!((found.all, found.total, found.own, found.unit.as_str()), (310, 230, 170, "ns"));
        assert_eq!(calls(&folded, "h"), None);
        assert_eq!(names_with(&folded, "MAI", 5), ["main"]);
    }
}
