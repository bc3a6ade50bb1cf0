//! Decompresses parts of ELF files, each in one piece, into memory of the size given in its header.
//!
//! Uses libdeflate instead of the decoder in `object`: debug sections are most of what is read for inline frames, and
//! inflating them was the largest part of symbolising a stack. See `just bench unwind` for the present share.

use object::elf;
use std::io::Read;

/// Compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `ELFCOMPRESS_ZLIB`.
    Zlib,
    /// `ELFCOMPRESS_ZSTD`.
    Zstd,
}

impl Format {
    /// The format of a compressed section, by `ch_type`.
    pub(crate) fn of(kind: elf::CompressionType) -> Option<Self> {
        match kind {
            elf::ELFCOMPRESS_ZLIB => Some(Self::Zlib),
            elf::ELFCOMPRESS_ZSTD => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The most memory that the xz decoder may use: `xz -9` needs 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 96 << 20;

/// Decompresses to exactly `full_bytes`, or returns `None`. The caller must have bounded `full_bytes`.
pub(crate) fn whole(format: Format, compressed: &[u8], full_bytes: usize) -> Option<Vec<u8>> {
    match format {
        Format::Zlib => {
            let mut out = vec![0; full_bytes];
            let n = libdeflater::Decompressor::new().zlib_decompress(compressed, &mut out).ok()?;
            (n == full_bytes).then_some(out)
        }
        Format::Zstd => zstd::bulk::decompress(compressed, full_bytes).ok().filter(|out| out.len() == full_bytes),
    }
}

/// Decompresses an xz stream, as in `.gnu_debugdata`; `None` if it is damaged or has more than `max_bytes`.
pub(super) fn xz(compressed: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
    let stream = liblzma::stream::Stream::new_stream_decoder(MAX_XZ_MEMORY_BYTES, 0).ok()?;
    let mut out = Vec::new();
    let mut decoder = liblzma::read::XzDecoder::new_stream(compressed, stream).take(max_bytes.saturating_add(1));
    decoder.read_to_end(&mut out).ok()?;
    (out.len() as u64 <= max_bytes).then_some(out)
}

/// The check sum of a file that is named by `.gnu_debuglink`.
///
/// # Sources
/// GDB manual, "Debugging Information in Separate Files": the CRC-32 of ISO 3309.
pub(super) fn crc32(mut file: impl Read) -> std::io::Result<u32> {
    let mut crc = libdeflater::Crc::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc.sum()),
            n => crc.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}
