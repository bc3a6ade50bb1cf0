//! Packs payloads.
//!
//! A payload consists of parts, each packed separately: the columns of a block of samples have little in common, and
//! zstd needs fewer bits if it does not describe them together (8 % of a recording of nbdkit and fio). A part that does
//! not become smaller is stored unpacked.

use crate::codec::varint::{Cursor, put};
use crate::error::Error;
use std::ops::Range;

/// zstd's level, chosen with `examples/volume.rs`: 3 saves 6 % compared with level 1 without noticeable cost; 9 saves
/// another 2 % for a third more time.
const ZSTD_LEVEL: i32 = 3;

/// Packs payloads, reusing its memory.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Result<Self, Error> {
        let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(Error::Compress)?;
        Ok(Self { compressor, packed: Vec::new() })
    }

    /// Appends the stored form of `parts`: for each part twice its length, plus 1 and followed by its packed length if
    /// it is packed; then the parts.
    pub(crate) fn pack(&mut self, parts: &[&[u8]], stored: &mut Vec<u8>) -> Result<(), Error> {
        self.packed.clear();
        for &part in parts {
            let start = self.packed.len();
            self.packed.resize(start + zstd::zstd_safe::compress_bound(part.len()), 0);
            let room = self.packed.get_mut(start..).unwrap_or_default();
            let len = self.compressor.compress_to_buffer(part, room).map_err(Error::Compress)?;
            self.packed.truncate(start + len);
            if len < part.len() {
                put(stored, (part.len() as u64) << 1 | 1);
                put(stored, len as u64);
            } else {
                put(stored, (part.len() as u64) << 1);
                self.packed.truncate(start);
                self.packed.extend_from_slice(part);
            }
        }
        stored.extend_from_slice(&self.packed);
        Ok(())
    }
}

/// An unpacked payload.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Vec<u8>,
    parts: Vec<Range<usize>>,
}

impl Payload {
    /// `None` if the lengths are inconsistent. Allocates `raw_len` bytes, which the check of the block's header has
    /// bounded.
    pub(crate) fn unpack(stored: &[u8], n_parts: u8, raw_len: usize) -> Option<Self> {
        Self::unpack_only(stored, n_parts, raw_len, |_| true)
    }

    /// Unpacks only some parts, selected by number; the others are empty.
    pub(crate) fn unpack_only(
        stored: &[u8],
        n_parts: u8,
        raw_len: usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let mut cursor = Cursor::new(stored);
        let mut lens = [(0, None); u8::MAX as usize];
        let lens = lens.get_mut(..usize::from(n_parts))?;
        let mut total = 0usize;
        for (len, packed) in lens.iter_mut() {
            let head = cursor.len()?;
            *len = head >> 1;
            *packed = if head & 1 == 1 { Some(cursor.len()?) } else { None };
            total = total.checked_add(*len)?;
        }
        if total != raw_len {
            return None;
        }
        let mut unzstd = zstd::bulk::Decompressor::new().ok()?;
        let wanted_len =
            lens.iter().enumerate().filter(|&(number, _)| is_wanted(number)).map(|(_, &(len, _))| len).sum();
        let mut payload = Self { bytes: vec![0; wanted_len], parts: Vec::with_capacity(lens.len()) };
        let mut start = 0;
        for (number, &(len, packed)) in lens.iter().enumerate() {
            let stored = cursor.take(packed.unwrap_or(len))?;
            if !is_wanted(number) {
                payload.parts.push(start..start);
                continue;
            }
            let part = payload.bytes.get_mut(start..start + len)?;
            match packed {
                None => part.copy_from_slice(stored),
                Some(_) if unzstd.decompress_to_buffer(stored, part).ok()? != len => return None,
                Some(_) => {}
            }
            payload.parts.push(start..start + len);
            start += len;
        }
        cursor.is_empty().then_some(payload)
    }

    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.parts.iter().map(|part| self.bytes.get(part.clone()).unwrap_or(&[]))
    }

    /// The part of a payload with exactly one.
    pub(crate) fn only_part(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [_] => Some(&self.bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        let mut stored = Vec::new();
        Packer::new().unwrap().pack(parts, &mut stored).unwrap();
        stored
    }

    /// Check that parts are unpacked again, packed or not, and that wrong lengths and counts are refused.
    #[test]
    fn parts_round_trip() {
        let long = [7; 5000];
        let parts: [&[u8]; 4] = [&long, b"abc", b"", &long[..2000]];
        let stored = packed(&parts);
        assert!(stored.len() < 100);
        let payload = Payload::unpack(&stored, 4, 7003).unwrap();
        assert_eq!(payload.parts().collect::<Vec<_>>(), parts);
        assert!(payload.only_part().is_none());
        let some = Payload::unpack_only(&stored, 4, 7003, |number| number % 2 == 1).unwrap();
        assert_eq!(some.parts().collect::<Vec<_>>(), [b"", parts[1], b"", parts[3]]);
        assert!(Payload::unpack(&stored, 4, 7004).is_none());
        assert!(Payload::unpack(&stored, 3, 7003).is_none());
        assert!(Payload::unpack(&stored, 5, 7003).is_none());
        assert!(Payload::unpack(&stored[..stored.len() - 1], 4, 7003).is_none());
        assert!(Payload::unpack(&[&stored[..], &[0]].concat(), 4, 7003).is_none());
    }

    /// Check that any flipped bit gives an error or bytes of the right length.
    #[test]
    fn flips_do_no_harm() {
        let stored = packed(&[&[9; 300], b"columns", &[1, 2, 3]]);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Some(payload) = Payload::unpack(&flipped, 3, 310) {
                assert_eq!(payload.parts().map(<[u8]>::len).sum::<usize>(), 310);
            }
        }
    }
}
