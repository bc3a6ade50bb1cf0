//! What a read outside of the copied stack means.

use fpprof_unwind::{BrokenReason, Chunk, Memory as _, StopReason};

/// Bytes below the stack pointer that belong to the running function.
///
/// # Sources
/// x86-64 psABI §3.2.2: the red zone.
const RED_ZONE_BYTES: u64 = 128;

/// Reads the word at `address`, or says why a walk that needs it ends.
///
/// A row that wants a word in the red zone, below the sampled stack pointer, is wrong: no caller keeps anything there.
pub(crate) fn read_u64(chunk: &Chunk<'_>, address: u64) -> Result<u64, StopReason> {
    chunk.read_u64(address).map_err(|fault| {
        let below = chunk.start.checked_sub(address);
        if below.is_some_and(|below| (1..=RED_ZONE_BYTES).contains(&below)) {
            StopReason::Broken(BrokenReason::BadCfi)
        } else {
            fault.stop()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_unwind::TruncatedReason;

    /// Check that each side of the chunk gives its own reason.
    #[test]
    fn names_the_side_a_read_fell_off() {
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let chunk = Chunk { start: 0x7000, bytes: &bytes, stack_end: Some(0x8000), holes: &[] };
        let truncated = |reason| Err(StopReason::Truncated(reason));
        assert_eq!(read_u64(&chunk, 0x7008), Ok(2));
        assert_eq!(read_u64(&chunk, 0x7010), truncated(TruncatedReason::ChunkEnd));
        assert_eq!(read_u64(&chunk, 0x8000), truncated(TruncatedReason::StackSwitch));
        assert_eq!(read_u64(&chunk, u64::MAX), truncated(TruncatedReason::StackSwitch));
        assert_eq!(read_u64(&chunk, 0x6fff), Err(StopReason::Broken(BrokenReason::BadCfi)));
        assert_eq!(read_u64(&chunk, 0x6f80), Err(StopReason::Broken(BrokenReason::BadCfi)));
        assert_eq!(read_u64(&chunk, 0x6f7f), truncated(TruncatedReason::StackSwitch));
        assert_eq!(read_u64(&Chunk { bytes: &[], ..chunk }, 0x7000), truncated(TruncatedReason::ChunkEmpty));
    }
}
