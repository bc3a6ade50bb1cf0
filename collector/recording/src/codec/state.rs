//! The state that writer and reader have after a sample, and predict the next one from.

use crate::model::{Abi, ChunkHole, FpEnd, FpFrame, MAX_REGISTERS, Sample, StackEnd, StackEndSource, UserRegs};

/// The most bytes of a chunk from the stack pointer up. The largest stack seen in use is 1.2 MB (rustc); the usual
/// limit is 8 MiB.
pub const MAX_STACK_BYTES: usize = 16 << 20;
/// The most frames of a chain, user or kernel.
pub const MAX_CHAIN_FRAMES: usize = 4096;
/// The most holes of a chunk.
pub const MAX_HOLES: usize = MAX_STACK_BYTES / 4096 + 2;
/// A block is closed when its samples have this many bytes as values, so that a small file cannot keep a reader busy
/// long.
pub(crate) const MAX_VALUE_BYTES: u64 = 256 << 20;
/// What a sample without stacks counts for.
pub(crate) const MIN_VALUE_BYTES: u64 = 64;
/// The most CPUs and threads of a block, for the same reason.
pub(crate) const MAX_THREADS: usize = 1 << 16;

/// The most distinct words of a block. A writer needs fewer: a block of 1 MiB holds at most 2^19, a sample 2^21.
pub(crate) const MAX_WORDS: usize = 1 << 22;

/// A run of changed words is encoded together with the gap before it. This many bits hold its length minus one; their
/// highest value means that the rest of the length is stored separately.
pub(crate) const RUN_BITS: u32 = 2;
pub(crate) const LONG_RUN: u64 = (1 << RUN_BITS) - 1;

/// Bits of the flags of a sample.
pub(crate) mod flag {
    pub(crate) const IN_KERNEL: u8 = 1;
    pub(crate) const REGS: u8 = 2;
    /// With registers: they are of 32-bit code; without: the thread was inside `execve` (since version 3).
    pub(crate) const BITS32_OR_IN_EXEC: u8 = 4;
    pub(crate) const EVENT: u8 = 8;
    pub(crate) const STACK: u8 = 16;
    pub(crate) const STACK_END: u8 = 32;
    /// If the number of holes is 0: without registers, these were not saved yet; with registers, the stack must not be
    /// copied (since version 6).
    pub(crate) const HOLES: u8 = 64;
    pub(crate) const FP: u8 = 128;
}

/// The last sample of a CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuState {
    pub(crate) cpu: u32,
    pub(crate) time: u64,
    pub(crate) time_step: u64,
    pub(crate) fired: u64,
    pub(crate) lost: u64,
    pub(crate) event: u16,
    pub(crate) weight: u64,
    pub(crate) samples: u64,
    /// The row that the CPU's last sample repeats, if it repeats one.
    pub(crate) repeated: Option<usize>,
}

/// The last sample of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadState {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) regs: [u64; MAX_REGISTERS],
    pub(crate) stack_end: Option<StackEnd>,
    /// CFA of the leaf in the last sample with frames of a walk by call frame information.
    pub(crate) cfa: u64,
}

impl ThreadState {
    pub(crate) fn new(pid: u32, tid: u32) -> Self {
        Self { pid, tid, regs: [0; MAX_REGISTERS], stack_end: None, cfa: 0 }
    }
}

pub(crate) const FP_ENDS: [FpEnd; 6] =
    [FpEnd::Unknown, FpEnd::Zero, FpEnd::Unreadable, FpEnd::NotAscending, FpEnd::ZeroReturnAddress, FpEnd::MaxDepth];

/// Sources by their number in a file. The last was added in version 2.
pub(crate) const STACK_END_SOURCES: [StackEndSource; 4] =
    [StackEndSource::StartStack, StackEndSource::ThreadBase, StackEndSource::Mapping, StackEndSource::AltStack];

/// Size of a sample as a value: how much a reader must fill.
pub(crate) fn value_bytes(sample: &Sample) -> u64 {
    let interrupted = sample.interrupted.as_ref();
    let elements = [
        sample.stack.len(),
        interrupted.map_or(0, |interrupted| interrupted.stack.len()),
        interrupted.map_or(0, |interrupted| size_of_val(interrupted.stack_holes.as_slice())),
        size_of_val(sample.user_fp.as_slice()),
        size_of_val(sample.cfi_frames.as_slice()),
        size_of_val(sample.kernel.as_slice()),
        size_of_val(sample.stack_holes.as_slice()),
    ];
    elements.iter().map(|&bytes| bytes as u64).sum::<u64>() + MIN_VALUE_BYTES
}

/// The frame-pointer chain that follows from registers and stack.
///
/// ```text
/// frames = [(ip, 0)], fp = the frame pointer
/// while fp and fp + 8 lie in the chunk and outside its holes:
///     frames += (word(fp + 8) & mask, fp);  fp = word(fp)
/// ```
///
/// It continues where a collector may have stopped; the recording has the number of predicted frames that hold.
pub(crate) struct PredictedChain<'a, F> {
    word: F,
    start: u64,
    len: u64,
    holes: &'a [ChunkHole],
    return_address_mask: u64,
    next: Option<FpFrame>,
    fp: u64,
}

impl<'a, F: Fn(u64) -> u64> PredictedChain<'a, F> {
    /// `regs` are as written; `word` reads an aligned word of the chunk. Nothing is predicted for 32-bit code, without
    /// registers, or if holes are not ascending (a file may be invalid).
    pub(crate) fn new(sample: &'a Sample, regs: Option<UserRegs>, return_address_mask: u64, word: F) -> Self {
        let ascending = sample.stack_holes.is_sorted_by(|a, b| hole_end(a) <= u64::from(b.offset));
        let regs = regs.filter(|regs| regs.abi == Abi::Bits64 && ascending);
        Self {
            word,
            start: sample.stack_start(),
            len: sample.stack.len() as u64,
            holes: &sample.stack_holes,
            return_address_mask,
            next: regs.map(|regs| FpFrame { address: regs.ip(), frame_address: 0 }),
            fp: regs.map_or(0, |regs| regs.fp()),
        }
    }

    fn readable(&self, address: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        let next_hole = self.holes.partition_point(|hole| hole_end(hole) <= offset);
        let in_hole = || self.holes.get(next_hole).is_some_and(|hole| u64::from(hole.offset) < offset + 8);
        offset < self.len && self.len - offset >= 8 && !in_hole()
    }
}

fn hole_end(hole: &ChunkHole) -> u64 {
    u64::from(hole.offset) + u64::from(hole.len)
}

impl<F: Fn(u64) -> u64> Iterator for PredictedChain<'_, F> {
    type Item = FpFrame;

    fn next(&mut self) -> Option<FpFrame> {
        let frame = self.next.take()?;
        let fp = self.fp;
        if fp.is_multiple_of(8) && self.readable(fp) && self.readable(fp.wrapping_add(8)) {
            let address = (self.word)(fp.wrapping_add(8)) & self.return_address_mask;
            self.next = Some(FpFrame { address, frame_address: fp });
            self.fp = (self.word)(fp);
        }
        Some(frame)
    }
}
