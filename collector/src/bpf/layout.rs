//! Sizes of a ring buffer and of its records.
//!
//! A ring consists of segments, each an element of a BPF array. A record may begin at the very end of a segment: it
//! continues beyond it, in slack that belongs to no position, so that every record is contiguous.
//!
//! ```text
//!   0                             segment_bytes         segment_room   value_bytes
//!   | record | record | ...       | rest of the last  |  spare   |
//! ```

use super::types::{cfi_miss, fp_frame, gap, gap_cause, interrupted, limit, sample_head};
use fpprof_recording::model::CaptureMode;
use std::mem::size_of;

const PAGE: u64 = limit::PAGE_BYTES.0 as u64;
const FRAMES_ROOM: u64 = limit::MAX_FRAMES.0 as u64 * size_of::<fp_frame>() as u64;
const KERNEL_ROOM: u64 = limit::MAX_KERNEL_FRAMES.0 as u64 * 8;
const GAPS_ROOM: u64 = (gap_cause::GAP_NO_RING.0 as u64 + 1) * size_of::<gap>() as u64;
const HOLES_ROOM: u64 = limit::HOLE_WORDS.0 as u64 * 8;
/// Padding before a chunk, so that it has the same cache line alignment as its stack; the rest of its last line; and
/// its red zone.
const LINES: u64 = 2 * limit::CACHE_LINE_BYTES.0 as u64 + limit::RED_ZONE_BYTES.0 as u64;
/// What the chunk of an interrupted stack adds: both chunks together have the bytes of one.
const INTERRUPTED_ROOM: u64 = size_of::<interrupted>() as u64 + limit::RED_ZONE_BYTES.0 as u64 + HOLES_ROOM + 8;
const MISS_ROOM: u64 = size_of::<cfi_miss>() as u64;
/// The copied part of the stack in which a walk reads.
const WINDOW: u64 = limit::NEXT_WINDOW_BYTES.0 as u64;
/// What can be written at the last offset: at least a page, and the part of a stack that is copied for a walk.
const SPARE: u64 = WINDOW;
/// The largest chunk that can be requested.
pub(crate) const MAX_CHUNK_BYTES: u64 = limit::MAX_CHUNK_BYTES.0 as u64;
/// The most kernel memory of all CPUs' rings together, including those of process events and the slack, unless a size
/// is requested: or, with very many CPUs, what [`MIN_SEGMENTS`] of the largest samples take.
const MAX_DEFAULT_TOTAL: u64 = 256_000_000;
/// The part of it for samples.
const MAX_SAMPLES_TOTAL: u64 = MAX_DEFAULT_TOTAL - crate::sideband::TOTAL_BYTES;
/// The default ring of a CPU has room for this many of the largest samples, which is 30 ms at 5 kHz, within
/// these bounds; for fewer if most stacks are walked in the kernel, whose rules take memory, too.
const DEFAULT_SAMPLES: u64 = 160;
const DEFAULT_SAMPLES_OF_WALKS: u64 = 100;
const SMALLEST_DEFAULT_RING: u64 = 8 << 20;
const LARGEST_DEFAULT_RING: u64 = 64 << 20;
/// The largest ring of a CPU.
const MAX_RING: u64 = 256 << 20;
const MAX_SEGMENTS: u64 = limit::MAX_SEGMENTS.0 as u64;
/// While one segment is read, another can be filled.
const MIN_SEGMENTS: u64 = 2;
/// The largest element of a BPF array on older kernels, `KMALLOC_MAX_SIZE`.
const LARGEST_ELEMENT_BEFORE_6_0: u64 = 4 << 20;

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a segment, a power of two.
    pub(crate) segment_bytes: u64,
    /// Segments of a ring, from 2 to 64.
    pub(crate) n_segments: u64,
    /// Size of a segment's array element: the segment, its slack, and the spare bytes.
    pub(crate) value_bytes: u64,
    /// The most bytes a sample takes while it is collected.
    pub(crate) max_record_bytes: u64,
    /// The last offset in a segment's element at which the spare bytes can still be written.
    pub(crate) segment_room: u64,
    /// The most bytes of stack.
    pub(crate) max_chunk_bytes: u64,
}

/// Why a ring is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayoutError {
    /// No stack bytes at all, or more than the maximum.
    ChunkBytes { asked: u64, max: u64 },
    /// Not even two samples fit.
    RingTooSmall { asked: u64, needed: u64 },
    /// More than the maximum.
    RingTooLarge { asked: u64, max: u64 },
}

impl Layout {
    /// Sizes of `n_rings` rings for `mode`, each of `asked` bytes, rounded up to a power of two, or of the default
    /// size.
    pub(crate) fn new(mode: CaptureMode, asked: Option<u64>, n_rings: u64) -> Result<Self, LayoutError> {
        let head = size_of::<sample_head>() as u64;
        let is_walked = matches!(mode, CaptureMode::Cfi { .. });
        let n_samples = if is_walked { DEFAULT_SAMPLES_OF_WALKS } else { DEFAULT_SAMPLES };
        let (chunk, room) = match mode {
            CaptureMode::Fp => (0, FRAMES_ROOM + WINDOW),
            CaptureMode::Dwarf { stack_bytes } => (u64::from(stack_bytes), HOLES_ROOM + INTERRUPTED_ROOM),
            CaptureMode::Both { stack_bytes, every } => {
                let window = if every > 1 { WINDOW } else { 0 };
                (u64::from(stack_bytes), HOLES_ROOM + INTERRUPTED_ROOM + FRAMES_ROOM + window)
            }
            CaptureMode::Cfi { stack_bytes, frame_pointers, .. } => {
                let frames = FRAMES_ROOM * (1 + u64::from(frame_pointers));
                (u64::from(stack_bytes), HOLES_ROOM + INTERRUPTED_ROOM + frames + WINDOW + MISS_ROOM)
            }
        };
        if mode != CaptureMode::Fp && !(1..=MAX_CHUNK_BYTES).contains(&chunk) {
            return Err(LayoutError::ChunkBytes { asked: chunk, max: MAX_CHUNK_BYTES });
        }
        let max_record_bytes = head + chunk.next_multiple_of(8) + LINES + room + KERNEL_ROOM + GAPS_ROOM;
        let needed = (2 * max_record_bytes).next_power_of_two();
        let largest = (MAX_SAMPLES_TOTAL / n_rings.max(1)).min(LARGEST_DEFAULT_RING);
        let ring_bytes = match asked {
            Some(asked) if asked < needed => return Err(LayoutError::RingTooSmall { asked, needed }),
            Some(asked) if asked > MAX_RING => return Err(LayoutError::RingTooLarge { asked, max: MAX_RING }),
            Some(asked) => asked.next_power_of_two(),
            None => (n_samples * max_record_bytes).max(SMALLEST_DEFAULT_RING).min(largest).max(needed),
        };
        let value_bytes = |segment_bytes: u64| (segment_bytes + max_record_bytes).next_multiple_of(PAGE) + SPARE;
        let segment_bytes = ring_bytes.div_ceil(MAX_SEGMENTS).max(2 * max_record_bytes).next_power_of_two();
        let mut segment_bytes = segment_bytes.min(ring_bytes.next_power_of_two() / 2);
        // For the default size, slack counts too; and if there is little room, smaller segments use it better.
        let most = |segment_bytes| if asked.is_some() { MAX_SEGMENTS } else { largest / value_bytes(segment_bytes) };
        let can_halve =
            |segment_bytes| segment_bytes / 2 >= max_record_bytes && ring_bytes / (segment_bytes / 2) <= MAX_SEGMENTS;
        while can_halve(segment_bytes)
            && (most(segment_bytes) < 2 * MIN_SEGMENTS || value_bytes(segment_bytes) > LARGEST_ELEMENT_BEFORE_6_0)
        {
            segment_bytes /= 2;
        }
        let n_segments = ring_bytes.div_ceil(segment_bytes).min(most(segment_bytes)).clamp(MIN_SEGMENTS, MAX_SEGMENTS);
        let value_bytes = value_bytes(segment_bytes);
        let segment_room = value_bytes - SPARE;
        Ok(Self { segment_bytes, n_segments, value_bytes, max_record_bytes, segment_room, max_chunk_bytes: chunk })
    }

    /// Bytes of one ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.n_segments * self.segment_bytes
    }

    /// A mask with a bit for each segment.
    pub(crate) fn all_segments(&self) -> u64 {
        u64::MAX >> (MAX_SEGMENTS - self.n_segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two of the largest samples always fit, and that a ring one byte too small is refused with the needed
    /// size.
    #[test]
    fn two_samples_fit_or_the_ring_is_refused() {
        for mode in [
            CaptureMode::Fp,
            CaptureMode::Dwarf { stack_bytes: 65_536 },
            CaptureMode::Both { stack_bytes: 1 << 20, every: 1 },
        ] {
            let Err(LayoutError::RingTooSmall { asked, needed }) = Layout::new(mode, Some(1), 2) else {
                panic!("a ring of one byte was accepted for {mode:?}")
            };
            assert_eq!(asked, 1);
            let layout = Layout::new(mode, Some(needed), 2).expect("the size said to be needed is enough");
            assert!(layout.ring_bytes() >= 2 * layout.max_record_bytes);
            assert!(layout.segment_room >= layout.segment_bytes + layout.max_record_bytes);
            assert_eq!((layout.n_segments, layout.all_segments()), (2, 0b11));
            assert!(Layout::new(mode, Some(needed - 1), 2).is_err());
        }
    }

    /// Check that default rings, including slack, stay within their total on machines of any size, and hold several of
    /// the largest samples, or the documented number if there is room.
    #[test]
    fn default_rings_are_bounded() {
        let layout = |mode, n_rings| Layout::new(mode, None, n_rings).expect("sizes");
        for n_rings in [1, 2, 3, 64, 256, 512] {
            let layout = layout(CaptureMode::Both { stack_bytes: 65_536, every: 1 }, n_rings);
            assert!(
                (layout.n_segments * layout.value_bytes) * n_rings <= MAX_SAMPLES_TOTAL,
                "{n_rings} rings: {layout:?}"
            );
            assert!(layout.ring_bytes() >= 3 * layout.max_record_bytes, "{n_rings} rings: {layout:?}");
        }
        let whole = layout(CaptureMode::Both { stack_bytes: 65_536, every: 1 }, 2);
        assert!(
            whole.ring_bytes() >= DEFAULT_SAMPLES * whole.max_record_bytes
                && whole.n_segments * whole.value_bytes < 16 << 20
        );
        assert_eq!(layout(CaptureMode::Fp, 2).ring_bytes(), 8 << 20);
        let large = layout(CaptureMode::Dwarf { stack_bytes: 1 << 20 }, 2);
        assert!(large.n_segments * large.value_bytes <= LARGEST_DEFAULT_RING + PAGE * large.n_segments, "{large:?}");
    }

    /// Check that no array element exceeds what kernels before 6.0 allow, up to chunks of 1 MiB and rings of 64 MiB.
    #[test]
    fn array_elements_are_small() {
        for stack_bytes in [4096, 65_536, 1 << 20] {
            for asked in [None, Some(64 << 20)] {
                let layout = Layout::new(CaptureMode::Both { stack_bytes, every: 1 }, asked, 2).expect("sizes");
                assert!(layout.value_bytes <= LARGEST_ELEMENT_BEFORE_6_0, "{stack_bytes} bytes, {asked:?}: {layout:?}");
            }
        }
    }

    /// Check that a ring of a requested size has that size, whatever its segments.
    #[test]
    fn asked_rings_are_whole_parts() {
        for asked in [1 << 20, 8 << 20, 256 << 20] {
            for stack_bytes in [4096, 65_536, 200_000] {
                let layout = Layout::new(CaptureMode::Both { stack_bytes, every: 1 }, Some(asked), 2).expect("sizes");
                assert_eq!(layout.ring_bytes(), asked);
                assert!(
                    (2..=MAX_SEGMENTS).contains(&layout.n_segments) && layout.segment_bytes >= layout.max_record_bytes
                );
            }
        }
    }

    /// Check that zero stack bytes, and more than the limit, are refused.
    #[test]
    fn absurd_chunks_are_refused() {
        let too_many = u32::try_from(MAX_CHUNK_BYTES + 1).expect("fits");
        for stack_bytes in [0, too_many] {
            let refused = Layout::new(CaptureMode::Dwarf { stack_bytes }, None, 2);
            assert!(matches!(refused, Err(LayoutError::ChunkBytes { .. })), "{stack_bytes}: {refused:?}");
        }
    }
}
