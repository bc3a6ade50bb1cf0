//! Samples by function.

use super::counts::Count;
use super::stacks::Stacks;
use crate::escape::shown;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most functions listed by total, as well as by own samples; and the most callers and callees.
const MAX: usize = 500;

/// Samples by function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionsAnswer {
    /// All samples, or their weight.
    pub total: u64,
    /// The same by how the stacks end.
    pub stacks: BTreeMap<String, u64>,
    /// The functions with the largest totals, then those of the rest with the most own samples, each in descending order; then
    /// the chosen one if it is not among them.
    pub functions: Vec<FunctionCount>,
    /// The number of functions left out; all have fewer samples.
    pub left_out: usize,
    /// Callers of the chosen function; one without a name means that the stack ends there: it is a root, or its caller is not
    /// known.
    pub callers: Vec<FunctionCount>,
    /// Functions that it calls; one without a name means that it is a leaf.
    pub callees: Vec<FunctionCount>,
}

/// A function's samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionCount {
    /// The name; `None` in `callers` and `callees`, beyond the end of a stack.
    pub name: Option<String>,
    /// Base name of its file.
    pub module: String,
    /// Samples with the function as leaf.
    #[serde(rename = "self")]
    pub own: u64,
    /// Samples with the function anywhere on the stack.
    pub total: u64,
}

/// Lists the functions of side 0.
#[must_use]
pub fn functions(stacks: &Stacks) -> FunctionsAnswer {
    let count = |(label, Count { own: [own, _], total: [total, _], .. })| named(stacks, Some(label), own, total);
    let by_label = stacks.counts.by_label(&stacks.labels);
    let mut functions: Vec<_> = by_label.map(|(label, of_label)| (label, count((label, of_label)))).collect();
    // The largest totals first; of the remaining functions, those with the most own samples, or hot leaves would be
    // missed.
    functions.sort_by(|(_, a), (_, b)| (b.total, b.own, &a.name).cmp(&(a.total, a.own, &b.name)));
    if let Some(rest) = functions.get_mut(MAX..) {
        rest.sort_by_key(|(_, function)| Reverse(function.own));
    }
    let (listed, others) = functions.split_at(functions.len().min(2 * MAX));
    let others: Vec<_> = others.iter().filter(|(label, _)| stacks.counts.has_chosen(*label, &stacks.labels)).collect();
    let left_out = functions.len() - listed.len() - others.len();
    let functions = listed.iter().chain(others).map(|(_, function)| function.clone()).collect();
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
