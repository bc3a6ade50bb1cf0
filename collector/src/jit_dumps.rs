//! jitdump files, which processes write for perf about compiled code; they are copied into the recording as they grow.
//!
//! A runtime announces its `jit-PID.dump` by mapping it executable. The collector then opens the file by that mapping,
//! and so in whatever container the process runs. It takes names, addresses, times and call frame information, but not
//! the code.

use crate::parse::{FileParser, Found, JitDumpPosition, ParseTask, ParsedFile};
use crate::perf_maps::{is_file_of, own_uid};
use crate::proc::{effective_uid, open_mapped, start_ticks};
use crate::share::Shares;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::jitdump::{
    CODE_LOAD, CODE_MOVE, HEADER_BYTES, LOAD_BYTES, MAGIC, MOVE_BYTES, PREFIX_BYTES, UNWINDING_BYTES, UNWINDING_INFO,
};
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

/// The most bytes taken from a dump; a function takes some 100.
const MAX_DUMP_BYTES: usize = 32 << 20;
/// The most bytes taken from all dumps together, shared among users.
const MAX_TOTAL_BYTES: u64 = 128 << 20;
/// The longest call frame information of one function. V8 and Python write some 100 bytes.
const MAX_UNWINDING_BYTES: u64 = 1 << 16;
/// The most records of a dump that are read.
const MAX_RECORDS: usize = 2 << 20;
/// Bytes per read: most records are skipped.
const BUFFER_BYTES: usize = 4096;

/// The dumps of profiled processes.
#[derive(Debug)]
pub(crate) struct JitDumps {
    dumps: Vec<JitDump>,
    bytes: Shares,
    /// Dumps of ended processes that were not taken completely.
    untaken: Untaken,
}

impl Default for JitDumps {
    fn default() -> Self {
        Self { dumps: Vec::new(), bytes: Shares::new(MAX_TOTAL_BYTES), untaken: Untaken::default() }
    }
}

/// The jitdump of a process.
#[derive(Debug)]
pub(crate) struct JitDump {
    pid: u32,
    user: u32,
    identity: FileIdentity,
    /// Start time of its process; `None` if that had already ended.
    start_ticks: Option<u64>,
    /// `None` if it must not be read: anyone may give a file such a name.
    file: Option<File>,
    position: JitDumpPosition,
    /// Whether more follows that was not taken; `None` before the first look.
    is_cut: Option<bool>,
}

/// A dump after its last look, because its process has ended.
#[derive(Debug)]
pub(crate) struct EndedDump {
    pub(crate) pid: u32,
    pub(crate) user: u32,
    pub(crate) identity: FileIdentity,
}

/// Number of dumps that are not, or only partly, in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Untaken {
    /// Not taken.
    pub(crate) refused: u64,
    /// Taken up to a malformed or incomplete record, or up to a limit.
    pub(crate) cut: u64,
}

impl Untaken {
    fn add(&mut self, dump: &JitDump) {
        self.refused += u64::from(dump.is_cut.is_none());
        self.cut += u64::from(dump.is_cut == Some(true));
    }
}

impl JitDump {
    /// The dump of a process of `user`, whose marker mapping was opened.
    pub(crate) fn of(mmap: &Mmap, user: u32, file: Option<File>) -> Self {
        let (pid, identity, position) = (mmap.pid, mmap.identity, JitDumpPosition::default());
        Self { pid, user, identity, start_ticks: start_ticks(pid), file, position, is_cut: None }
    }

    fn has_ended(&self) -> bool {
        start_ticks(self.pid).is_none_or(|ticks| self.start_ticks != Some(ticks))
    }
}

impl JitDumps {
    /// Lets users have as many bytes taken again as in a new recording.
    pub(crate) fn renew(&mut self) {
        self.bytes = Shares::new(MAX_TOTAL_BYTES);
    }

    /// Starts taking from a dump.
    pub(crate) fn add(&mut self, dump: JitDump) {
        self.dumps.push(dump);
    }

    /// Emits what was written since the last look, each piece as [`Compiled::JitDump`] with a header of its own.
    /// Returns the dumps of processes that have ended: this was their last look. Once there is no time left, dumps count as cut.
    pub(crate) fn look(
        &mut self,
        parser: &dyn FileParser,
        has_time: &dyn Fn() -> bool,
        emit: &mut impl FnMut(ModuleBytes),
    ) -> Vec<EndedDump> {
        // Before reading, so that a process that ends meanwhile gets another look.
        let have_ended: Vec<bool> = self.dumps.iter().map(JitDump::has_ended).collect();
        for dump in &mut self.dumps {
            if !has_time() {
                dump.is_cut = dump.is_cut.map(|_| true);
                continue;
            }
            let position = dump.position;
            let left = usize::try_from(self.bytes.left(dump.user)).unwrap_or(usize::MAX);
            let room = MAX_DUMP_BYTES.saturating_sub(position.bytes).min(left);
            let is_first = position.offset == 0;
            let parsed = dump
                .file
                .as_ref()
                .and_then(|file| parser.parse(file, dump.user, ParseTask::JitDump { position, room }));
            let Some(ParsedFile { found: Found::Records { position, is_cut }, bytes }) = parsed else { continue };
            (dump.position, dump.is_cut) = (position, Some(is_cut));
            if is_first || bytes.len() > HEADER_BYTES {
                self.bytes.take(dump.user, bytes.len() as u64);
                let path = Compiled::JitDump(dump.pid).path();
                emit(ModuleBytes { path, identity: FileIdentity::default(), bytes });
            }
        }
        let mut have_ended = have_ended.into_iter();
        let ended: Vec<JitDump> = self.dumps.extract_if(.., |_| have_ended.next() == Some(true)).collect();
        ended.iter().for_each(|dump| self.untaken.add(dump));
        ended.into_iter().map(|JitDump { pid, user, identity, .. }| EndedDump { pid, user, identity }).collect()
    }

    /// Dumps not taken completely as of their last look.
    pub(crate) fn untaken(&self) -> Untaken {
        let mut untaken = self.untaken;
        self.dumps.iter().for_each(|dump| untaken.add(dump));
        untaken
    }
}

/// Opens the mapped file if it is regular and belongs to the process's user.
pub(crate) fn open(mmap: &Mmap) -> Option<File> {
    let owner = effective_uid(mmap.pid).unwrap_or_else(own_uid);
    let file = open_mapped(mmap, &[])?.file;
    is_file_of(&file, owner).then_some(file)
}

/// The dump's new records after its header and without their code, at most `room` bytes, and whether more follow that
/// cannot be taken; `None` if it is no dump, or has become shorter.
pub(crate) fn take(file: &File, position: &mut JitDumpPosition, room: usize) -> Option<(Vec<u8>, bool)> {
    let len = file.metadata().ok()?.len();
    let mut from = BufReader::with_capacity(BUFFER_BYTES, file);
    from.seek(SeekFrom::Start(0)).ok()?;
    let mut copy = vec![0; HEADER_BYTES];
    from.read_exact(&mut copy).ok()?;
    let own_bytes = u32_at(&copy, 8)?;
    if !copy.starts_with(MAGIC) || copy.len() > room || (own_bytes as usize) < HEADER_BYTES {
        return None;
    }
    copy.get_mut(8..12)?.copy_from_slice(&u32::try_from(HEADER_BYTES).ok()?.to_le_bytes());
    let mut now = JitDumpPosition { offset: position.offset.max(u64::from(own_bytes)), ..*position };
    let mut left = len.checked_sub(now.offset)?;
    from.seek(SeekFrom::Start(now.offset)).ok()?;
    let mut is_cut = false;
    while left > 0 {
        let before = copy.len();
        let copied = (now.records < MAX_RECORDS).then(|| copy_record(&mut from, left, &mut copy, room)).flatten();
        let Some(bytes) = copied else {
            copy.truncate(before);
            is_cut = true;
            break;
        };
        left = left.saturating_sub(bytes);
        now.offset = now.offset.saturating_add(bytes);
        now.records += 1;
    }
    now.bytes = now.bytes.saturating_add(copy.len());
    *position = now;
    Some((copy, is_cut))
}

/// Appends the next record without its code, if its kind is taken; `left` bytes of the file remain.
/// Returns its size in the file. `None` if it is malformed, incomplete, or does not fit.
fn copy_record(from: &mut BufReader<&File>, left: u64, copy: &mut Vec<u8>, room: usize) -> Option<u64> {
    let mut prefix = [0; PREFIX_BYTES];
    if left < PREFIX_BYTES as u64 {
        return None;
    }
    from.read_exact(&mut prefix).ok()?;
    let (kind, bytes) = (u32_at(&prefix, 0)?, u64::from(u32_at(&prefix, 4)?));
    let body = bytes.checked_sub(PREFIX_BYTES as u64).filter(|_| bytes <= left)?;
    let before = copy.len();
    let fields = match kind {
        CODE_LOAD => LOAD_BYTES,
        CODE_MOVE => MOVE_BYTES,
        UNWINDING_INFO if body <= MAX_UNWINDING_BYTES => UNWINDING_BYTES,
        _ => {
            from.seek_relative(i64::try_from(body).ok()?).ok()?;
            return Some(bytes);
        }
    };
    let fields = fields as u64;
    let after_fields = body.checked_sub(fields)?;
    copy.extend_from_slice(&prefix);
    let room = (room as u64).checked_sub(before as u64 + PREFIX_BYTES as u64 + fields)?;
    if from.by_ref().take(fields).read_to_end(copy).ok()? as u64 != fields {
        return None;
    }
    let mut rest = from.by_ref().take(after_fields.min(room));
    let taken = match kind {
        CODE_LOAD => rest.read_until(0, copy).ok().filter(|&n| n > 0 && copy.last() == Some(&0))?,
        UNWINDING_INFO => rest.read_to_end(copy).ok().filter(|&n| n as u64 == after_fields)?,
        _ => 0,
    };
    from.seek_relative(i64::try_from(after_fields.checked_sub(taken as u64)?).ok()?).ok()?;
    let own_bytes = u32::try_from(copy.len().checked_sub(before)?).ok()?;
    copy.get_mut(before.checked_add(4)?..)?.get_mut(..4)?.copy_from_slice(&own_bytes.to_le_bytes());
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
