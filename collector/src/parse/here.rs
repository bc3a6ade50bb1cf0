//! Parsing in this process.

use super::task::{FileParser, Found, MAX_PARSED_BYTES, ParseTask, ParsedFile};
use crate::event::code_offset;
use crate::jit_dumps;
use crate::modules::without_data;
use crate::perf_maps::whole_lines;
use crate::proc::read_build_id;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Parses in the calling thread, with the rights of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParseHere;

impl FileParser for ParseHere {
    fn parse(&self, file: &File, _user: u32, task: ParseTask) -> Option<ParsedFile> {
        Some(parse(file, task))
    }
}

/// Performs `task` on a file. [`ParseTask::Rules`] yields nothing: a caller with an unwinder does it itself.
#[must_use]
pub fn parse(file: &File, task: ParseTask) -> ParsedFile {
    let (found, bytes) = match task {
        ParseTask::BuildId => match read_build_id(file) {
            Some(build_id) => (Found::Bytes, build_id.as_bytes().to_vec()),
            None => (Found::Nothing, Vec::new()),
        },
        ParseTask::WithoutData { bytes } => match read_all(file, bytes).map(without_data) {
            Some(Some(kept)) => (Found::Bytes, kept),
            Some(None) => (Found::Nothing, Vec::new()),
            None => (Found::Unreadable, Vec::new()),
        },
        ParseTask::PerfMap { offset } => match whole_lines(file, offset) {
            Some((lines, bytes)) => (Found::Lines(bytes), lines),
            None => (Found::Unreadable, Vec::new()),
        },
        ParseTask::JitDump { mut position, room } => match jit_dumps::take(file, &mut position, room) {
            Some((records, is_cut)) => (Found::Records { position, is_cut }, records),
            None => (Found::Nothing, Vec::new()),
        },
        // Rules are made by the unwinder, in another crate.
        ParseTask::Rules { .. } => (Found::Nothing, Vec::new()),
        ParseTask::CodeOffset { symbol, offset } => (code_offset(file, symbol.as_deref(), offset), Vec::new()),
    };
    ParsedFile { found, bytes }
}

/// Reads this many bytes from the start of a file; `None` if it has fewer.
fn read_all(file: &File, bytes: u64) -> Option<Vec<u8>> {
    let mut all = vec![0; usize::try_from(bytes.min(MAX_PARSED_BYTES)).ok()?];
    file.read_exact_at(&mut all, 0).ok()?;
    Some(all)
}
