//! Sizes of a ring and of the records in it.
//!
//! A ring is made of parts. A record may begin at the very end of a part: it goes on behind it, in slack that belongs to
//! no position, so that every record lies in one piece.
//!
//! ```text
//!   0                             part_bytes         part_stride                      value_bytes
//!   | record | record | ...       | record that starts here and | record | ...   | ... | page |
//! ```

use super::types::{fp_frame, gap, gap_cause, limit, sample_head};
use fpprof_recording::model::CaptureMode;
use std::mem::size_of;

const PAGE: u64 = limit::PAGE_BYTES.0 as u64;
const FRAMES_ROOM: u64 = limit::MAX_FRAMES.0 as u64 * size_of::<fp_frame>() as u64;
const KERNEL_ROOM: u64 = limit::MAX_KERNEL_FRAMES.0 as u64 * 8;
const GAPS_ROOM: u64 = (gap_cause::GAP_TABLE_FULL.0 as u64 + 1) * size_of::<gap>() as u64;
const HOLES_ROOM: u64 = limit::HOLE_WORDS.0 as u64 * 8;
/// Up to where a chunk lies as its stack does in a cache line, and the rest of its own.
const LINES: u64 = 2 * limit::CACHE_LINE_BYTES.0 as u64;
const FP_SCRATCH: u64 = limit::FP_SCRATCH_BYTES.0 as u64;
/// Largest chunk that can be asked for.
pub(crate) const MAX_CHUNK_BYTES: u64 = limit::MAX_CHUNK_BYTES.0 as u64;
/// Rings of all CPUs together take no more than this, unless asked to.
const MAX_DEFAULT_TOTAL: u64 = 512 << 20;
/// Ring of a CPU when nothing is asked for: room for so many of the largest samples, which is 30 ms at 5 kHz, within
/// these bounds.
const DEFAULT_SAMPLES: u64 = 160;
const SMALLEST_DEFAULT_RING: u64 = 8 << 20;
const LARGEST_DEFAULT_RING: u64 = 64 << 20;
/// Largest ring of a CPU.
const MAX_RING: u64 = 256 << 20;
const MAX_PARTS: u64 = limit::MAX_PARTS.0 as u64;

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Room of one part of a ring, a power of two.
    pub(crate) part_bytes: u64,
    /// From one part to the next: the room and the slack behind it.
    pub(crate) part_stride: u64,
    /// Parts of a ring, from 2 to 64.
    pub(crate) n_parts: u64,
    /// Size of a ring's array element.
    pub(crate) value_bytes: u64,
    /// Most bytes one sample takes while it is collected.
    pub(crate) max_record_bytes: u64,
    /// Last offset behind which a page can still be written.
    pub(crate) ring_room: u64,
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
    /// Sizes for `mode` on `n_cpus` CPUs; a ring of `asked` bytes, rounded up to a power of two, or of our choice.
    pub(crate) fn new(mode: CaptureMode, asked: Option<u64>, n_cpus: u64) -> Result<Self, LayoutError> {
        let head = size_of::<sample_head>() as u64;
        let (chunk, room) = match mode {
            CaptureMode::Fp => (0, FRAMES_ROOM + FP_SCRATCH),
            CaptureMode::Dwarf { stack_bytes } => (u64::from(stack_bytes), HOLES_ROOM),
            CaptureMode::Both { stack_bytes } => (u64::from(stack_bytes), HOLES_ROOM + FRAMES_ROOM),
        };
        if mode != CaptureMode::Fp && !(1..=MAX_CHUNK_BYTES).contains(&chunk) {
            return Err(LayoutError::ChunkBytes { asked: chunk, max: MAX_CHUNK_BYTES });
        }
        let max_record_bytes = head + chunk.next_multiple_of(8) + LINES + room + KERNEL_ROOM + GAPS_ROOM;
        let needed = (2 * max_record_bytes).next_power_of_two();
        let largest = (MAX_DEFAULT_TOTAL / n_cpus.max(1)).min(LARGEST_DEFAULT_RING);
        let ring_bytes = match asked {
            Some(asked) if asked < needed => return Err(LayoutError::RingTooSmall { asked, needed }),
            Some(asked) if asked > MAX_RING => return Err(LayoutError::RingTooLarge { asked, max: MAX_RING }),
            Some(asked) => asked.next_power_of_two(),
            None => (DEFAULT_SAMPLES * max_record_bytes).max(SMALLEST_DEFAULT_RING).min(largest).max(needed),
        };
        let part_bytes = ring_bytes.div_ceil(MAX_PARTS).max(2 * max_record_bytes).next_power_of_two();
        let part_bytes = part_bytes.min(ring_bytes.next_power_of_two() / 2);
        let part_stride = (part_bytes + max_record_bytes).next_multiple_of(PAGE);
        // Where it is ours to choose, the slack counts too.
        let most = if asked.is_some() { MAX_PARTS } else { largest / part_stride };
        let n_parts = ring_bytes.div_ceil(part_bytes).min(most).max(2);
        let value_bytes = n_parts * part_stride + PAGE;
        let ring_room = value_bytes - PAGE;
        Ok(Self { part_bytes, part_stride, n_parts, value_bytes, max_record_bytes, ring_room, max_chunk_bytes: chunk })
    }

    /// Room of one ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.n_parts * self.part_bytes
    }

    /// Where in an array element the last part ends, but for its slack.
    pub(crate) fn last_pos(&self) -> u64 {
        (self.n_parts - 1) * self.part_stride + self.part_bytes
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
            assert!(layout.value_bytes >= layout.last_pos() + layout.max_record_bytes);
            assert_eq!((layout.n_parts, layout.all_parts()), (2, 0b11));
            assert!(Layout::new(mode, Some(needed - 1), 2).is_err());
        }
    }

    /// Check that default rings, slack and all, stay within their total on machines of any size, and hold as many of the
    /// largest samples as is said.
    #[test]
    fn default_rings_are_bounded() {
        let layout = |mode, n_cpus| Layout::new(mode, None, n_cpus).expect("sizes");
        for n_cpus in [1, 2, 3, 64, 512] {
            let layout = layout(CaptureMode::Dwarf { stack_bytes: 65_536 }, n_cpus);
            assert!(layout.value_bytes * n_cpus <= MAX_DEFAULT_TOTAL, "{n_cpus} CPUs: {layout:?}");
        }
        let whole = layout(CaptureMode::Both { stack_bytes: 65_536 }, 2);
        assert!(whole.ring_bytes() >= DEFAULT_SAMPLES * whole.max_record_bytes && whole.value_bytes < 16 << 20);
        assert_eq!(layout(CaptureMode::Fp, 2).ring_bytes(), 8 << 20);
        assert!(layout(CaptureMode::Dwarf { stack_bytes: 1 << 20 }, 2).value_bytes <= LARGEST_DEFAULT_RING + PAGE);
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
