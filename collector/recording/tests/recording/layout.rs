//! The layout of `FORMAT.md`, parsed independently of the crate's own reader.

use std::fmt::Write as _;

pub(crate) const HEADER: usize = 48;

/// A block in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) offset: usize,
    pub(crate) kind: u8,
    pub(crate) sequence: u32,
    pub(crate) items: u32,
    pub(crate) first_item: u64,
    pub(crate) parts: Vec<Vec<u8>>,
    pub(crate) end: usize,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn varint(bytes: &[u8], at: &mut usize) -> usize {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// All blocks of an undamaged file.
pub(crate) fn blocks(file: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut offset = 0;
    while offset < file.len() {
        let header = &file[offset..offset + HEADER];
        assert_eq!(&header[..8], b"\x89FPREC\r\n");
        assert_eq!(number(&header[8..10]), 9);
        assert_eq!(number(&header[44..48]), u64::from(crc32c::crc32c(&header[..44])));
        let end = offset + HEADER + usize::try_from(number(&header[32..36])).unwrap();
        let stored = &file[offset + HEADER..end];
        assert_eq!(number(&header[40..44]), u64::from(crc32c::crc32c(stored)));
        let parts = unpack(stored, usize::from(header[11]));
        assert_eq!(number(&header[36..40]), parts.iter().map(|part| part.len() as u64).sum::<u64>());
        blocks.push(Block {
            offset,
            kind: header[10],
            sequence: u32::try_from(number(&header[16..20])).unwrap(),
            items: u32::try_from(number(&header[20..24])).unwrap(),
            first_item: number(&header[24..32]),
            parts,
            end,
        });
        offset = end;
    }
    blocks
}

fn unpack(stored: &[u8], n_parts: usize) -> Vec<Vec<u8>> {
    let mut at = 0;
    let lens: Vec<(usize, Option<usize>)> = (0..n_parts)
        .map(|_| {
            let head = varint(stored, &mut at);
            (head >> 1, (head & 1 == 1).then(|| varint(stored, &mut at)))
        })
        .collect();
    let parts = lens
        .into_iter()
        .map(|(len, packed)| {
            let bytes = &stored[at..at + packed.unwrap_or(len)];
            at += bytes.len();
            if packed.is_some() { zstd::bulk::decompress(bytes, len).unwrap() } else { bytes.to_vec() }
        })
        .collect();
    assert_eq!(at, stored.len());
    parts
}

/// A block with other parts, stored unpacked, and valid checksums.
pub(crate) fn rebuilt(file: &[u8], block: &Block, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut stored = Vec::new();
    for part in parts {
        let mut head = part.len() << 1;
        while head >= 0x80 {
            stored.push(u8::try_from(head & 0x7f | 0x80).unwrap());
            head >>= 7;
        }
        stored.push(u8::try_from(head).unwrap());
    }
    parts.iter().for_each(|part| stored.extend_from_slice(part));
    let raw_len: usize = parts.iter().map(Vec::len).sum();
    let mut bytes = file[block.offset..block.offset + HEADER].to_vec();
    bytes[11] = u8::try_from(parts.len()).unwrap();
    bytes[32..36].copy_from_slice(&u32::try_from(stored.len()).unwrap().to_le_bytes());
    bytes[36..40].copy_from_slice(&u32::try_from(raw_len).unwrap().to_le_bytes());
    bytes[40..44].copy_from_slice(&crc32c::crc32c(&stored).to_le_bytes());
    seal(&mut bytes);
    bytes.extend_from_slice(&stored);
    bytes
}

/// Updates the header's checksum.
pub(crate) fn seal(block: &mut [u8]) {
    let crc = crc32c::crc32c(&block[..44]);
    block[44..48].copy_from_slice(&crc.to_le_bytes());
}

/// The contents of a file, by block and part, in hexadecimal.
pub(crate) fn dump(file: &[u8]) -> String {
    let mut text = String::new();
    for block in blocks(file) {
        writeln!(text, "block {} kind {} items {} first {}", block.sequence, block.kind, block.items, block.first_item)
            .unwrap();
        for part in &block.parts {
            let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "  {hex}").unwrap();
        }
    }
    text
}
