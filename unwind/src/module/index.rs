//! The index built by scanning a section.

use alloc::vec::Vec;
use core::ops::Range;

use gimli::{BaseAddresses, CommonInformationEntry, UnwindOffset, UnwindSection};

use super::entry::{Reader, SectionKind, check_cie, initial_length};
use crate::error::Error;

/// Maps code ranges to FDEs. Ranges are disjoint and ascending.
#[derive(Debug, Default)]
pub(super) struct Index {
    ranges: Vec<Covered>,
    n_entries: usize,
    n_bad: usize,
}

/// Code covered by one FDE. 16 bytes, since a browser has a million of them.
#[derive(Debug, Clone, Copy)]
struct Covered {
    start: u64,
    len: u32,
    offset: u32,
}

impl Covered {
    fn end(self) -> u64 {
        self.start.saturating_add(u64::from(self.len))
    }
}

impl Index {
    /// Reads every FDE of a section. One that cannot be parsed is counted and left out; a terminator in the middle
    /// (from object files linked in an unusual order) is skipped; a length beyond the section ends the scan.
    pub(super) fn scan<'a, S: UnwindSection<Reader<'a>>>(
        section: &S,
        bases: &BaseAddresses,
        kind: SectionKind,
        text: Option<&Range<u64>>,
    ) -> Self {
        let mut index = Self::default();
        let mut last_cie = None;
        let is_whole = walk(section.section(), kind, |offset| {
            let Ok(short_offset) = u32::try_from(offset) else { return };
            index.add(parse_range(section, bases, offset, &mut last_cie), short_offset, kind, text);
        });
        index.n_bad += usize::from(!is_whole);
        index.ranges = disjoint(index.ranges);
        index
    }

    /// Reads the FDEs of `.eh_frame` whose offsets are not in `listed`.
    pub(super) fn scan_unlisted<'a, S: UnwindSection<Reader<'a>>>(
        section: &S,
        bases: &BaseAddresses,
        listed: impl Iterator<Item = usize>,
    ) -> Self {
        let mut is_listed = Bits::new(section.section().slice().len());
        listed.for_each(|offset| is_listed.insert(offset));
        let mut index = Self::default();
        let mut last_cie = None;
        walk(section.section(), SectionKind::EhFrame, |offset| {
            let Ok(short_offset) = u32::try_from(offset) else { return };
            if !is_listed.contains(offset) {
                let range = parse_range(section, bases, offset, &mut last_cie);
                index.add(range, short_offset, SectionKind::EhFrame, None);
            }
        });
        index.ranges = disjoint(index.ranges);
        index
    }

    fn add(&mut self, range: Result<Range<u64>, Error>, offset: u32, kind: SectionKind, text: Option<&Range<u64>>) {
        let Ok(range) = range else {
            self.n_bad += 1;
            return;
        };
        self.n_entries += 1;
        // FDEs of code the linker discarded remain in `.debug_frame` with address 0 or one near the top. They must not
        // cover what lies there.
        let is_left_out = kind == SectionKind::DebugFrame
            && (range.start == 0 && text.is_none_or(|text| text.start != 0) || range.start >= u64::MAX - 1);
        let Some(len) = range.end.checked_sub(range.start) else { return };
        if len == 0 || is_left_out {
            return;
        }
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.ranges.push(Covered { start: range.start, len, offset });
    }

    /// Offset of the FDE that covers an address.
    pub(super) fn find(&self, svma: u64) -> Option<usize> {
        let above = self.ranges.partition_point(|covered| covered.start <= svma);
        let covered = self.ranges.get(above.checked_sub(1)?)?;
        if svma >= covered.end() {
            return None;
        }
        usize::try_from(covered.offset).ok()
    }

    /// The addresses around `svma` for which [`Self::find`] has the same result.
    pub(super) fn extent(&self, svma: u64) -> Range<u64> {
        let above = self.ranges.partition_point(|covered| covered.start <= svma);
        let below = above.checked_sub(1).and_then(|below| self.ranges.get(below));
        match below {
            Some(covered) if svma < covered.end() => covered.start..covered.end(),
            below => below.map_or(0, |below| below.end())..self.next_start(svma).unwrap_or(u64::MAX),
        }
    }

    /// Start of the first covered range above an address.
    pub(super) fn next_start(&self, svma: u64) -> Option<u64> {
        let above = self.ranges.partition_point(|covered| covered.start <= svma);
        self.ranges.get(above).map(|covered| covered.start)
    }

    /// The covered ranges, ascending.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|covered| covered.start..covered.end())
    }

    /// Number of FDEs that could be parsed.
    pub(super) fn n_entries(&self) -> usize {
        self.n_entries
    }

    /// Number of FDEs that could not be parsed.
    pub(super) fn n_bad(&self) -> usize {
        self.n_bad
    }
}

/// A set of offsets that are multiples of four; other offsets are ignored.
struct Bits(Vec<u64>);

impl Bits {
    fn new(n_bytes: usize) -> Self {
        Self(alloc::vec![0; n_bytes / 256 + 1])
    }

    fn insert(&mut self, offset: usize) {
        if let Some(word) = self.0.get_mut(offset / 256).filter(|_| offset.is_multiple_of(4)) {
            *word |= 1 << (offset / 4 % 64);
        }
    }

    fn contains(&self, offset: usize) -> bool {
        offset.is_multiple_of(4) && self.0.get(offset / 256).is_some_and(|word| word >> (offset / 4 % 64) & 1 != 0)
    }
}

/// Calls `visit` with the offset of every FDE; returns false if the last entry is cut off.
fn walk(section: &Reader<'_>, kind: SectionKind, mut visit: impl FnMut(usize)) -> bool {
    let n_bytes = section.slice().len();
    let mut offset = 0;
    while let Some((after, len)) = initial_length(section, offset) {
        if len == 0 {
            offset = after;
            continue;
        }
        let end = usize::try_from(len).ok().and_then(|len| after.checked_add(len));
        let Some(end) = end.filter(|end| *end <= n_bytes) else { return false };
        if !is_cie(section, offset, after, kind) {
            visit(offset);
        }
        offset = end;
    }
    true
}

/// The last CIE parsed, with its offset: neighbouring FDEs share it.
type LastCie<'a> = Option<(usize, Result<CommonInformationEntry<Reader<'a>>, Error>)>;

fn parse_range<'a, S: UnwindSection<Reader<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: usize,
    last_cie: &mut LastCie<'a>,
) -> Result<Range<u64>, Error> {
    let partial = section.partial_fde_from_offset(bases, offset.into())?;
    let cie_offset: usize = UnwindOffset::into(partial.cie_offset());
    let cie = match last_cie {
        Some((at, cie)) if *at == cie_offset => cie.clone(),
        _ => {
            let cie = check_cie(section, partial.cie_offset())
                .and_then(|()| Ok(section.cie_from_offset(bases, partial.cie_offset())?));
            *last_cie = Some((cie_offset, cie.clone()));
            cie
        }
    }?;
    let fde = partial.parse(|_, _, _| Ok(cie.clone()))?;
    Ok(fde.initial_address()..fde.end_address())
}

/// Whether the entry whose length field occupies `offset..after` is a CIE.
///
/// # Sources
/// LSB 5.0 Core §10.6.1 (`.eh_frame`: the field is 0 and always four bytes); DWARF 5 §6.4.1 (`.debug_frame`: all ones).
fn is_cie(section: &Reader<'_>, offset: usize, after: usize, kind: SectionKind) -> bool {
    let bytes = section.slice().get(after..).unwrap_or(&[]);
    match kind {
        SectionKind::EhFrame => bytes.starts_with(&[0; 4]),
        SectionKind::DebugFrame if after - offset > 4 => bytes.starts_with(&[0xff; 8]),
        SectionKind::DebugFrame => bytes.starts_with(&[0xff; 4]),
    }
}

/// Makes ranges disjoint: where FDEs overlap, the one that starts last wins, and the shortest of those that start at
/// the same address.
fn disjoint(mut ranges: Vec<Covered>) -> Vec<Covered> {
    ranges.sort_by_key(|covered| (covered.start, core::cmp::Reverse(covered.len), covered.offset));
    let overlaps = ranges.windows(2).any(|pair| matches!(pair, [below, above] if below.end() > above.start));
    if !overlaps {
        return ranges;
    }
    let mut result = Vec::with_capacity(ranges.len());
    let mut open: Vec<Covered> = Vec::new();
    let mut at = 0;
    for covered in ranges {
        close(&mut open, &mut result, &mut at, covered.start);
        open.push(covered);
        at = covered.start;
    }
    close(&mut open, &mut result, &mut at, u64::MAX);
    result
}

/// Assigns the code from `at` to `until` to the open ranges, innermost first.
fn close(open: &mut Vec<Covered>, result: &mut Vec<Covered>, at: &mut u64, until: u64) {
    while let Some(innermost) = open.last().copied() {
        let end = innermost.end().min(until);
        if let Some(len) = end.checked_sub(*at).and_then(|len| u32::try_from(len).ok()).filter(|len| *len > 0) {
            result.push(Covered { start: *at, len, offset: innermost.offset });
            *at = end;
        }
        if innermost.end() > until {
            break;
        }
        open.pop();
    }
}
