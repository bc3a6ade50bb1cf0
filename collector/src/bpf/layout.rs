//! Sizes of a ring and of the records in it.
//!
//! A ring is made of parts, each an element of a BPF array. A record may begin at the very end of a part: it goes on behind
//! it, in slack that belongs to no position, so that every record lies in one piece.
//!
//! ```text
//!   0                             part_bytes         part_room   value_bytes
//!   | record | record | ...       | rest of the last  |   page   |
//! ```

use super::types::{fp_frame, gap, gap_cause, interrupted, limit, sample_head};
use fpprof_recording::model::CaptureMode;
use std::mem::size_of;

const PAGE: u64 = limit::PAGE_BYTES.0 as u64;
const FRAMES_ROOM: u64 = limit::MAX_FRAMES.0 as u64 * size_of::<fp_frame>() as u64;
const KERNEL_ROOM: u64 = limit::MAX_KERNEL_FRAMES.0 as u64 * 8;
const GAPS_ROOM: u64 = (gap_cause::GAP_NO_RING.0 as u64 + 1) * size_of::<gap>() as u64;
const HOLES_ROOM: u64 = limit::HOLE_WORDS.0 as u64 * 8;
/// Up to where a chunk lies as its stack does in a cache line, and the rest of its own; and its red zone.
const LINES: u64 = 2 * limit::CACHE_LINE_BYTES.0 as u64 + limit::RED_ZONE_BYTES.0 as u64;
/// What else the chunk of an interrupted stack takes: both chunks together have the bytes of one.
const INTERRUPTED_ROOM: u64 = size_of::<interrupted>() as u64 + limit::RED_ZONE_BYTES.0 as u64 + HOLES_ROOM + 8;
const FP_SCRATCH: u64 = limit::FP_SCRATCH_BYTES.0 as u64;
/// Largest chunk that can be asked for.
pub(crate) const MAX_CHUNK_BYTES: u64 = limit::MAX_CHUNK_BYTES.0 as u64;
/// Rings of all CPUs together, those of process events among them, take no more kernel memory than this, slack included,
/// unless asked to: or, where CPUs are very many, what [`MIN_PARTS`] of the largest samples take.
const MAX_DEFAULT_TOTAL: u64 = 256_000_000;
/// What of it samples have.
const MAX_SAMPLES_TOTAL: u64 = MAX_DEFAULT_TOTAL - crate::sideband::TOTAL_BYTES;
/// Ring of a CPU when nothing is asked for: room for so many of the largest samples, which is 30 ms at 5 kHz, within
/// these bounds.
const DEFAULT_SAMPLES: u64 = 160;
const SMALLEST_DEFAULT_RING: u64 = 8 << 20;
const LARGEST_DEFAULT_RING: u64 = 64 << 20;
/// Largest ring of a CPU.
const MAX_RING: u64 = 256 << 20;
const MAX_PARTS: u64 = limit::MAX_PARTS.0 as u64;
/// While one part is read, another can be filled.
const MIN_PARTS: u64 = 2;
/// Largest element of a BPF array on older kernels, `KMALLOC_MAX_SIZE`.
const LARGEST_ELEMENT_BEFORE_6_0: u64 = 4 << 20;

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Room of one part of a ring, a power of two.
    pub(crate) part_bytes: u64,
    /// Parts of a ring, from 2 to 64.
    pub(crate) n_parts: u64,
    /// Size of a part's array element: its room, the slack behind it, and a page.
    pub(crate) value_bytes: u64,
    /// Most bytes one sample takes while it is collected.
    pub(crate) max_record_bytes: u64,
    /// Last offset in a part behind which a page can still be written.
    pub(crate) part_room: u64,
    /// Most bytes of stack.
    pub(crate) max_chunk_bytes: u64,
}

/// Why there is no such ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayoutError {
    /// No stack bytes at all, or more than we take.
    ChunkBytes { asked: u64, max: u64 },
    /// Not even two samples fit.
    RingTooSmall { asked: u64, needed: u64 },
    /// More than we take.
    RingTooLarge { asked: u64, max: u64 },
}

impl Layout {
    /// Sizes of `n_rings` rings for `mode`, each of `asked` bytes, rounded up to a power of two, or of our choice.
    pub(crate) fn new(mode: CaptureMode, asked: Option<u64>, n_rings: u64) -> Result<Self, LayoutError> {
        let head = size_of::<sample_head>() as u64;
        let (chunk, room) = match mode {
            CaptureMode::Fp => (0, FRAMES_ROOM + FP_SCRATCH),
            CaptureMode::Dwarf { stack_bytes } => (u64::from(stack_bytes), HOLES_ROOM + INTERRUPTED_ROOM),
            CaptureMode::Both { stack_bytes } => (u64::from(stack_bytes), HOLES_ROOM + INTERRUPTED_ROOM + FRAMES_ROOM),
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
            None => (DEFAULT_SAMPLES * max_record_bytes).max(SMALLEST_DEFAULT_RING).min(largest).max(needed),
        };
        let value_bytes = |part_bytes: u64| (part_bytes + max_record_bytes).next_multiple_of(PAGE) + PAGE;
        let part_bytes = ring_bytes.div_ceil(MAX_PARTS).max(2 * max_record_bytes).next_power_of_two();
        let mut part_bytes = part_bytes.min(ring_bytes.next_power_of_two() / 2);
        // Where it is ours to choose, the slack counts too; and where there is little room, smaller parts make more of it.
        let most = |part_bytes| if asked.is_some() { MAX_PARTS } else { largest / value_bytes(part_bytes) };
        let can_halve = |part_bytes| part_bytes / 2 >= max_record_bytes && ring_bytes / (part_bytes / 2) <= MAX_PARTS;
        while can_halve(part_bytes)
            && (most(part_bytes) < 2 * MIN_PARTS || value_bytes(part_bytes) > LARGEST_ELEMENT_BEFORE_6_0)
        {
            part_bytes /= 2;
        }
        let n_parts = ring_bytes.div_ceil(part_bytes).min(most(part_bytes)).clamp(MIN_PARTS, MAX_PARTS);
        let value_bytes = value_bytes(part_bytes);
        let part_room = value_bytes - PAGE;
        Ok(Self { part_bytes, n_parts, value_bytes, max_record_bytes, part_room, max_chunk_bytes: chunk })
    }

    /// Room of one ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.n_parts * self.part_bytes
    }

    /// A bit for each part.
    pub(crate) fn all_parts(&self) -> u64 {
        u64::MAX >> (MAX_PARTS - self.n_parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two of the largest samples always fit, and that a ring one byte too small is refused with the size.
    #[test]
    fn two_samples_fit_or_the_ring_is_refused() {
        for mode in
            [CaptureMode::Fp, CaptureMode::Dwarf { stack_bytes: 65_536 }, CaptureMode::Both { stack_bytes: 1 << 20 }]
        {
            let Err(LayoutError::RingTooSmall { asked, needed }) = Layout::new(mode, Some(1), 2) else {
                panic!("a ring of one byte was accepted for {mode:?}")
            };
            assert_eq!(asked, 1);
            let layout = Layout::new(mode, Some(needed), 2).expect("the size said to be needed is enough");
            assert!(layout.ring_bytes() >= 2 * layout.max_record_bytes);
            assert!(layout.part_room >= layout.part_bytes + layout.max_record_bytes);
            assert_eq!((layout.n_parts, layout.all_parts()), (2, 0b11));
            assert!(Layout::new(mode, Some(needed - 1), 2).is_err());
        }
    }

    /// Check that default rings, slack and all, stay within their total on machines of any size, and hold several of the
    /// largest samples there, or as many as is said where there is room.
    #[test]
    fn default_rings_are_bounded() {
        let layout = |mode, n_rings| Layout::new(mode, None, n_rings).expect("sizes");
        for n_rings in [1, 2, 3, 64, 256, 512] {
            let layout = layout(CaptureMode::Both { stack_bytes: 65_536 }, n_rings);
            assert!(
                (layout.n_parts * layout.value_bytes) * n_rings <= MAX_SAMPLES_TOTAL,
                "{n_rings} rings: {layout:?}"
            );
            assert!(layout.ring_bytes() >= 3 * layout.max_record_bytes, "{n_rings} rings: {layout:?}");
        }
        let whole = layout(CaptureMode::Both { stack_bytes: 65_536 }, 2);
        assert!(
            whole.ring_bytes() >= DEFAULT_SAMPLES * whole.max_record_bytes
                && whole.n_parts * whole.value_bytes < 16 << 20
        );
        assert_eq!(layout(CaptureMode::Fp, 2).ring_bytes(), 8 << 20);
        let large = layout(CaptureMode::Dwarf { stack_bytes: 1 << 20 }, 2);
        assert!(large.n_parts * large.value_bytes <= LARGEST_DEFAULT_RING + PAGE * large.n_parts, "{large:?}");
    }

    /// Check that no array element exceeds what kernels before 6.0 allow, up to chunks of 1 MiB and rings of 64 MiB.
    #[test]
    fn array_elements_are_small() {
        for stack_bytes in [4096, 65_536, 1 << 20] {
            for asked in [None, Some(64 << 20)] {
                let layout = Layout::new(CaptureMode::Both { stack_bytes }, asked, 2).expect("sizes");
                assert!(layout.value_bytes <= LARGEST_ELEMENT_BEFORE_6_0, "{stack_bytes} bytes, {asked:?}: {layout:?}");
            }
        }
    }

    /// Check that a ring of a given size has that size, whatever its parts.
    #[test]
    fn asked_rings_are_whole_parts() {
        for asked in [1 << 20, 8 << 20, 256 << 20] {
            for stack_bytes in [4096, 65_536, 200_000] {
                let layout = Layout::new(CaptureMode::Both { stack_bytes }, Some(asked), 2).expect("sizes");
                assert_eq!(layout.ring_bytes(), asked);
                assert!((2..=MAX_PARTS).contains(&layout.n_parts) && layout.part_bytes >= layout.max_record_bytes);
            }
        }
    }

    /// Check that no stack bytes, and more than the limit, are refused.
    #[test]
    fn absurd_chunks_are_refused() {
        let too_many = u32::try_from(MAX_CHUNK_BYTES + 1).expect("fits");
        for stack_bytes in [0, too_many] {
            let refused = Layout::new(CaptureMode::Dwarf { stack_bytes }, None, 2);
            assert!(matches!(refused, Err(LayoutError::ChunkBytes { .. })), "{stack_bytes}: {refused:?}");
        }
    }
}
