//! Locates the copied stack in a sample. It makes up most of the sample, and most of that is unused space, so only what
//! was copied is read, separately, when the sample is processed.

use linux_perf_event_reader::{RecordParseInfo, SampleFormat};

/// Bytes of a word.
const WORD: usize = 8;

/// The location of a stack in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StackPlace {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Bytes that the kernel copied.
    pub(super) len: u16,
}

/// Size of the fixed fields at the start of every sample, up to its period.
///
/// # Sources
/// `include/uapi/linux/perf_event.h`, `PERF_RECORD_SAMPLE`.
pub(super) fn fixed_bytes(format: SampleFormat) -> Option<usize> {
    const FIXED: SampleFormat = SampleFormat::IDENTIFIER
        .union(SampleFormat::IP)
        .union(SampleFormat::TID)
        .union(SampleFormat::TIME)
        .union(SampleFormat::ADDR)
        .union(SampleFormat::ID)
        .union(SampleFormat::STREAM_ID)
        .union(SampleFormat::CPU)
        .union(SampleFormat::PERIOD);
    let n_fixed = format.intersection(FIXED).bits().count_ones();
    usize::try_from(n_fixed).ok()?.checked_mul(WORD)
}

/// The layout of what precedes the stack in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    fixed_bytes: usize,
    has_chain: bool,
    has_regs: bool,
    regs_bytes: usize,
}

impl Prefix {
    /// The layout for samples of an event; `None` if they have no stack, or fields that are not supported here.
    ///
    /// # Sources
    /// `include/uapi/linux/perf_event.h`, `PERF_RECORD_SAMPLE`.
    pub(super) fn new(layout: &RecordParseInfo) -> Option<Self> {
        const OTHER: SampleFormat = SampleFormat::READ.union(SampleFormat::RAW).union(SampleFormat::BRANCH_STACK);
        let format = layout.sample_format;
        if !format.contains(SampleFormat::STACK_USER) || format.intersects(OTHER) {
            return None;
        }
        Some(Self {
            fixed_bytes: fixed_bytes(format)?,
            has_chain: format.contains(SampleFormat::CALLCHAIN),
            has_regs: format.contains(SampleFormat::REGS_USER),
            regs_bytes: usize::from(layout.user_regs_count).checked_mul(WORD)?,
        })
    }

    /// Calls `grow` to read up to the word with the size of the stack, which is returned. `grow` reads this many more
    /// bytes and returns their last word, or `None` if there are too few.
    pub(super) fn read<E>(self, mut grow: impl FnMut(usize) -> Result<Option<u64>, E>) -> Result<Option<u64>, E> {
        let mut word = |bytes: usize| grow(bytes.saturating_add(WORD));
        let mut before = self.fixed_bytes;
        if self.has_chain {
            let Some(n) = word(before)? else { return Ok(None) };
            before = usize::try_from(n).unwrap_or(usize::MAX).saturating_mul(WORD);
        }
        if self.has_regs {
            let Some(abi) = word(before)? else { return Ok(None) };
            before = if abi == 0 { 0 } else { self.regs_bytes };
        }
        word(before)
    }
}
