//! Stacks as a tree, which stays bounded.
//!
//! A node has samples of its own: those of stacks that end in it. Samples through it are the sum of its own and its callees'. Of
//! a tree that is too large, nodes of the fewest samples go, and what went through them becomes one node for each
//! caller, so that all sums stay as they are.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Samples of the one side, or of both that are compared.
pub(super) type Sides = [u64; 2];

/// Nodes above which a tree is pruned while it is built: with their index some hundred megabytes.
const MAX_WHILE_BUILT: usize = 2_000_000;

/// A node; its caller stands before it. The first is the root, and its own caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) caller: u32,
    pub(super) label: u32,
    pub(super) own: Sides,
}

/// Stacks as a tree.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// By caller and label.
    index: FxHashMap<(u32, u32), u32>,
    /// The label of what was left out.
    pruned: u32,
    max: usize,
    n_pruned: u64,
}

impl Tree {
    /// A tree with a root of this label, and one for what is left out.
    pub(super) fn new(root: u32, pruned: u32) -> Self {
        let root = Node { caller: 0, label: root, own: [0; 2] };
        Self { nodes: vec![root], index: FxHashMap::default(), pruned, max: MAX_WHILE_BUILT, n_pruned: 0 }
    }

    /// The same, pruned earlier while it is built.
    #[cfg(test)]
    pub(super) fn with_max(self, max: usize) -> Self {
        Self { max, ..self }
    }

    /// Adds samples of a stack, whose labels come from the root on.
    pub(super) fn add(&mut self, path: impl Iterator<Item = u32>, side: usize, samples: u64) {
        let mut at = 0;
        for label in path {
            at = self.child(at, label, [0; 2]);
        }
        let own = self.nodes.get_mut(at as usize).and_then(|node| node.own.get_mut(side));
        if let Some(own) = own {
            *own = own.saturating_add(samples);
        }
        if self.nodes.len() > self.max {
            self.prune(self.max / 2);
        }
    }

    /// The nodes, callers before callees.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many nodes were left out.
    pub(super) fn n_pruned(&self) -> u64 {
        self.n_pruned
    }

    /// Samples through each node.
    pub(super) fn totals(&self) -> Vec<Sides> {
        let mut totals: Vec<Sides> = self.nodes.iter().map(|node| node.own).collect();
        for (number, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let total = totals.get(number).copied().unwrap_or_default();
            if let Some(caller) = totals.get_mut(node.caller as usize) {
                *caller = add(*caller, total);
            }
        }
        totals
    }

    /// Keeps at most so many nodes, those with the largest share of a side, and one more for each of them whose callees were left
    /// out.
    pub(super) fn prune(&mut self, max: usize) {
        if self.nodes.len() <= max {
            return;
        }
        let totals = self.totals();
        let [all, other] = totals.first().map_or([1; 2], |all| all.map(|n| u128::from(n.max(1))));
        let weight = |[n, m]: Sides| u128::from(n) * other + u128::from(m) * all;
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        // A caller has at least the samples of its callee, and stands before it: it is kept wherever that is.
        order.sort_by_key(|&number| Reverse(totals.get(number).map_or(0, |&total| weight(total))));
        let mut is_kept = vec![false; self.nodes.len()];
        for &number in order.iter().take(max.max(1)) {
            if let Some(kept) = is_kept.get_mut(number) {
                *kept = true;
            }
        }
        let mut smaller = Self { nodes: Vec::new(), index: FxHashMap::default(), ..*self };
        smaller.nodes.extend(self.nodes.first());
        let mut numbers: Vec<u32> = vec![0; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let caller = numbers.get(node.caller as usize).copied().unwrap_or(0);
            let [kept, caller_kept] = [number, node.caller as usize].map(|n| is_kept.get(n) == Some(&true));
            let placed = if kept {
                smaller.child(caller, node.label, node.own)
            } else if caller_kept {
                let total = totals.get(number).copied().unwrap_or_default();
                smaller.n_pruned += u64::from(node.label != self.pruned);
                smaller.child(caller, self.pruned, total)
            } else {
                smaller.n_pruned += u64::from(node.label != self.pruned);
                caller
            };
            if let Some(entry) = numbers.get_mut(number) {
                *entry = placed;
            }
        }
        *self = smaller;
    }

    /// The callee of this label, with more samples of its own.
    fn child(&mut self, caller: u32, label: u32, own: Sides) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let found = *self.index.entry((caller, label)).or_insert(next);
        if found == next {
            self.nodes.push(Node { caller, label, own });
        } else if let Some(node) = self.nodes.get_mut(found as usize) {
            node.own = add(node.own, own);
        }
        found
    }
}

/// The sum of both sides.
fn add([a, b]: Sides, [more_a, more_b]: Sides) -> Sides {
    [a.saturating_add(more_a), b.saturating_add(more_b)]
}
