//! Comparison of two selections.

use super::flamegraph::{MAX_NODES, Nodes, nodes};
use super::stacks::Stacks;
use crate::escape::shown;
use fpprof_analysis::changes::Shift;
use serde::Serialize;

/// The most functions in an answer.
const MAX: usize = 500;

/// A comparison: side 0 is before, side 1 after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// All samples of each side, or their weights.
    pub total: [u64; 2],
    /// The number of nodes left out; their samples are in nodes of kind 5.
    pub left_out: u64,
    /// The tree of both sides.
    pub nodes: Nodes,
    /// The total of each node, before.
    pub before: Vec<u64>,
    /// The total of each node, after.
    pub after: Vec<u64>,
    /// Functions, those whose own or total share changed most first.
    pub functions: Vec<ComparedFunction>,
    /// The number of functions left out; their shares changed less.
    pub functions_left_out: usize,
}

/// A function on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedFunction {
    /// Its name.
    pub name: String,
    /// Base name of its file.
    pub module: String,
    /// Samples with the function as leaf.
    #[serde(rename = "self")]
    pub own: Shift,
    /// Samples with the function anywhere on the stack.
    pub total: Shift,
}

/// Compares both sides. `has_intervals` states that they are independent samples, rather than weights, or the same
/// samples under two strategies: otherwise a difference has no confidence interval.
#[must_use]
pub fn compared(mut stacks: Stacks, has_intervals: bool) -> Compared {
    stacks.tree.prune(MAX_NODES);
    let totals = stacks.tree.totals();
    let total @ [all_before, all_after] = stacks.total;
    let shift = |[before, after]: [u64; 2]| Shift::new((before, all_before), (after, all_after), !has_intervals);
    let text = |number: u32| shown(stacks.labels.text(number)).into_owned();
    let counts = stacks.counts.by_label(&stacks.labels);
    let mut functions: Vec<ComparedFunction> = counts
        .filter_map(|(label, count)| {
            let label = stacks.labels.get(label)?;
            let (own, total) = (shift(count.own), shift(count.total));
            Some(ComparedFunction { name: text(label.name), module: text(label.module), own, total })
        })
        .collect();
    let change = |function: &ComparedFunction| function.own.points.abs().max(function.total.points.abs());
    functions.sort_by(|a, b| change(b).total_cmp(&change(a)).then_with(|| a.name.cmp(&b.name)));
    let functions_left_out = functions.len().saturating_sub(MAX);
    functions.truncate(MAX);
    Compared {
        total,
        left_out: stacks.tree.n_pruned(),
        nodes: nodes(stacks.tree.nodes(), &stacks.labels),
        before: totals.iter().map(|sides| sides[0]).collect(),
        after: totals.iter().map(|sides| sides[1]).collect(),
        functions,
        functions_left_out,
    }
}
