//! The curve of chunk sizes at the sizes people choose from.

use super::{ChunkSizes, ProcessChunkSizes};
use crate::summary::{ChunkNeeds, ChunkPoint};
use std::collections::BTreeMap;

/// Per cent of the stacks that a size is looked for.
const PERCENTS: [u8; 5] = [50, 90, 95, 99, 100];
/// Sizes of the curve: powers of two from the smallest that holds a frame or two to the largest that was asked for here.
const SIZES: std::ops::RangeInclusive<u32> = 9..=20;

/// All processes first, then each process name, most samples first.
#[must_use]
pub fn chunk_needs(all: &ChunkSizes, processes: &[ProcessChunkSizes]) -> Vec<ChunkNeeds> {
    if all.samples == 0 {
        return Vec::new();
    }
    let mut by_comm: BTreeMap<&str, ChunkSizes> = BTreeMap::new();
    for process in processes {
        by_comm.entry(&process.comm).or_default().merge(&process.sizes);
    }
    let mut named: Vec<_> = by_comm.iter().collect();
    named.sort_by_key(|&(comm, sizes)| (std::cmp::Reverse(sizes.samples), *comm));
    let each = named.into_iter().map(|(comm, sizes)| needs(comm, sizes));
    std::iter::once(needs("", all)).chain(each).collect()
}

fn needs(comm: &str, sizes: &ChunkSizes) -> ChunkNeeds {
    let smallest = |percent: u8| (percent, sizes.smallest_for(f64::from(percent) / 100.0));
    let point = |power: u32| {
        let chunk_bytes = 1_u64 << power;
        let mean_copied_bytes = sizes.mean_copied_at(chunk_bytes);
        ChunkPoint { chunk_bytes, complete: sizes.complete_at(chunk_bytes), mean_copied_bytes }
    };
    let largest = sizes.needed_bytes.keys().next_back().copied().unwrap_or(0);
    // One size above the largest need says that the curve is flat from there.
    let powers = SIZES.take_while(|&power| power <= 16 || (1_u64 << (power - 1)) < largest);
    ChunkNeeds {
        comm: comm.to_owned(),
        samples: sizes.samples,
        smallest_bytes: PERCENTS.into_iter().map(smallest).collect(),
        curve: powers.map(point).collect(),
    }
}
