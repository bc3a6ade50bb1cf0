//! Splits tables of DWARF abbreviations before they are parsed; a parsed table can be a hundred times as large.
//!
//! # Sources
//! DWARF 5 §7.5.3: an entry is its code, its tag, whether it has children, and pairs of name and form, ended by a pair
//! of zeros. Each number is LEB128; `DW_FORM_implicit_const` is followed by its value. A code of zero ends the table.

use gimli::{EndianSlice, LittleEndian, Reader as _};

/// Iterates over a table's entries as raw bytes.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A table entry as raw bytes.
pub(crate) struct Entry<'a> {
    pub(crate) code: u64,
    pub(crate) bytes: &'a [u8],
}

/// The entries of the table at an offset of `.debug_abbrev`, up to `max_bytes` of it.
pub(crate) fn entries(section: &[u8], offset: usize, max_bytes: usize) -> Entries<'_> {
    let bytes = section.get(offset..).unwrap_or(&[]);
    Entries { bytes: bytes.get(..max_bytes).unwrap_or(bytes), at: 0 }
}

/// Size of the whole table at an offset; `None` if it is larger than `max_bytes` or truncated.
pub(crate) fn table_bytes(section: &[u8], offset: usize, max_bytes: usize) -> Option<usize> {
    let mut all = entries(section, offset, max_bytes);
    while all.next().is_some() {}
    (all.bytes.get(all.at) == Some(&0)).then_some(all.at)
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let mut reader = EndianSlice::new(rest, LittleEndian);
        let code = reader.read_uleb128().ok().filter(|&code| code != 0)?;
        let (_tag, _has_children) = (reader.read_uleb128().ok()?, reader.read_u8().ok()?);
        loop {
            let (name, form) = (reader.read_uleb128().ok()?, reader.read_uleb128().ok()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                reader.read_sleb128().ok()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
        let len = rest.len().checked_sub(reader.len())?;
        self.at = self.at.checked_add(len)?;
        Some(Entry { code, bytes: rest.get(..len)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that whole entries are found, including those with an implicit constant, and that a table that is too long
    /// or truncated has no size.
    #[test]
    fn tables_are_measured() {
        let (plain, implicit) = ([1, 0x11, 1, 0x25, 0x0e, 0, 0], [2, 0x2e, 0, 0x3a, 0x21, 0xff, 0x7e, 0, 0]);
        let table = [&[9][..], &plain, &implicit, &[0, 7]].concat();
        let found: Vec<(u64, &[u8])> = entries(&table, 1, 99).map(|entry| (entry.code, entry.bytes)).collect();
        assert_eq!(found, [(1, &plain[..]), (2, &implicit[..])]);
        assert_eq!((table_bytes(&table, 1, 99), table_bytes(&table, 1, 15)), (Some(16), None));
        assert_eq!((table_bytes(&table[..17], 1, 99), table_bytes(&table, 40, 99)), (None, None));
        assert!(entries(&[1, 0x11], 0, 99).next().is_none());
    }
}
