//! A flame graph as columns; the page rebuilds the tree.

use super::labels::Labels;
use super::stacks::Stacks;
use super::tree::Node;
use crate::escape::shown;
use serde::Serialize;
use std::collections::BTreeMap;

/// The most nodes of an answer, not counting those for pruned callees. A browser draws this many without delay.
pub(super) const MAX_NODES: usize = 20_000;

/// The nodes of a flame graph, callers before callees. The first is the root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Nodes {
    /// Names of nodes and of modules.
    pub names: Vec<String>,
    /// Index of the caller's node; -1 for the root.
    pub parent: Vec<i64>,
    /// Index of the name.
    pub name: Vec<u32>,
    /// Index of the module's name.
    pub module: Vec<u32>,
    /// 0 the root, 1 a process, 2 a function, 3 truncated stacks, 4 broken stacks, 5 pruned callees.
    pub kind: Vec<u8>,
}

/// A flame graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flamegraph {
    /// All samples, or their weight.
    pub total: u64,
    /// The same by how the stacks end.
    pub stacks: BTreeMap<String, u64>,
    /// The number of nodes left out; their samples are in nodes of kind 5.
    pub left_out: u64,
    /// The tree.
    pub nodes: Nodes,
    /// The total of each node.
    pub samples: Vec<u64>,
}

/// Builds the flame graph of side 0.
#[must_use]
pub fn flamegraph(mut stacks: Stacks) -> Flamegraph {
    stacks.tree.prune(MAX_NODES);
    let totals = stacks.tree.totals();
    Flamegraph {
        total: stacks.total[0],
        stacks: stacks.ends.iter().map(|(class, sides)| (class.clone(), sides[0])).collect(),
        left_out: stacks.tree.n_pruned(),
        nodes: nodes(stacks.tree.nodes(), &stacks.labels),
        samples: totals.iter().map(|sides| sides[0]).collect(),
    }
}

/// Converts nodes to columns, with only the names they need.
pub(super) fn nodes(tree: &[Node], labels: &Labels) -> Nodes {
    let mut nodes = Nodes::default();
    let mut numbers = BTreeMap::new();
    let mut number = |name: u32, names: &mut Vec<String>| {
        *numbers.entry(name).or_insert_with(|| {
            names.push(shown(labels.text(name)).into_owned());
            u32::try_from(names.len() - 1).unwrap_or(u32::MAX)
        })
    };
    for (at, node) in tree.iter().enumerate() {
        let Some(label) = labels.get(node.label) else { continue };
        nodes.parent.push(if at == 0 { -1 } else { node.caller.into() });
        nodes.name.push(number(label.name, &mut nodes.names));
        nodes.module.push(number(label.module, &mut nodes.names));
        nodes.kind.push(label.kind as u8);
    }
    nodes
}
