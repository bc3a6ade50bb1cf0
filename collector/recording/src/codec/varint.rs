//! Variable-length integers, and a reader that cannot run past the end.

/// Appends `value` in LEB128: 7 bits per byte, lowest first; the high bit of a byte means that another follows.
///
/// # Sources
/// DWARF 5 section 7.6 (unsigned LEB128).
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Maps small differences of either sign to small numbers: 0, -1, 1, -2 … to 0, 1, 2, 3 …
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0u64.wrapping_sub(difference >> 63)
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ 0u64.wrapping_sub(value & 1)
}

/// Appends `value` as a difference against `base`, modulo 2^64.
pub(crate) fn put_delta(out: &mut Vec<u8>, value: u64, base: u64) {
    put(out, zigzag(value.wrapping_sub(base)));
}

/// Reads what the functions above wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// `None` at the end of the bytes and for a number of more than 64 bits.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        // Most other numbers have at most eight bytes and are decoded without a loop.
        if let Some((number, len)) = self.0.first_chunk().and_then(|bytes| short(u64::from_le_bytes(*bytes))) {
            self.0 = self.0.get(len..)?;
            return Some(number << 7 | u64::from(first & 0x7f));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    pub(crate) fn len(&mut self) -> Option<usize> {
        self.varint()?.try_into().ok()
    }

    pub(crate) fn delta(&mut self, base: u64) -> Option<u64> {
        Some(base.wrapping_add(unzigzag(self.varint()?)))
    }
}

/// The number at the start of eight bytes and its length; `None` if it is longer.
fn short(word: u64) -> Option<(u64, usize)> {
    let ends = !word & 0x8080_8080_8080_8080;
    // All bits up to the high bit of its last byte.
    let own = ends ^ ends.wrapping_sub(1);
    let sevens = word & own & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let number = (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4;
    (ends != 0).then_some((number, ends.trailing_zeros() as usize / 8 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers around every change of length are decoded again, and that truncated ones are not.
    #[test]
    fn numbers_round_trip_and_cuts_are_noticed() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX]);
        for value in edges {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(Cursor::new(&bytes).varint(), Some(value));
            assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).varint(), None);
            let len = bytes.len();
            bytes.extend([0xff; 9]);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(
                (cursor.varint(), cursor.take(9).map(<[u8]>::len), len + 9),
                (Some(value), Some(9), bytes.len())
            );
            assert!(cursor.is_empty());
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    /// Check that more than 64 bits are refused, and so is an unterminated number.
    #[test]
    fn oversized_numbers_are_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(Cursor::new(&bytes).varint(), None);
        assert_eq!(Cursor::new(&[0x80; 20]).varint(), None);
    }
}
