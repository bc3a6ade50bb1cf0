//! The copied stack, and what a read outside of it means.

use fpprof_unwind::{BrokenReason, StopReason, TruncatedReason};

/// Bytes below the stack pointer that belong to the running function.
///
/// # Sources
/// x86-64 psABI §3.2.2: the red zone.
const RED_ZONE_BYTES: u64 = 128;

/// The stack bytes of a sample.
#[derive(Debug, Clone, Copy)]
pub struct StackBytes<'a> {
    /// AVMA of the first byte: the sampled stack pointer.
    pub start: u64,
    /// The bytes that were copied.
    pub bytes: &'a [u8],
    /// AVMA behind the stack's last byte, when it is known.
    pub stack_end: Option<u64>,
    /// Pages that could not be copied: offset and length in `bytes`, which holds zeroes there.
    pub holes: &'a [(u32, u32)],
}

impl StackBytes<'_> {
    /// Reads the little-endian word at `address`.
    ///
    /// # Errors
    ///
    /// Why a walk that needs the word ends here:
    ///
    /// | the word is | reason |
    /// |---|---|
    /// | in a hole, or above the copied bytes and below the end of the stack | `chunk_end` |
    /// | the same, and nothing was copied | `chunk_empty` |
    /// | above the end of the stack, or more than the red zone below the copied bytes | `stack_switch` |
    /// | in the red zone, below the stack pointer | `bad_cfi`: no caller keeps anything there |
    pub fn read_u64(&self, address: u64) -> Result<u64, StopReason> {
        let Some(offset) = address.checked_sub(self.start) else {
            return Err(if self.start - address <= RED_ZONE_BYTES {
                StopReason::Broken(BrokenReason::BadCfi)
            } else {
                StopReason::Truncated(TruncatedReason::StackSwitch)
            });
        };
        let word =
            usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..at.checked_add(8)?)?.first_chunk::<8>());
        match word {
            Some(word) if !self.in_hole(offset) => Ok(u64::from_le_bytes(*word)),
            Some(_) => Err(StopReason::Truncated(TruncatedReason::ChunkEnd)),
            None if self.stack_end.is_some_and(|end| address >= end) => {
                Err(StopReason::Truncated(TruncatedReason::StackSwitch))
            }
            None if self.bytes.is_empty() => Err(StopReason::Truncated(TruncatedReason::ChunkEmpty)),
            None => Err(StopReason::Truncated(TruncatedReason::ChunkEnd)),
        }
    }

    fn in_hole(&self, offset: u64) -> bool {
        self.holes.iter().any(|&(start, len)| {
            let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
            offset < end && start < offset + 8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 24] = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];

    fn stack(bytes: &[u8]) -> StackBytes<'_> {
        StackBytes { start: 0x7000, bytes, stack_end: Some(0x8000), holes: &[] }
    }

    /// Check that words are read at any alignment, up to the last byte and no further.
    #[test]
    fn reads_words_inside_the_chunk() {
        assert_eq!(stack(&BYTES).read_u64(0x7000), Ok(1));
        assert_eq!(stack(&BYTES).read_u64(0x7010), Ok(3));
        assert_eq!(stack(&BYTES).read_u64(0x7001), Ok(2 << 56));
        assert!(stack(&BYTES).read_u64(0x7011).is_err());
    }

    /// Check that each side of the chunk gives its own reason.
    #[test]
    fn names_the_side_a_read_fell_off() {
        let chunk_end = Err(StopReason::Truncated(TruncatedReason::ChunkEnd));
        let stack_switch = Err(StopReason::Truncated(TruncatedReason::StackSwitch));
        assert_eq!(stack(&BYTES).read_u64(0x7018), chunk_end);
        assert_eq!(stack(&BYTES).read_u64(0x7ff8), chunk_end);
        assert_eq!(stack(&BYTES).read_u64(0x8000), stack_switch);
        assert_eq!(stack(&BYTES).read_u64(u64::MAX), stack_switch);
        assert_eq!(stack(&BYTES).read_u64(0x6ff8), Err(StopReason::Broken(BrokenReason::BadCfi)));
        assert_eq!(stack(&BYTES).read_u64(0x6f00), stack_switch);
        assert_eq!(stack(&[]).read_u64(0x7000), Err(StopReason::Truncated(TruncatedReason::ChunkEmpty)));
        let unbounded = StackBytes { stack_end: None, ..stack(&BYTES) };
        assert_eq!(unbounded.read_u64(0x9000), chunk_end);
        let at_the_top = StackBytes { start: u64::MAX - 15, ..unbounded };
        assert_eq!(at_the_top.read_u64(u64::MAX - 7), Ok(2));
    }

    /// Check that a hole is no zero, also when only one byte of the word lies in it.
    #[test]
    fn refuses_words_that_touch_a_hole() {
        let holed = StackBytes { holes: &[(9, 4)], ..stack(&BYTES) };
        assert_eq!(holed.read_u64(0x7000), Ok(1));
        assert_eq!(holed.read_u64(0x7002), Err(StopReason::Truncated(TruncatedReason::ChunkEnd)));
        assert_eq!(holed.read_u64(0x7010), Ok(3));
    }
}
