//! Keeps a page usable: if there are more nodes than a browser can draw quickly, those with the fewest samples are left
//! out.

use fpprof_analysis::detail::PairedStacks;

/// The most nodes in a page. At this limit a page has some ten megabytes, and every change of a filter takes about a
/// second.
pub(super) const MAX_NODES: usize = 250_000;

/// The nodes that are shown.
#[derive(Debug)]
pub(super) struct Pruned {
    /// The new index of each node, or that of its nearest kept caller; -1 for none.
    pub(super) number: Vec<i64>,
    /// The old indices of the kept nodes, ascending.
    pub(super) nodes: Vec<usize>,
    /// Frames in fewer samples than this were left out; 0 if all were kept.
    pub(super) below: u64,
}

/// Keeps at most `max` nodes, those with the most samples. Their callers have at least as many, and so stay.
pub(super) fn prune(stacks: &PairedStacks, max: usize) -> Pruned {
    let samples = samples(stacks);
    let mut below = 0;
    if stacks.nodes.len() > max {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by_key(|&n| std::cmp::Reverse(n));
        below = sorted.get(max).copied().unwrap_or(0).saturating_add(1);
    }
    let mut number: Vec<i64> = Vec::with_capacity(stacks.nodes.len());
    let mut nodes = Vec::new();
    for (index, (node, &n)) in stacks.nodes.iter().zip(&samples).enumerate() {
        let above = node.parent.and_then(|parent| number.get(parent as usize).copied()).unwrap_or(-1);
        if n >= below {
            number.push(i64::try_from(nodes.len()).unwrap_or(-1));
            nodes.push(index);
        } else {
            number.push(above);
        }
    }
    Pruned { number, nodes, below }
}

/// The number of samples through each node.
fn samples(stacks: &PairedStacks) -> Vec<u64> {
    let mut samples = vec![0_u64; stacks.nodes.len()];
    for row in &stacks.rows {
        for leaf in [row.reference, row.other].into_iter().flatten() {
            if let Some(n) = samples.get_mut(leaf as usize) {
                *n = n.saturating_add(row.samples);
            }
        }
    }
    // Parents come before their children in the table.
    for index in (0..stacks.nodes.len()).rev() {
        let own = samples.get(index).copied().unwrap_or(0);
        let parent = stacks.nodes.get(index).and_then(|node| node.parent).map(|parent| parent as usize);
        if let Some(n) = parent.filter(|&parent| parent < index).and_then(|parent| samples.get_mut(parent)) {
            *n = n.saturating_add(own);
        }
    }
    samples
}
