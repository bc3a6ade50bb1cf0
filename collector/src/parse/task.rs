//! What is taken from a file, and who does it.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::Range;
use std::time::Duration;

/// What is to be taken from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParseTask {
    /// The GNU build id of an ELF file.
    BuildId,
    /// An ELF file of so many bytes, with zeros for its data.
    WithoutData {
        /// Its length when it was opened.
        bytes: u64,
    },
    /// The whole lines of a perf map from an offset on that name a function.
    PerfMap {
        /// In bytes.
        offset: u64,
    },
    /// The records of a jitdump from a position on, without code.
    JitDump {
        /// Where the last call left off.
        position: JitDumpPosition,
        /// Most bytes to be taken.
        room: usize,
    },
    /// Where in an ELF file a place of its code is.
    CodeOffset {
        /// The function that it is in; `None` if `offset` is an address.
        symbol: Option<String>,
        /// Bytes from its start; or the address, as the file's own symbols have it.
        offset: u64,
    },
    /// The rules by which a walk leaves the functions in parts of an ELF file: ranges of code
    /// ([`super::RuleRange::encode`]) that ascend. [`super::parse`] gives none.
    Rules {
        /// Offsets in bytes, ascending.
        parts: Vec<Range<u64>>,
    },
}

/// What was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Not what was asked for: no build id, no ELF file, no jitdump.
    Nothing,
    /// The file cannot be read, or has become shorter.
    Unreadable,
    /// What was asked for: [`ParsedFile::bytes`].
    Bytes,
    /// Lines of a perf map. So many bytes of it were looked at.
    Lines(u64),
    /// The offset in the file of a place of its code, bytes.
    Offset(u64),
    /// Records of a jitdump.
    Records {
        /// Where to go on.
        position: JitDumpPosition,
        /// A record follows that is corrupt, not whole, or beyond a limit.
        is_cut: bool,
    },
}

/// How much of a dump was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JitDumpPosition {
    /// The next record begins there; 0 before the header.
    pub(crate) offset: u64,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// The result of parsing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedFile {
    /// What was found.
    pub found: Found,
    /// What was taken; at most [`MAX_PARSED_BYTES`].
    pub bytes: Vec<u8>,
}

/// Most bytes that are taken from a file at once.
pub const MAX_PARSED_BYTES: u64 = 40 << 20;

/// Parses files.
pub trait FileParser: std::fmt::Debug + Send + Sync {
    /// Does `task` with a file that a process of `user` runs; `None` if it crashed or took too long over this file, or did so too
    /// often lately.
    fn parse(&self, file: &File, user: u32, task: ParseTask) -> Option<ParsedFile>;

    /// Processes that do it, which are not to be profiled.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// CPU time of these processes so far.
    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    /// How many times it crashed or took too long.
    fn n_failed(&self) -> u64 {
        0
    }

    /// How many files it did not begin with, as it had failed too often.
    fn n_left_out(&self) -> u64 {
        0
    }
}
