//! The meaning of a read outside the copied stack.

use fpprof_unwind::{Chunks, Memory as _, ReadFault, StopReason};

/// Bytes below the stack pointer that belong to the running function.
///
/// # Sources
/// x86-64 psABI §3.2.2: the red zone.
const RED_ZONE_BYTES: u64 = 128;

/// Reads the word at `address`, or returns why a walk that needs it ends.
///
/// The red zone may be copied or not: chunks begin at the stack pointer or below it.
pub(crate) fn read_u64(chunks: &Chunks<'_>, sp: u64, address: u64) -> Result<u64, StopReason> {
    chunks.read_u64(address).map_err(|fault| {
        let is_in_red_zone = sp.checked_sub(address).is_some_and(|below| (1..=RED_ZONE_BYTES).contains(&below));
        if is_in_red_zone { ReadFault::RedZone.stop() } else { fault.stop() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_unwind::{Chunk, TruncatedReason};

    /// Check that each side of the chunk gives its own reason.
    #[test]
    fn names_the_side_a_read_fell_off() {
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let chunk = Chunk { start: 0x7000, bytes: &bytes, stack_end: Some(0x8000), holes: &[] };
        let read =
            |&chunk: &Chunk<'_>, address| read_u64(&Chunks { current: chunk, interrupted: None }, 0x7000, address);
        let truncated = |reason| Err(StopReason::Truncated(reason));
        assert_eq!(read(&chunk, 0x7008), Ok(2));
        assert_eq!(read(&chunk, 0x7010), truncated(TruncatedReason::ChunkEnd));
        assert_eq!(read(&chunk, 0x8000), truncated(TruncatedReason::StackSwitch));
        assert_eq!(read(&chunk, u64::MAX), truncated(TruncatedReason::StackSwitch));
        assert_eq!(read(&chunk, 0x6fff), truncated(TruncatedReason::RedZone));
        assert_eq!(read(&chunk, 0x6f80), truncated(TruncatedReason::RedZone));
        assert_eq!(read(&chunk, 0x6f7f), truncated(TruncatedReason::StackSwitch));
        let lower = Chunk { start: 0x6ff8, ..chunk };
        assert_eq!((read(&lower, 0x6ff8), read(&lower, 0x6ff0)), (Ok(1), truncated(TruncatedReason::RedZone)));
        assert_eq!(read(&Chunk { bytes: &[], ..chunk }, 0x7000), truncated(TruncatedReason::ChunkEmpty));
    }
}
