//! Reads a section in pieces, if it may be too large for memory.

use super::{ElfFile, SectionInfo};

/// The most bytes of a compressed section, which can only be read as a whole.
const MAX_COMPRESSED_BYTES: u64 = 64 << 20;
/// Bytes first read for a string, and the most bytes of one.
const STRING_BYTES: usize = 4 << 10;
const MAX_STRING_BYTES: usize = 1 << 20;

/// Access to the bytes of a section.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    elf: &'a ElfFile,
    /// Offset and size in the file; `None` if the whole section is in memory.
    place: Option<(u64, u64)>,
    /// Offset in the section of `bytes`.
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Pieces<'a> {
    /// Opens a section; `None` if it has no bytes in the file.
    pub(crate) fn new(elf: &'a ElfFile, section: &SectionInfo) -> Option<Self> {
        let place = section.plain_range();
        let bytes = if place.is_none() { elf.read(section, MAX_COMPRESSED_BYTES)? } else { Vec::new() };
        Some(Self { elf, place, at: 0, bytes })
    }

    /// Up to `n` bytes from `at` on; empty if they cannot be read.
    pub(crate) fn up_to(&mut self, at: u64, n: usize) -> &[u8] {
        if let Some((offset, section_bytes)) = self.place {
            let n = (n as u64).min(section_bytes.saturating_sub(at));
            let end = self.at.saturating_add(self.bytes.len() as u64);
            if at < self.at || at.saturating_add(n) > end {
                let read = offset.checked_add(at).and_then(|offset| self.elf.read_range(offset, n, n));
                (self.at, self.bytes) = (at, read.unwrap_or_default());
            }
        }
        let from = usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let rest = self.bytes.get(from..).unwrap_or(&[]);
        rest.get(..n).unwrap_or(rest)
    }

    /// The zero-terminated string at `at`.
    pub(crate) fn string(&mut self, at: u64) -> Option<&[u8]> {
        let mut n = STRING_BYTES;
        while memchr::memchr(0, self.up_to(at, n)).is_none() {
            n = n.checked_mul(16).filter(|&n| n <= MAX_STRING_BYTES)?;
        }
        let bytes = self.up_to(at, n);
        bytes.get(..memchr::memchr(0, bytes)?)
    }
}
