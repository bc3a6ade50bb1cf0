//! `.eh_frame_hdr`: a table from addresses to FDEs, sorted by address.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use once_cell::race::OnceBox;

use super::sections::ModuleSections;

/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`, the only encoding linkers use for the table.
const TABLE_ENCODING: u8 = 0x3b;
/// `DW_EH_PE_udata4`.
const COUNT_ENCODING: u8 = 0x03;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: the pointer to `.eh_frame` takes four bytes.
const POINTER_ENCODING: u8 = 0x1b;
/// Version, three encodings, the pointer and the count precede the table.
const TABLE_OFFSET: usize = 12;
/// Table entries per item of [`Header::starts`]: two cache lines.
const STRIDE: usize = 16;

/// A header in the encoding linkers use. Any other is ignored.
///
/// # Sources
/// LSB 5.0 Core §10.6.2.
#[derive(Debug)]
pub(super) struct Header {
    n_entries: usize,
    svma: u64,
    eh_frame_svma: u64,
    /// Start of the code of every 16th entry. Most steps of a binary search in the table itself miss the cache; this
    /// excerpt stays in it.
    starts: OnceBox<Vec<i32>>,
}

impl Header {
    pub(super) fn parse(sections: &ModuleSections) -> Option<Self> {
        let header = sections.eh_frame_hdr.as_ref()?;
        let eh_frame = sections.eh_frame.as_ref()?;
        let (prefix, rest) = header.bytes.split_first_chunk::<8>()?;
        if prefix.get(..4)? != [1, POINTER_ENCODING, COUNT_ENCODING, TABLE_ENCODING] {
            return None;
        }
        let count = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        let n_entries = count.min(header.bytes.len().saturating_sub(TABLE_OFFSET) / 8);
        Some(Self { n_entries, svma: header.svma, eh_frame_svma: eh_frame.svma, starts: OnceBox::new() })
    }

    /// Offsets in `.eh_frame` of the listed FDEs; `None` if the table is not sorted, so that it cannot be searched.
    pub(super) fn offsets(&self, sections: &ModuleSections) -> Option<impl Iterator<Item = usize>> {
        let table = sections.eh_frame_hdr.as_ref()?.bytes.get(TABLE_OFFSET..)?;
        let (rows, _) = table.as_chunks::<8>();
        let rows = rows.get(..self.n_entries)?;
        if !rows.is_sorted_by_key(start) {
            return None;
        }
        let bias = self.svma.wrapping_sub(self.eh_frame_svma);
        Some(rows.iter().filter_map(move |row| {
            let entry = i32::from_le_bytes([row[4], row[5], row[6], row[7]]);
            usize::try_from(bias.wrapping_add(i64::from(entry).cast_unsigned())).ok()
        }))
    }

    /// The addresses around `svma` for which [`Self::find`] has the same result.
    pub(super) fn extent(&self, sections: &ModuleSections, svma: u64) -> Range<u64> {
        let table = sections.eh_frame_hdr.as_ref().and_then(|header| header.bytes.get(TABLE_OFFSET..)).unwrap_or(&[]);
        let rows = table.as_chunks::<8>().0.get(..self.n_entries).unwrap_or(&[]);
        let relative = svma.wrapping_sub(self.svma).cast_signed();
        let above = rows.partition_point(|row| i64::from(start(row)) <= relative);
        let svma_of = |row: &[u8; 8]| self.svma.wrapping_add(i64::from(start(row)).cast_unsigned());
        let below = above.checked_sub(1).and_then(|row| rows.get(row));
        below.map_or(0, svma_of)..rows.get(above).map_or(u64::MAX, svma_of)
    }

    /// Start of the code and offset in `.eh_frame` of the last FDE that starts at or below an address. Both may be
    /// wrong: a linker may have written a bad header.
    pub(super) fn find(&self, sections: &ModuleSections, svma: u64) -> Option<(u64, usize)> {
        let table = sections.eh_frame_hdr.as_ref()?.bytes.get(TABLE_OFFSET..)?;
        let relative = svma.wrapping_sub(self.svma).cast_signed();
        let (rows, _) = table.as_chunks::<8>();
        let starts = self.starts.get_or_init(|| Box::new(starts(rows.get(..self.n_entries).unwrap_or(&[]))));
        let block = starts.partition_point(|start| i64::from(*start) <= relative).checked_sub(1)? * STRIDE;
        let rows = rows.get(block..self.n_entries.min(block + STRIDE))?;
        let row = rows.partition_point(|row| i64::from(start(row)) <= relative).checked_sub(1)?;
        let row = (block + row) * 8;
        let svma_of = |relative: i32| self.svma.wrapping_add(i64::from(relative).cast_unsigned());
        let entry_svma = svma_of(read_i32(table, row + 4)?);
        let offset = usize::try_from(entry_svma.checked_sub(self.eh_frame_svma)?).ok()?;
        Some((svma_of(read_i32(table, row)?), offset))
    }
}

fn starts(rows: &[[u8; 8]]) -> Vec<i32> {
    rows.iter().step_by(STRIDE).map(start).collect()
}

fn start(row: &[u8; 8]) -> i32 {
    i32::from_le_bytes([row[0], row[1], row[2], row[3]])
}

fn read_i32(table: &[u8], offset: usize) -> Option<i32> {
    Some(i32::from_le_bytes(*table.get(offset..)?.first_chunk()?))
}
