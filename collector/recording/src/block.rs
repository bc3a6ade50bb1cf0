//! Blocks: the framing of every payload.
//!
//! A file consists of blocks only. Each starts with the same marker, so that a reader can find the next block after
//! damage, and identifies its recording, so that a recording inside a recording is not taken for part of it. The layout
//! is specified in `FORMAT.md`.

/// The first bytes of every block, and so of every file. Not text, not UTF-8, broken by any newline conversion.
pub(crate) const MARKER: [u8; 8] = *b"\x89FPREC\r\n";

/// Version of everything after the marker. It is raised with every change that an older reader would misread.
pub const FORMAT_VERSION: u16 = 9;

/// Size of a block's header.
pub(crate) const HEADER_BYTES: usize = 48;

/// The most bytes of a payload, unpacked. A reader allocates no more than this for a block.
pub const MAX_RAW_BYTES: u32 = 64 << 20;
/// A block is closed when its payload has this many bytes, unpacked.
pub const BLOCK_BYTES: usize = 1 << 20;

/// The most bytes of a payload as stored: for data that cannot be packed, the lengths of the parts are added.
const MAX_STORED_BYTES: u32 = MAX_RAW_BYTES + (1 << 12);

/// The contents of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The metadata.
    Meta = 1,
    /// Process events.
    Sideband = 2,
    /// Samples.
    Samples = 3,
    /// The balance so far.
    Checkpoint = 4,
    /// The end.
    End = 5,
    /// The gaps: when samples were lost.
    Gaps = 6,
}

/// The contents of the block at the start of `bytes`; `None` without an intact header. The sink of a
/// [`crate::RecordingWriter`] gets one block per call, and can use this to decide what to do with it.
#[must_use]
pub fn block_kind(bytes: &[u8]) -> Option<Kind> {
    Header::parse(bytes.first_chunk()?).ok().map(|header| header.kind)
}

/// Number of items in the block, such as samples; 0 without an intact header.
#[must_use]
pub fn block_items(bytes: &[u8]) -> u32 {
    let header = bytes.first_chunk().and_then(|bytes| Header::parse(bytes).ok());
    header.map_or(0, |header| header.items)
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Meta, Self::Sideband, Self::Samples, Self::Checkpoint, Self::End, Self::Gaps];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// A block's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Number of parts of the payload, each packed separately.
    pub(crate) parts: u8,
    /// CRC32C of the metadata: identifies the recording.
    pub(crate) recording: u32,
    /// Number of the block in the file.
    pub(crate) sequence: u32,
    /// Items in the payload.
    pub(crate) items: u32,
    /// For a block of process events, the number of events in all earlier blocks; for any other block, the number of
    /// samples in all earlier blocks. It shows how many are missing.
    pub(crate) first_item: u64,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    /// CRC32C of the payload as stored.
    pub(crate) payload_crc: u32,
}

/// Why 48 bytes are not a header of this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// No marker, a wrong checksum, or values that no writer writes.
    Damaged,
    /// A valid header of a later version.
    Newer(u16),
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        };
        put(&MARKER);
        put(&FORMAT_VERSION.to_le_bytes());
        put(&[self.kind as u8, self.parts]);
        put(&self.recording.to_le_bytes());
        put(&self.sequence.to_le_bytes());
        put(&self.items.to_le_bytes());
        put(&self.first_item.to_le_bytes());
        put(&self.stored_len.to_le_bytes());
        put(&self.raw_len.to_le_bytes());
        put(&self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses a header. The checksum is verified first, so that only an intact header is reported as newer.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        let (body, crc) = bytes.split_at(HEADER_BYTES - 4);
        if !bytes.starts_with(&MARKER) || crc32c::crc32c(body).to_le_bytes() != crc {
            return Err(NoHeader::Damaged);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > FORMAT_VERSION {
            return Err(NoHeader::Newer(version));
        }
        let u32_at = |at: usize| {
            body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or(NoHeader::Damaged)
        };
        let first_item = u64::from(u32_at(24)?) | u64::from(u32_at(28)?) << 32;
        let header = Self {
            kind: Kind::from_byte(bytes[10]).ok_or(NoHeader::Damaged)?,
            parts: bytes[11],
            recording: u32_at(12)?,
            sequence: u32_at(16)?,
            items: u32_at(20)?,
            first_item,
            stored_len: u32_at(32)?,
            raw_len: u32_at(36)?,
            payload_crc: u32_at(40)?,
        };
        let sizes_fit = header.raw_len <= MAX_RAW_BYTES && header.stored_len <= MAX_STORED_BYTES && header.parts > 0;
        if sizes_fit && version != 0 { Ok(header) } else { Err(NoHeader::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Samples,
            parts: 1,
            recording: 0x0102_0304,
            sequence: 7,
            items: 9,
            first_item: 0x1122_3344_5566_7788,
            stored_len: 10,
            raw_len: 20,
            payload_crc: 0xdead_beef,
        }
    }

    /// Check that a header survives encoding and decoding, and that any flipped bit is detected.
    #[test]
    fn header_round_trips_and_no_flip_passes() {
        let bytes = header().to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header()));
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&flipped), Err(NoHeader::Damaged), "bit {bit}");
        }
    }

    /// Check that a later version is distinguished from damage.
    #[test]
    fn later_version_is_named() {
        let mut bytes = header().to_bytes();
        bytes[8..10].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(NoHeader::Newer(FORMAT_VERSION + 1)));
    }

    /// Check that sizes that no writer writes are refused.
    #[test]
    fn impossible_sizes_are_refused() {
        for (parts, stored_len, raw_len) in
            [(0, 1, 2), (1, MAX_STORED_BYTES + 1, 20), (1, MAX_RAW_BYTES, MAX_RAW_BYTES + 1)]
        {
            let bytes = Header { parts, stored_len, raw_len, ..header() }.to_bytes();
            assert_eq!(Header::parse(&bytes), Err(NoHeader::Damaged));
        }
    }
}
