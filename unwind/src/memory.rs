//! The memory of a sampled thread.

use crate::stack::{StopReason, TruncatedReason};

/// Why a word of stack memory cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadFault {
    /// Above the copied bytes, but below the end of this stack.
    AboveChunk,
    /// Not in the stack that was copied.
    OtherStack,
    /// In a page that was not present when the stack was copied.
    Hole,
    /// In the red zone below the stack pointer, which was not copied.
    RedZone,
    /// Nothing was copied at all.
    Empty,
}

impl ReadFault {
    /// The stop reason of a walk that needed the word.
    #[must_use]
    pub const fn stop(self) -> StopReason {
        StopReason::Truncated(match self {
            Self::AboveChunk | Self::Hole => TruncatedReason::ChunkEnd,
            Self::OtherStack => TruncatedReason::StackSwitch,
            Self::RedZone => TruncatedReason::RedZone,
            Self::Empty => TruncatedReason::ChunkEmpty,
        })
    }
}

/// Reads the memory of a sampled thread. Addresses are AVMAs, words little-endian.
pub trait Memory {
    /// Reads eight bytes.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault>;

    /// Fills `buf` with the bytes at `avma`; `buf` is unspecified on error.
    ///
    /// # Errors
    /// Why not all of it can be read.
    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault>;

    /// Whether two addresses lie in the same stack. Within a stack the CFA must increase from frame to frame; from one
    /// stack to another it need not. By default there is one stack.
    fn is_same_stack(&self, _one: u64, _other: u64) -> bool {
        true
    }

    /// First address above the stack that contains `_sp`, if known.
    #[inline]
    fn stack_end(&self, _sp: u64) -> Option<u64> {
        None
    }

    /// Hints that eight bytes will be read soon. An implementation may do nothing.
    #[inline]
    fn prefetch(&self, _avma: u64) {}
}

impl<Y: Memory + ?Sized> Memory for &Y {
    #[inline]
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        (**self).read_u64(avma)
    }

    #[inline]
    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        (**self).read(avma, buf)
    }

    #[inline]
    fn is_same_stack(&self, one: u64, other: u64) -> bool {
        (**self).is_same_stack(one, other)
    }

    #[inline]
    fn stack_end(&self, sp: u64) -> Option<u64> {
        (**self).stack_end(sp)
    }

    #[inline]
    fn prefetch(&self, avma: u64) {
        (**self).prefetch(avma);
    }
}

/// Memory that a closure reads: it fills the buffer from the given address, or returns why it cannot.
///
/// ```
/// use fpprof_unwind::{Memory, ReadFault, ReadWith};
///
/// let words = [7_u64, 8];
/// let memory = ReadWith(|avma: u64, buf: &mut [u8]| {
///     let word = words.get(usize::try_from(avma / 8).unwrap()).ok_or(ReadFault::OtherStack)?;
///     buf.copy_from_slice(&word.to_le_bytes());
///     Ok(())
/// });
/// assert_eq!((memory.read_u64(8), memory.read_u64(16)), (Ok(8), Err(ReadFault::OtherStack)));
/// ```
#[derive(Clone, Copy)]
pub struct ReadWith<F>(pub F);

impl<F> core::fmt::Debug for ReadWith<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ReadWith")
    }
}

impl<F: Fn(u64, &mut [u8]) -> Result<(), ReadFault>> Memory for ReadWith<F> {
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        let mut word = [0; 8];
        self.read(avma, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        (self.0)(avma, buf)
    }
}

/// How far above the chunk an address still counts as in the same stack if the stack's end is not known: the usual size
/// of a whole stack.
///
/// # Sources
/// `_STK_LIM` in the kernel's `include/uapi/linux/resource.h`: 8 MiB, which is also the default of pthreads.
const USUAL_STACK_BYTES: u64 = 8 << 20;

/// How far above the recorded stack end a stack pointer still counts as in the same stack: `ld.so`, run as a program,
/// pops its own arguments. An address further up is in another stack.
pub const MAX_ARGUMENT_BYTES: u64 = 1 << 19;

/// The usual [`Memory`]: one copied chunk of one stack. It starts at the stack pointer, or some bytes below to include
/// the red zone.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The copied bytes.
    pub bytes: &'a [u8],
    /// First address above the stack, if known. Otherwise 8 MiB from `start` are assumed.
    pub stack_end: Option<u64>,
    /// Parts of `bytes` that could not be copied: (offset, length) in bytes, ascending.
    pub holes: &'a [(u32, u32)],
}

impl Chunk<'_> {
    /// Offset in `bytes` of the `len` bytes at `avma`, if all of them were copied.
    #[inline]
    fn offset(&self, avma: u64, len: usize) -> Result<usize, ReadFault> {
        let Ok(offset) = usize::try_from(avma.wrapping_sub(self.start)) else {
            return Err(self.fault(avma));
        };
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes.len() => {}
            _ => return Err(self.fault(avma)),
        }
        if !self.holes.is_empty() && self.is_in_hole(offset as u64, len as u64) {
            return Err(ReadFault::Hole);
        }
        Ok(offset)
    }

    #[cold]
    fn is_in_hole(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.holes.iter().any(|&(hole, bytes)| u64::from(hole) < end && offset < u64::from(hole) + u64::from(bytes))
    }

    #[cold]
    fn fault(&self, avma: u64) -> ReadFault {
        if self.bytes.is_empty() {
            return ReadFault::Empty;
        }
        let stack_end = self.stack_end.unwrap_or_else(|| self.start.saturating_add(USUAL_STACK_BYTES));
        if avma >= self.start && avma < stack_end { ReadFault::AboveChunk } else { ReadFault::OtherStack }
    }
}

impl Memory for Chunk<'_> {
    #[inline]
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        let offset = self.offset(avma, 8)?;
        match self.bytes.get(offset..).and_then(<[u8]>::first_chunk) {
            Some(word) => Ok(u64::from_le_bytes(*word)),
            None => Err(self.fault(avma)),
        }
    }

    #[inline]
    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        let offset = self.offset(avma, buf.len())?;
        match self.bytes.get(offset..).and_then(|bytes| bytes.get(..buf.len())) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(self.fault(avma)),
        }
        Ok(())
    }

    #[inline]
    fn stack_end(&self, sp: u64) -> Option<u64> {
        self.stack_end.filter(|end| sp.saturating_sub(*end) <= MAX_ARGUMENT_BYTES)
    }

    #[inline]
    fn prefetch(&self, avma: u64) {
        if let Ok(offset) = usize::try_from(avma.wrapping_sub(self.start)) {
            fpprof_prefetch::prefetch(self.bytes, offset);
        }
    }
}

/// The chunk of the current stack and, if a signal handler runs on an alternate stack, that of the interrupted stack.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a> {
    /// Chunk of the current stack.
    pub current: Chunk<'a>,
    /// Chunk of the interrupted stack.
    pub interrupted: Option<&'a Chunk<'a>>,
}

impl<'a> Chunks<'a> {
    /// The chunk of the interrupted stack, if the address may belong to it and is not in the current one, which may lie
    /// within it.
    fn elsewhere(&self, avma: u64) -> Option<&'a Chunk<'a>> {
        let Chunk { start, stack_end, .. } = self.current;
        let is_current = (start..stack_end.unwrap_or(u64::MAX)).contains(&avma);
        self.interrupted.filter(|interrupted| avma >= interrupted.start && !is_current)
    }

    #[cold]
    fn read_elsewhere<T>(
        &self,
        avma: u64,
        fault: ReadFault,
        read: impl FnOnce(&Chunk<'a>) -> Result<T, ReadFault>,
    ) -> Result<T, ReadFault> {
        match self.elsewhere(avma) {
            // There was an interrupted stack, but no room to copy any of it.
            Some(interrupted) if interrupted.bytes.is_empty() => Err(ReadFault::AboveChunk),
            Some(interrupted) => read(interrupted),
            None => Err(fault),
        }
    }
}

impl Memory for Chunks<'_> {
    #[inline]
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        match self.current.read_u64(avma) {
            Err(fault) => self.read_elsewhere(avma, fault, |chunk| chunk.read_u64(avma)),
            word => word,
        }
    }

    #[inline]
    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        match self.current.read(avma, buf) {
            Err(fault) => self.read_elsewhere(avma, fault, |chunk| chunk.read(avma, buf)),
            done => done,
        }
    }

    fn is_same_stack(&self, one: u64, other: u64) -> bool {
        self.elsewhere(one).is_some() == self.elsewhere(other).is_some()
    }

    #[inline]
    fn stack_end(&self, sp: u64) -> Option<u64> {
        self.elsewhere(sp).unwrap_or(&self.current).stack_end(sp)
    }

    #[inline]
    fn prefetch(&self, avma: u64) {
        self.current.prefetch(avma);
    }
}
