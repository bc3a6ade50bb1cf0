//! Parsing tasks, and the trait that performs them.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::Range;
use std::time::Duration;

/// What to take from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParseTask {
    /// The GNU build ID of an ELF file.
    BuildId,
    /// An ELF file with its data zeroed.
    WithoutData {
        /// Its length when it was opened.
        bytes: u64,
    },
    /// The complete lines of a perf map that name a function, from an offset on.
    PerfMap {
        /// In bytes.
        offset: u64,
    },
    /// The records of a jitdump from a position on, without code.
    JitDump {
        /// Where the last call left off.
        position: JitDumpPosition,
        /// The most bytes to take.
        room: usize,
    },
    /// The file offset of code in an ELF file.
    CodeOffset {
        /// The function it is in; `None` if `offset` is an address.
        symbol: Option<String>,
        /// Bytes from the function's start; or the address, in the terms of the file's own symbols.
        offset: u64,
    },
    /// The unwind rules for the functions in parts of an ELF file, as ascending ranges of code
    /// ([`super::RuleRange::encode`]). [`super::parse`] returns none.
    Rules {
        /// Offsets in bytes, ascending.
        parts: Vec<Range<u64>>,
    },
}

/// Result of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Not what was requested: no build ID, no ELF file, no jitdump.
    Nothing,
    /// The file cannot be read, or has become shorter.
    Unreadable,
    /// What was requested, in [`ParsedFile::bytes`].
    Bytes,
    /// Lines of a perf map, and the number of bytes of it that were read.
    Lines(u64),
    /// The file offset of the code, in bytes.
    Offset(u64),
    /// Several functions have the name.
    Several,
    /// The function of the name is chosen when a program starts.
    Indirect,
    /// Records of a jitdump.
    Records {
        /// Where to continue.
        position: JitDumpPosition,
        /// Whether a record follows that is corrupt, incomplete, or beyond a limit.
        is_cut: bool,
    },
}

/// How far a jitdump was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JitDumpPosition {
    /// File offset of the next record; 0 before the header.
    pub(crate) offset: u64,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// The result of parsing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedFile {
    /// The outcome.
    pub found: Found,
    /// The bytes taken; at most [`MAX_PARSED_BYTES`].
    pub bytes: Vec<u8>,
}

/// The most bytes taken from a file at once.
pub const MAX_PARSED_BYTES: u64 = 40 << 20;

/// Parses files.
pub trait FileParser: std::fmt::Debug + Send + Sync {
    /// Performs `task` on a file that a process of `user` runs; `None` if parsing crashed or took too long on this
    /// file, or did so too often lately.
    fn parse(&self, file: &File, user: u32, task: ParseTask) -> Option<ParsedFile>;

    /// Ends processes of the parser that have had nothing to do for a while; they are started again when needed.
    fn end_idle(&self) {}

    /// Fails what is being parsed, and all that follows: the recording has to end now.
    fn give_up(&self) {}

    /// The parser's processes, which are not to be profiled.
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

    /// How many files it refused to start on because it had failed too often, or taken too long for those of their user.
    fn n_left_out(&self) -> u64 {
        0
    }
}
