//! Writes blocks to a sink that may fail and recover.

use crate::block::{HEADER_BYTES, Header, Kind, MAX_RAW_BYTES};
use crate::error::Error;
use crate::pack::Packer;
use crate::workers::PackedBlock;
use std::io::{self, Write};

/// Numbers, packs and writes blocks.
pub(crate) struct BlockSink<W> {
    sink: W,
    recording: u32,
    sequence: u32,
    samples_written: u64,
    sideband_written: u64,
    bytes_written: u64,
    packer: Packer,
    block: Vec<u8>,
    failing: bool,
    /// The failure has been returned to the caller.
    reported: bool,
}

impl<W: Write> BlockSink<W> {
    pub(crate) fn new(sink: W, recording: u32) -> Result<Self, Error> {
        Ok(Self {
            sink,
            recording,
            sequence: 0,
            samples_written: 0,
            sideband_written: 0,
            bytes_written: 0,
            packer: Packer::new()?,
            block: Vec::new(),
            failing: false,
            reported: false,
        })
    }

    /// Writes a block. A failed block does not count: the next one takes its number, and a reader skips its bytes as
    /// damage.
    pub(crate) fn write(&mut self, kind: Kind, items: u32, parts: &[&[u8]]) -> Result<(), Error> {
        self.block.clear();
        self.block.resize(HEADER_BYTES, 0);
        self.packer.pack(parts, &mut self.block)?;
        let raw_len = parts.iter().map(|part| part.len()).sum();
        self.write_block(kind, items, (parts.len(), raw_len))
    }

    /// Writes a block that is already packed.
    pub(crate) fn write_packed(&mut self, kind: Kind, packed: &PackedBlock) -> Result<(), Error> {
        self.block.clear();
        self.block.resize(HEADER_BYTES, 0);
        self.block.extend_from_slice(&packed.stored);
        self.write_block(kind, packed.items, (packed.n_parts, packed.raw_len))
    }

    /// Writes `block`, which has space for its header in front.
    fn write_block(&mut self, kind: Kind, items: u32, (n_parts, raw_len): (usize, usize)) -> Result<(), Error> {
        let first_item = if kind == Kind::Sideband { self.sideband_written } else { self.samples_written };
        let (head, stored) = self.block.split_at_mut(HEADER_BYTES);
        let header = Header {
            kind,
            parts: u8::try_from(n_parts).unwrap_or(u8::MAX),
            recording: self.recording,
            sequence: self.sequence,
            items,
            first_item,
            stored_len: len_u32(stored.len())?,
            raw_len: len_u32(raw_len)?,
            payload_crc: crc32c::crc32c(stored),
        };
        head.copy_from_slice(&header.to_bytes());
        let written = write_all(&mut self.sink, &self.block, &mut self.bytes_written);
        self.failing = written.is_err();
        written.map_err(Error::Write)?;
        match kind {
            Kind::Samples => self.samples_written += u64::from(items),
            Kind::Sideband => self.sideband_written += u64::from(items),
            Kind::Meta | Kind::Checkpoint | Kind::End | Kind::Gaps => {}
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.sink.flush();
        self.failing |= flushed.is_err();
        flushed.map_err(Error::Write)
    }

    /// Reports only the first of consecutive failures.
    pub(crate) fn once(&mut self, written: Result<(), Error>) -> Result<(), Error> {
        let result = match written {
            Err(Error::Write(_)) if std::mem::replace(&mut self.reported, true) => Ok(()),
            other => other,
        };
        self.reported &= self.failing;
        result
    }

    pub(crate) fn blocks_written(&self) -> u32 {
        self.sequence
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }

    pub(crate) fn into_inner(self) -> W {
        self.sink
    }
}

fn len_u32(len: usize) -> Result<u32, Error> {
    let limit = u64::from(MAX_RAW_BYTES);
    u32::try_from(len).ok().filter(|&len| u64::from(len) <= limit).ok_or(Error::TooLarge {
        what: "bytes of a block",
        value: len as u64,
        limit,
    })
}

/// Like [`Write::write_all`], but counts the bytes a failing sink accepted.
fn write_all(sink: &mut impl Write, mut bytes: &[u8], written: &mut u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = bytes.get(n..).ok_or(io::ErrorKind::InvalidData)?;
                *written += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
