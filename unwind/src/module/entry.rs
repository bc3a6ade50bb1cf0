//! Frame description entries: the code an entry covers, and its two programs.

use gimli::{BaseAddresses, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindOffset, UnwindSection};

use crate::error::Error;

/// The parser's view of a section.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Longest CIE that is read. Real ones have less than 100 bytes; a long one that many FDEs refer to would be parsed
/// again and again.
const MAX_CIE_BYTES: u64 = 4096;

/// The section an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionKind {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`.
    DebugFrame,
}

/// A parsed frame description entry.
#[derive(Debug)]
pub(crate) struct Fde<'a> {
    pub(crate) kind: SectionKind,
    pub(crate) entry: FrameDescriptionEntry<Reader<'a>>,
}

impl<'a> Fde<'a> {
    pub(super) fn new(kind: SectionKind, entry: FrameDescriptionEntry<Reader<'a>>) -> Self {
        Self { kind, entry }
    }

    /// Whether the FDE covers an address.
    pub(crate) fn contains(&self, svma: u64) -> bool {
        self.entry.contains(svma)
    }

    /// The code the FDE covers, SVMAs. Empty if its end wraps.
    pub(crate) fn range(&self) -> core::ops::Range<u64> {
        self.entry.initial_address()..self.entry.end_address()
    }

    /// Whether this is a signal frame: its caller was interrupted instead of calling.
    pub(crate) fn is_signal_frame(&self) -> bool {
        self.entry.is_signal_trampoline()
    }
}

/// Parses the FDE at `offset`.
pub(super) fn parse<'a, S: UnwindSection<Reader<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> Result<FrameDescriptionEntry<Reader<'a>>, Error> {
    let partial = section.partial_fde_from_offset(bases, offset)?;
    check_cie(section, partial.cie_offset())?;
    Ok(partial.parse(S::cie_from_offset)?)
}

/// Rejects a CIE that is too long.
pub(super) fn check_cie<'a, S: UnwindSection<Reader<'a>>>(section: &S, offset: S::Offset) -> Result<(), Error> {
    let offset: usize = UnwindOffset::into(offset);
    let too_long = match initial_length(section.section(), offset) {
        Some((_, len)) => len > MAX_CIE_BYTES,
        None => false,
    };
    if too_long { Err(Error::LongCie(offset as u64)) } else { Ok(()) }
}

/// The length field at `offset`: (offset of its end, value).
///
/// # Sources
/// DWARF 5 §7.2.2.
pub(super) fn initial_length(section: &Reader<'_>, offset: usize) -> Option<(usize, u64)> {
    let bytes = section.slice();
    let short = u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?);
    let after = offset.checked_add(4)?;
    if short != u32::MAX {
        return Some((after, u64::from(short)));
    }
    let long = u64::from_le_bytes(*bytes.get(after..)?.first_chunk()?);
    Some((after.checked_add(8)?, long))
}
