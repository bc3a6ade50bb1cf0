//! The dumps of compiled code (jitdump) that processes keep for perf, taken into the recording at its end.
//!
//! A runtime says where its `jit-PID.dump` is by mapping it executable. The file is opened then, by that mapping, and so
//! in whatever container the process runs in. What is taken are names, addresses and times; the code itself is not.

use crate::perf_maps::{is_file_of, own_uid};
use crate::proc::{effective_uid, open_mapped};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::jitdump::{
    CODE_LOAD, CODE_MOVE, HEADER_BYTES, LOAD_BYTES, MAGIC, MOVE_BYTES, PREFIX_BYTES,
};
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

/// Dumps that are kept open.
const MAX_DUMPS: usize = 256;
/// Bytes taken of a dump; a function takes some 100.
const MAX_DUMP_BYTES: usize = 32 << 20;
/// Bytes taken of all dumps together.
const MAX_TOTAL_BYTES: usize = 128 << 20;
/// Records of a dump that are looked at.
const MAX_RECORDS: usize = 2 << 20;
/// Bytes read at once: most records are passed over.
const BUFFER_BYTES: usize = 4096;

/// The dumps of profiled processes.
#[derive(Debug, Default)]
pub(crate) struct JitDumps {
    /// By process, device and inode; `None` for what is not read: anyone may call a file so.
    dumps: BTreeMap<(u32, u32, u32, u64), Option<File>>,
    n_over: u64,
}

/// What became of the dumps that are not whole in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Untaken {
    /// Not taken.
    pub(crate) refused: u64,
    /// Taken up to a record that makes no sense or is not whole, or up to a limit.
    pub(crate) cut: u64,
}

impl JitDumps {
    /// Takes note of an executable mapping; whether it is the mark of a dump, which is no code.
    pub(crate) fn note(&mut self, mmap: &Mmap) -> bool {
        let FileIdentity { dev_major, dev_minor, inode, .. } = mmap.identity;
        if inode == 0 || !is_dump(&mmap.path) {
            return false;
        }
        let key = (mmap.pid, dev_major, dev_minor, inode);
        if self.dumps.len() < MAX_DUMPS {
            self.dumps.entry(key).or_insert_with(|| open(mmap));
        } else if !self.dumps.contains_key(&key) {
            self.n_over = self.n_over.saturating_add(1);
        }
        true
    }

    /// Hands on the dumps, each as [`Compiled::JitDump`].
    pub(crate) fn finish(self, emit: &mut impl FnMut(ModuleBytes)) -> Untaken {
        let mut untaken = Untaken { refused: self.n_over, cut: 0 };
        let mut room = MAX_TOTAL_BYTES;
        for ((pid, ..), file) in self.dumps {
            let Some((bytes, is_whole)) = file.and_then(|file| taken(&file, room.min(MAX_DUMP_BYTES))) else {
                untaken.refused = untaken.refused.saturating_add(1);
                continue;
            };
            untaken.cut = untaken.cut.saturating_add(u64::from(!is_whole));
            room = room.saturating_sub(bytes.len());
            let path = Compiled::JitDump(pid).path();
            emit(ModuleBytes { path, identity: FileIdentity::default(), bytes });
        }
        untaken
    }
}

/// Whether a file is called `jit-NUMBER.dump`. The number says nothing: in a namespace it is another than ours.
fn is_dump(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let number = name.strip_prefix(b"jit-").and_then(|name| name.strip_suffix(b".dump"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Opens the mapped file if it is a regular one that belongs to the process's user.
fn open(mmap: &Mmap) -> Option<File> {
    let owner = effective_uid(mmap.pid).unwrap_or_else(own_uid);
    let end = mmap.start.saturating_add(mmap.len);
    let file = open_mapped(mmap.pid, mmap.start, end, &mmap.path, &mmap.identity)?.file;
    is_file_of(&file, owner).then_some(file)
}

/// The dump without its code, at most `room` bytes of it, and whether that is all; `None` if it is none.
fn taken(file: &File, room: usize) -> Option<(Vec<u8>, bool)> {
    let mut left = file.metadata().ok()?.len();
    let mut from = BufReader::with_capacity(BUFFER_BYTES, file);
    from.seek(SeekFrom::Start(0)).ok()?;
    let mut copy = vec![0; HEADER_BYTES];
    from.read_exact(&mut copy).ok()?;
    let own_bytes = u32_at(&copy, 8)?;
    let more = u64::from(own_bytes).checked_sub(HEADER_BYTES as u64)?;
    left = left.checked_sub(u64::from(own_bytes))?;
    if !copy.starts_with(MAGIC) || copy.len() > room {
        return None;
    }
    from.seek_relative(i64::try_from(more).ok()?).ok()?;
    copy.get_mut(8..12)?.copy_from_slice(&u32::try_from(HEADER_BYTES).ok()?.to_le_bytes());
    for _ in 0..MAX_RECORDS {
        if left == 0 {
            return Some((copy, true));
        }
        let before = copy.len();
        match copy_record(&mut from, left, &mut copy, room) {
            Some(bytes) => left = left.saturating_sub(bytes),
            None => {
                copy.truncate(before);
                return Some((copy, false));
            }
        }
    }
    Some((copy, false))
}

/// Appends the next record, if it is of a kind that is taken, without its code; `left` bytes of the file are to come.
/// Gives the bytes it has in the file. `None` if it makes no sense, is not whole, or does not fit.
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
    let mut name_bytes = 0;
    if kind == CODE_LOAD {
        name_bytes = from.by_ref().take(after_fields.min(room)).read_until(0, copy).ok()? as u64;
        if copy.last() != Some(&0) || name_bytes == 0 {
            return None;
        }
    }
    from.seek_relative(i64::try_from(after_fields.checked_sub(name_bytes)?).ok()?).ok()?;
    let own_bytes = u32::try_from(copy.len().checked_sub(before)?).ok()?;
    copy.get_mut(before.checked_add(4)?..)?.get_mut(..4)?.copy_from_slice(&own_bytes.to_le_bytes());
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
