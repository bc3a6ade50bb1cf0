//! Finds the valid blocks of a file, and what is between them.
//!
//! ```text
//! at = 0
//! while bytes are left:
//!     header = the 48 bytes at `at`, if they are a header; else find the next marker after `at`
//!     payload intact            → a valid block; at = its end
//!     a header follows its end  → only this payload is damaged; at = its end
//!     else                      → it was broken off and something else follows: find the next marker inside it
//! ```

use crate::block::{HEADER_BYTES, Header, Kind, MARKER, NoHeader};
use crate::damage::Damage;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// A valid block and its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) header: Header,
}

impl Found {
    pub(crate) fn end(&self) -> u64 {
        self.offset + HEADER_BYTES as u64 + u64::from(self.header.stored_len)
    }
}

/// The result of scanning a whole file.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) blocks: Vec<Found>,
    /// The last header whose payload is truncated or damaged, with its offset.
    pub(crate) broken: Option<Found>,
    /// Highest version above ours in a valid header.
    pub(crate) newer: Option<u16>,
    pub(crate) newer_blocks: u64,
    pub(crate) len: u64,
}

/// The most payload bytes of broken blocks that are read twice, beyond the file's own size. Otherwise a file of only
/// headers that announce large payloads would take forever.
const EXTRA_BYTES: u64 = 256 << 20;

/// Reads the file once, and verifies every checksum.
pub(crate) fn scan<R: Read + Seek>(source: R) -> io::Result<Scan> {
    let mut file = BufReader::with_capacity(256 << 10, source);
    let len = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut scan = Scan { len, ..Scan::default() };
    let mut extra = len.saturating_add(EXTRA_BYTES);
    let mut at = 0;
    while let Some(next) = step(&mut file, &mut scan, at, &mut extra)? {
        at = next;
    }
    Ok(scan)
}

/// Examines one offset; returns the next, `None` at the end.
fn step<R: Read + Seek>(file: &mut BufReader<R>, scan: &mut Scan, at: u64, extra: &mut u64) -> io::Result<Option<u64>> {
    let header = match header_at(file, at)? {
        None => return Ok(None),
        Some(Ok(header)) => header,
        Some(Err(no_header)) => {
            if let NoHeader::Newer(version) = no_header {
                scan.newer = scan.newer.max(Some(version));
                scan.newer_blocks += 1;
            }
            return next_marker(file, at + 1);
        }
    };
    let found = Found { offset: at, header };
    let (crc, read) = crc_of(file, u64::from(header.stored_len))?;
    if read == u64::from(header.stored_len) && crc == header.payload_crc {
        scan.blocks.push(found);
        return Ok(Some(found.end()));
    }
    scan.broken = Some(found);
    let followed = matches!(header_at(file, found.end())?, Some(Ok(_)));
    if followed || read > *extra {
        return Ok(Some(found.end()));
    }
    *extra -= read;
    next_marker(file, at + 1)
}

/// The header at `at`; `None` if the file is too short. The next read continues after it.
fn header_at<R: Read + Seek>(file: &mut BufReader<R>, at: u64) -> io::Result<Option<Result<Header, NoHeader>>> {
    seek(file, at)?;
    let mut bytes = [0; HEADER_BYTES];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(Header::parse(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Seeks, keeping the buffer if the target is in it.
fn seek<R: Read + Seek>(file: &mut BufReader<R>, at: u64) -> io::Result<()> {
    let now = file.stream_position()?;
    match i64::try_from(i128::from(at) - i128::from(now)) {
        Ok(distance) => file.seek_relative(distance),
        Err(_) => file.seek(SeekFrom::Start(at)).map(drop),
    }
}

/// CRC32C of the next `len` bytes, and how many of them exist.
fn crc_of<R: Read>(file: &mut BufReader<R>, len: u64) -> io::Result<(u32, u64)> {
    let mut crc = 0;
    let mut left = len;
    while left > 0 {
        let bytes = match file.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if take == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, bytes.get(..take).unwrap_or(&[]));
        file.consume(take);
        left -= take as u64;
    }
    Ok((crc, len - left))
}

/// Offset of the next marker at or after `from`.
fn next_marker<R: Read + Seek>(file: &mut BufReader<R>, from: u64) -> io::Result<Option<u64>> {
    seek(file, from)?;
    let mut at = from;
    let mut matched = 0;
    loop {
        let bytes = match file.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for (number, byte) in bytes.iter().enumerate() {
            // The marker's first byte occurs in it only once, so after a mismatch a match can only start at this byte.
            matched = match MARKER.get(matched) {
                Some(expected) if expected == byte => matched + 1,
                _ => usize::from(MARKER.first() == Some(byte)),
            };
            if matched == MARKER.len() {
                return Ok(Some(at + number as u64 + 1 - MARKER.len() as u64));
            }
        }
        let len = bytes.len();
        at += len as u64;
        file.consume(len);
    }
}

/// The blocks of one recording in order, and what is missing.
pub(crate) fn select(scan: &Scan, recording: u32) -> (Vec<Found>, Damage) {
    let mut damage = Damage { foreign_blocks: scan.newer_blocks, ..Damage::default() };
    let mut blocks: Vec<Found> = Vec::new();
    let mut sequence = 0u32;
    let mut known_bytes = 0;
    let mut good_end = 0;
    for found in &scan.blocks {
        known_bytes += found.end() - found.offset;
        good_end = found.end();
        if found.header.recording != recording {
            damage.foreign_blocks += 1;
        } else if found.header.sequence < sequence {
            damage.repeated_blocks += 1;
        } else {
            damage.skipped_blocks += u64::from(found.header.sequence - sequence);
            sequence = found.header.sequence.saturating_add(1);
            blocks.push(*found);
        }
    }
    damage.skipped_bytes = good_end - known_bytes;
    damage.torn_tail_bytes = scan.len - good_end;
    damage.lost_samples = missing_items(blocks.iter().filter(|found| found.header.kind != Kind::Sideband));
    damage.lost_sideband = missing_items(blocks.iter().filter(|found| found.header.kind == Kind::Sideband));
    if let Some(torn) = scan.broken.filter(|torn| torn.offset >= good_end && torn.header.kind == Kind::Samples) {
        damage.torn_tail_samples = u64::from(torn.header.items);
    }
    (blocks, damage)
}

/// Number of items that should precede the blocks but are missing. Metadata, checkpoints and the end count samples too.
fn missing_items<'a>(blocks: impl Iterator<Item = &'a Found>) -> u64 {
    let mut expected = 0u64;
    let mut missing = 0u64;
    for Found { header, .. } in blocks {
        let own = if matches!(header.kind, Kind::Samples | Kind::Sideband) { header.items } else { 0 };
        missing = missing.saturating_add(header.first_item.saturating_sub(expected));
        expected = header.first_item.saturating_add(u64::from(own));
    }
    missing
}
