//! A call tree of bounded size.
//!
//! A node's own samples are those of stacks that end in it; its total is the sum of its own and its callees' totals.
//! When a tree is too large, the nodes with the fewest samples are pruned; for each caller, one node keeps the totals
//! of its pruned callees, so that all other sums stay the same.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Samples of the two sides of a comparison; without one, side 1 is 0.
pub(super) type Sides = [u64; 2];

/// The number of nodes above which a tree is pruned while it is built: with the index, some hundred megabytes.
const MAX_WHILE_BUILT: usize = 2_000_000;

/// A node; its caller precedes it. The first is the root, and its own caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) caller: u32,
    pub(super) label: u32,
    pub(super) own: Sides,
}

/// A call tree.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Numbers of nodes by caller and label.
    index: FxHashMap<(u32, u32), u32>,
    /// The label of nodes for pruned callees.
    pruned: u32,
    max: usize,
    n_pruned: u64,
}

impl Tree {
    /// Creates a tree from the labels of its root and of nodes for pruned callees.
    pub(super) fn new(root: u32, pruned: u32) -> Self {
        let root = Node { caller: 0, label: root, own: [0; 2] };
        Self { nodes: vec![root], index: FxHashMap::default(), pruned, max: MAX_WHILE_BUILT, n_pruned: 0 }
    }

    /// Returns the tree with another limit of nodes while it is built.
    #[cfg(test)]
    pub(super) fn with_max(self, max: usize) -> Self {
        Self { max, ..self }
    }

    /// Adds samples of a stack; labels start at the root.
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

    /// The number of nodes that were pruned.
    pub(super) fn n_pruned(&self) -> u64 {
        self.n_pruned
    }

    /// The total of each node.
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

    /// Keeps at most `max` nodes, those with the largest shares of the two sides added, and one more for the pruned
    /// callees of each.
    pub(super) fn prune(&mut self, max: usize) {
        if self.nodes.len() <= max {
            return;
        }
        let totals = self.totals();
        let [all, other] = totals.first().map_or([1; 2], |all| all.map(|n| u128::from(n.max(1))));
        let weight = |[n, m]: Sides| u128::from(n) * other + u128::from(m) * all;
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        // A caller has at least the samples of each callee and precedes it, so the stable sort keeps the caller of
        // every kept node.
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

    /// Finds or adds the callee with this label, and adds own samples to it.
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

/// The sum by side.
fn add([a, b]: Sides, [more_a, more_b]: Sides) -> Sides {
    [a.saturating_add(more_a), b.saturating_add(more_b)]
}
