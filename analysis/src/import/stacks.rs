//! Where the copied stack stands in a sample. It is nearly all of it, and mostly room that nothing was copied into, so
//! that it is read apart from the rest: what was copied, when the sample's turn has come.

use linux_perf_event_reader::{RecordParseInfo, SampleFormat};

/// Bytes of a word.
const WORD: usize = 8;

/// A stack in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StackPlace {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// What the kernel copied, bytes.
    pub(super) len: u16,
}

/// Bytes of the fields that every sample begins with, up to its period.
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

/// What comes before the stack in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    fixed_bytes: usize,
    has_chain: bool,
    has_regs: bool,
    regs_bytes: usize,
}

impl Prefix {
    /// What comes before the stack in samples of an event; `None` where there is none, or more than is looked through.
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

    /// Has `grow` read up to the word that says how long the stack is, which it gives. `grow` reads so many bytes more,
    /// and gives the last word of them; where there are not so many it gives none.
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
