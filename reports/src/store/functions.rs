//! The functions of an answer.

use super::counts::Count;
use super::stacks::Stacks;
use crate::escape::shown;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Functions of an answer, by samples on the stack and by samples of their own.
const MAX: usize = 500;

/// Samples by function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionsAnswer {
    /// All samples, or what they stand for.
    pub total: u64,
    /// Those of the stacks that are complete, truncated and so on.
    pub stacks: BTreeMap<String, u64>,
    /// Those with the most samples first.
    pub functions: Vec<FunctionCount>,
    /// Functions that were left out, as all of them have fewer samples.
    pub left_out: usize,
    /// What calls the chosen function, and what it calls; without a name where it is a root or a leaf.
    pub callers: Vec<FunctionCount>,
    /// See `callers`.
    pub callees: Vec<FunctionCount>,
}

/// A function's samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionCount {
    /// Its name; `None` beyond a stack's end.
    pub name: Option<String>,
    /// The file that it is in.
    pub module: String,
    /// As a leaf.
    #[serde(rename = "self")]
    pub own: u64,
    /// Anywhere on the stack.
    pub total: u64,
}

/// The functions of the one side.
#[must_use]
pub fn functions(stacks: &Stacks) -> FunctionsAnswer {
    let count = |(label, Count { own: [own, _], total: [total, _], .. })| named(stacks, Some(label), own, total);
    let mut functions: Vec<_> = stacks.counts.by_label(&stacks.labels).map(count).collect();
    // The most samples on the stack, and behind them those of the rest with the most of their own.
    functions.sort_by(|a, b| (b.total, b.own, &a.name).cmp(&(a.total, a.own, &b.name)));
    if let Some(rest) = functions.get_mut(MAX..) {
        rest.sort_by_key(|function| Reverse(function.own));
    }
    let left_out = functions.len().saturating_sub(2 * MAX);
    functions.truncate(2 * MAX);
    let neighbours = |of: &FxHashMap<Option<u32>, u64>| {
        let mut list: Vec<_> = of.iter().map(|(&label, &n)| named(stacks, label, 0, n)).collect();
        list.sort_by(|a, b| (b.total, &a.name).cmp(&(a.total, &b.name)));
        list.truncate(MAX);
        list
    };
    FunctionsAnswer {
        total: stacks.total[0],
        stacks: stacks.ends.iter().map(|(class, sides)| (class.clone(), sides[0])).collect(),
        functions,
        left_out,
        callers: neighbours(&stacks.counts.callers),
        callees: neighbours(&stacks.counts.callees),
    }
}

fn named(stacks: &Stacks, label: Option<u32>, own: u64, total: u64) -> FunctionCount {
    let label = label.and_then(|label| stacks.labels.get(label));
    let text = |number: u32| shown(stacks.labels.text(number)).into_owned();
    FunctionCount {
        name: label.map(|label| text(label.name)),
        module: label.map_or_else(String::new, |label| text(label.module)),
        own,
        total,
    }
}
