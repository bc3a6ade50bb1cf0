//! Results for chunks of every size, as points of a curve.

use crate::verdict::{Named, PERCENTS, smallest};
use fpprof_analysis::accuracy::ChunkSizes;
use serde::Serialize;
use std::collections::BTreeMap;

/// The smallest chunk of the curve, bytes.
const SMALLEST: u64 = 512;
/// Points per doubling.
const STEPS: u32 = 8;
/// Limit of the curve, whatever depth a stack claims: [`SMALLEST`] times 2 to this power.
const MOST_DOUBLINGS: u32 = 24;

/// The curve of one process name.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    /// The name as displayed; empty for all processes.
    pub(super) name: String,
    /// Number of stacks.
    pub(super) samples: u64,
    /// Chunk size in bytes, number of complete stacks, mean bytes copied per sample.
    pub(super) points: Vec<(u64, u64, f64)>,
    /// (per cent, smallest chunk that completes that share of stacks); `None` if the recording does not show it.
    pub(super) smallest: Vec<(u8, Option<u64>)>,
    /// Histogram of stack depth: (from, to (exclusive), number of stacks).
    pub(super) depths: Vec<(f64, f64, u64)>,
    /// Number of stacks whose depth is not known.
    pub(super) without_depth: u64,
}

/// The curve of a process name, labelled `shown`.
pub(super) fn curve(named: &Named, shown: String) -> Curve {
    let sizes = &named.sizes;
    let points = chunk_sizes(sizes).into_iter().map(|size| (size, sizes.complete_at(size), sizes.mean_copied_at(size)));
    Curve {
        name: shown,
        samples: sizes.samples,
        points: if sizes.samples == 0 { Vec::new() } else { points.collect() },
        smallest: PERCENTS.into_iter().map(|percent| (percent, smallest(sizes, percent))).collect(),
        depths: depths(sizes),
        without_depth: sizes.without_depth,
    }
}

/// Fractions of doublings from the smallest chunk to beyond the largest needed one, and the exact sizes at which the
/// shares are reached, so that a curve drawn in steps passes through them.
fn chunk_sizes(sizes: &ChunkSizes) -> Vec<u64> {
    let largest = sizes.needed_bytes.keys().next_back().copied().unwrap_or(0);
    let mut all: Vec<u64> = PERCENTS.into_iter().filter_map(|percent| smallest(sizes, percent)).collect();
    all.retain(|&size| size >= SMALLEST);
    for step in 0..=MOST_DOUBLINGS.saturating_mul(STEPS) {
        let size = edge(step);
        all.push(size);
        if size >= largest.max(SMALLEST) {
            break;
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The chunk size at the given number of steps above the smallest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2^24 times 512 fits")]
fn edge(step: u32) -> u64 {
    (SMALLEST as f64 * (f64::from(step) / f64::from(STEPS)).exp2()).round() as u64
}

/// Histogram of depths, in bins of half a doubling.
fn depths(sizes: &ChunkSizes) -> Vec<(f64, f64, u64)> {
    let mut bins: BTreeMap<u32, u64> = BTreeMap::new();
    for (&depth, &n) in &sizes.depth_bytes {
        let bin = (depth.max(8) as f64).log2().mul_add(2.0, 0.0).floor().clamp(0.0, 127.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held within 0 to 127")]
        let total = bins.entry(bin as u32).or_default();
        *total = total.saturating_add(n);
    }
    let edge = |bin: u32| (f64::from(bin) / 2.0).exp2();
    bins.into_iter().map(|(bin, n)| (edge(bin), edge(bin.saturating_add(1)), n)).collect()
}
