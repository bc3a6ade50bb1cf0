//! Errors of a recording.

use crate::block::MARKER;
use crate::model::Arch;
use std::io;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sink failed. What was written before stays readable, and the writer remains usable.
    #[error("cannot write the recording")]
    Write(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread to encode samples")]
    Thread(#[source] io::Error),
    /// The source could not be read.
    #[error("cannot read the recording")]
    Read(#[source] io::Error),
    /// The file has another format.
    #[error("not an fpprof recording: {0}")]
    NotARecording(LooksLike),
    /// The file was written by a later version of this program.
    #[error("the recording has format version {found}; this fpprof reads up to version {supported}")]
    NewerVersion {
        /// Version in the file.
        found: u16,
        /// Highest version this program reads.
        supported: u16,
    },
    /// The file ends before its metadata.
    #[error("the recording's first block is missing, truncated or corrupt")]
    NoMeta,
    /// The JSON is intact but has contents unknown to this program.
    #[error("cannot parse the recording's {what}")]
    BadJson {
        /// The block: `description`, `end` or `checkpoint`.
        what: &'static str,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A value exceeds a limit of the format; it was not written.
    #[error("{what}: {value} is over the format's limit of {limit}")]
    TooLarge {
        /// What is too large, such as `stack bytes`.
        what: &'static str,
        /// Its size.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The registers of a sample are not of the recording's architecture; it was not written.
    #[error("a sample has {} registers, but the recording is from {}", found.name(), expected.name())]
    ForeignRegisters {
        /// Architecture of the sample.
        found: Arch,
        /// Architecture of the recording.
        expected: Arch,
    },
    /// A sample has frames of a walk by call frame information, but not how it ended; it was not written.
    #[error("a sample has {n_frames} frames of a walk by call frame information, but not how it ended")]
    WalkWithoutEnd {
        /// Number of frames.
        n_frames: usize,
    },
    /// In a walk by call frame information, a frame has the canonical frame address of the previous one, or follows one
    /// whose address is 0; the sample was not written.
    #[error(
        "frame {number} of a walk by call frame information has CFA {cfa:#x}, which does not follow the one before"
    )]
    FrameOutOfPlace {
        /// The index of the frame; the leaf is 0.
        number: usize,
        /// Its canonical frame address.
        cfa: u64,
    },
    /// A block has a valid checksum but invalid contents; its items before `item` are valid.
    #[error("block {sequence} is corrupt at item {item}")]
    Malformed {
        /// Number of the block.
        sequence: u32,
        /// Number of valid items.
        item: u64,
    },
    /// The file changed while it was read.
    #[error("the recording changed while it was being read (block {sequence})")]
    Changed {
        /// Number of the block.
        sequence: u32,
    },
    /// The compression library failed.
    #[error("cannot compress a block")]
    Compress(#[source] io::Error),
}

/// The apparent format of a file that is not a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LooksLike {
    /// Empty.
    Empty,
    /// A recording.
    Recording,
    /// Written by `perf record`.
    PerfData,
    /// An ELF file.
    Elf,
    /// A gzip stream (pprof files are).
    Gzip,
    /// A zstd frame.
    Zstd,
    /// JSON.
    Json,
    /// Text.
    Text,
    /// None of these.
    Unknown,
}

impl LooksLike {
    /// Guesses the format of a file from its first bytes.
    ///
    /// # Sources
    /// perf: `tools/perf/util/header.c` (`__perf_magic2`, either byte order, and the older `PERFFILE`); ELF: gABI
    /// chapter 4; gzip: RFC 1952 section 2.3.1; zstd: RFC 8878 section 3.1.1.
    #[must_use]
    pub fn judge(head: &[u8]) -> Self {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        match head {
            [] => Self::Empty,
            _ if head.starts_with(&MARKER) => Self::Recording,
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..]
            | [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..]
            | [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] => Self::PerfData,
            [0x7f, b'E', b'L', b'F', ..] => Self::Elf,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ if matches!(text.trim_ascii_start(), [b'{' | b'[', ..]) => Self::Json,
            _ if text.iter().all(|&byte| byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t')) => Self::Text,
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Display for LooksLike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "the file is empty",
            Self::Recording => "it is an fpprof recording",
            Self::PerfData => "it looks like a perf.data file; convert it with `fpprof import`",
            Self::Elf => "it looks like an ELF file",
            Self::Gzip => "it looks like a gzip file",
            Self::Zstd => "it looks like a zstd file",
            Self::Json => "it looks like JSON",
            Self::Text => "it looks like text",
            Self::Unknown => "unknown file type",
        })
    }
}
