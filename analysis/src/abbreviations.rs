//! Tables of DWARF abbreviations before they are parsed, which takes a hundred times their room at worst.
//!
//! # Sources
//! DWARF 5 §7.5.3: an entry is its code, its tag, whether it has children, pairs of name and form that a pair of zeros
//! ends, each number as LEB128; `DW_FORM_implicit_const` is followed by its value. A code of zero ends the table.

use gimli::{EndianSlice, LittleEndian, Reader as _};

/// The bytes of a table's entries, one by one.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// An entry.
pub(crate) struct Entry<'a> {
    pub(crate) code: u64,
    pub(crate) bytes: &'a [u8],
}

/// The entries of the table at an offset of `.debug_abbrev`, none beyond `max_bytes` of it.
pub(crate) fn entries(section: &[u8], offset: usize, max_bytes: usize) -> Entries<'_> {
    let bytes = section.get(offset..).unwrap_or(&[]);
    Entries { bytes: bytes.get(..max_bytes).unwrap_or(bytes), at: 0 }
}

/// Bytes of the whole table at an offset; `None` if they are more than `max_bytes`, or it is cut off.
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

    /// Check that entries are found whole, those with an implicit constant, too, and that a table that is too long or cut
    /// off has no size.
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
