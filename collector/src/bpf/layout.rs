//! Sizes of a ring and of the records in it.
//!
//! A record may begin at the very end of a ring: it goes on behind it, in slack that belongs to no position, so that
//! every record lies in one piece.
//!
//! ```text
//!   0                                     ring_bytes            value_bytes
//!   | record | record | ...      | record that starts here and | ... | page |
//! ```

use super::types::{fp_frame, gap, gap_cause, limit, sample_head};
use fpprof_recording::model::CaptureMode;
use std::mem::size_of;

const PAGE: u64 = limit::PAGE_BYTES.0 as u64;
const FRAMES_ROOM: u64 = limit::MAX_FRAMES.0 as u64 * size_of::<fp_frame>() as u64;
const KERNEL_ROOM: u64 = limit::MAX_KERNEL_FRAMES.0 as u64 * 8;
const GAPS_ROOM: u64 = (gap_cause::GAP_EXEC_WINDOW.0 as u64 + 1) * size_of::<gap>() as u64;
const HOLES_ROOM: u64 = limit::HOLE_WORDS.0 as u64 * 8;
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

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Room of one ring, a power of two.
    pub(crate) ring_bytes: u64,
    /// Size of a ring's array element: the room and the slack behind it.
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
        let max_record_bytes = head + chunk.next_multiple_of(8) + room + KERNEL_ROOM + GAPS_ROOM;
        let needed = (2 * max_record_bytes).next_power_of_two();
        let ring_bytes = match asked {
            Some(asked) if asked < needed => return Err(LayoutError::RingTooSmall { asked, needed }),
            Some(asked) if asked > MAX_RING => return Err(LayoutError::RingTooLarge { asked, max: MAX_RING }),
            Some(asked) => asked.next_power_of_two(),
            None => {
                let wanted = (DEFAULT_SAMPLES * max_record_bytes).next_power_of_two();
                let share = MAX_DEFAULT_TOTAL / n_cpus.max(1);
                let largest_share = if share.is_power_of_two() { share } else { share.next_power_of_two() / 2 };
                wanted.clamp(SMALLEST_DEFAULT_RING, LARGEST_DEFAULT_RING).min(largest_share).max(needed)
            }
        };
        let value_bytes = (ring_bytes + max_record_bytes).next_multiple_of(PAGE) + PAGE;
        Ok(Self { ring_bytes, value_bytes, max_record_bytes, ring_room: value_bytes - PAGE, max_chunk_bytes: chunk })
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
            assert!(layout.ring_bytes >= 2 * layout.max_record_bytes);
            assert!(layout.value_bytes >= layout.ring_bytes + layout.max_record_bytes);
            assert!(Layout::new(mode, Some(needed - 1), 2).is_err());
        }
    }

    /// Check that default rings stay within their total on machines of any size.
    #[test]
    fn default_rings_are_bounded() {
        let ring = |mode, n_cpus| Layout::new(mode, None, n_cpus).expect("sizes").ring_bytes;
        for n_cpus in [1, 2, 3, 100, 512] {
            let bytes = ring(CaptureMode::Dwarf { stack_bytes: 65_536 }, n_cpus);
            assert!(bytes * n_cpus <= MAX_DEFAULT_TOTAL, "{n_cpus} CPUs: {bytes}");
            assert!(bytes.is_power_of_two());
        }
        assert_eq!(ring(CaptureMode::Fp, 2), 8 << 20);
        assert_eq!(ring(CaptureMode::Dwarf { stack_bytes: 65_536 }, 2), 16 << 20);
        assert_eq!(ring(CaptureMode::Dwarf { stack_bytes: 1 << 20 }, 2), 64 << 20);
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
