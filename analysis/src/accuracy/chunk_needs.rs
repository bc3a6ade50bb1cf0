//! The curve of chunk sizes, at typical sizes.

use super::{ChunkSizes, NamedChunkSizes};
use crate::spread::Spread;
use crate::summary::{ChunkNeeds, ChunkPoint};

/// The percentages of stacks for which the smallest sufficient size is computed.
const PERCENTS: [u8; 5] = [50, 90, 95, 99, 100];
/// Log2 of the sizes on the curve: from one that holds a frame or two to the largest that can be recorded.
const SIZES: std::ops::RangeInclusive<u32> = 9..=24;

/// Figures that do not depend on the chunk size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Around {
    /// Bytes per sample in addition to its chunk: registers, frame-pointer chain, kernel chain.
    pub other_bytes_per_sample: f64,
    /// Length of the recording, seconds.
    pub duration_s: f64,
    /// The size of the recorded chunks: nothing is known of larger ones. 0 if it is not known.
    pub recorded_bytes: u64,
    /// Whether a chunk has its full size even if the stack ends before, as those of perf events.
    pub is_padded: bool,
}

/// Needs of all processes together, then by process name, in the given order.
#[must_use]
pub fn chunk_needs(all: &ChunkSizes, names: &[NamedChunkSizes], around: Around) -> Vec<ChunkNeeds> {
    if all.samples == 0 {
        return Vec::new();
    }
    let each = names.iter().map(|named| needs(&named.comm, &named.sizes, around));
    std::iter::once(needs("", all, around)).chain(each).collect()
}

fn needs(comm: &str, sizes: &ChunkSizes, around: Around) -> ChunkNeeds {
    let smallest = |percent: u8| (percent, sizes.smallest_for(f64::from(percent) / 100.0));
    let point = |chunk_bytes: u64| {
        let mean_copied_bytes = if around.is_padded { chunk_bytes as f64 } else { sizes.mean_copied_at(chunk_bytes) };
        let bytes_per_sample = mean_copied_bytes + around.other_bytes_per_sample;
        let minutes = around.duration_s / 60.0;
        let bytes = bytes_per_sample * sizes.to_copy as f64;
        ChunkPoint {
            chunk_bytes,
            complete: sizes.complete_at(chunk_bytes),
            mean_copied_bytes,
            bytes_per_sample,
            bytes_per_minute: if minutes > 0.0 { bytes / minutes } else { 0.0 },
        }
    };
    let largest = sizes.needed_bytes.keys().next_back().copied().unwrap_or(0);
    // One size above the largest need shows that the curve is flat from there.
    let powers = SIZES.take_while(|&power| power <= 16 || (1_u64 << (power - 1)) < largest);
    let recorded = Some(around.recorded_bytes).filter(|&bytes| bytes > 0);
    let smaller = powers.map(|power| 1_u64 << power).filter(|&bytes| recorded.is_none_or(|most| bytes < most));
    let last = recorded.filter(|&bytes| bytes / 2 < largest.max(1 << 16));
    ChunkNeeds {
        comm: comm.to_owned(),
        samples: sizes.samples,
        smallest_bytes: PERCENTS.into_iter().map(smallest).collect(),
        curve: smaller.chain(last).map(point).collect(),
        depth_bytes: Spread::of(&sizes.depth_bytes),
        without_depth: sizes.without_depth,
    }
}
