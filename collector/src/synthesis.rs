//! Process events for what existed before the recording, from `/proc`.

use crate::note::Note;
use crate::proc::{n_threads, parse_maps, start_ticks, thread_comm, threads};
use fpprof_recording::model::{Comm, FileIdentity, Fork, Mmap, Sideband};
use std::io;

/// What follows processes and writes what becomes of them.
pub(crate) trait Follows {
    /// A process is there, with so many threads.
    fn add(&mut self, pid: u32, n_threads: u32, time_ns: u64);
    /// Something happened.
    fn write_event(&mut self, event: Sideband);
}

/// Has processes that exist already followed and described. Says how many could not be.
pub(crate) fn describe(reader: &mut impl Follows, pids: impl IntoIterator<Item = u32>, time_ns: u64) -> Option<Note> {
    let mut unreadable = 0;
    for pid in pids {
        reader.add(pid, 1, time_ns);
        match synthesize(pid, time_ns, &mut |event| reader.write_event(event)) {
            Ok(n_threads) => reader.add(pid, n_threads, time_ns),
            Err(_) => unreadable += 1,
        }
    }
    (unreadable > 0).then_some(Note::ProcessesUnreadable(unreadable))
}

/// The state of one process at `time_ns`, as events: its names, threads and mappings. Returns its number of threads.
///
/// # Errors
/// When the process is gone, or not ours to read. Some events may have been emitted.
fn synthesize(pid: u32, time_ns: u64, emit: &mut impl FnMut(Sideband)) -> io::Result<u32> {
    let started = start_ticks(pid).ok_or(io::ErrorKind::NotFound)?;
    let maps = std::fs::read(format!("/proc/{pid}/maps"))?;
    let comm = thread_comm(pid, pid).unwrap_or_default();
    emit(Sideband::Comm(Comm { time_ns, pid, tid: pid, comm, exec: false, start_ticks: started }));
    for tid in threads(pid).into_iter().filter(|&tid| tid != pid) {
        emit(Sideband::Fork(Fork { time_ns, pid, tid, parent_pid: pid, parent_tid: pid }));
        if let Some(comm) = thread_comm(pid, tid) {
            emit(Sideband::Comm(Comm { time_ns, pid, tid, comm, exec: false, start_ticks: started }));
        }
    }
    for entry in parse_maps(&maps) {
        let identity = FileIdentity {
            dev_major: entry.dev_major,
            dev_minor: entry.dev_minor,
            inode: entry.inode,
            ..FileIdentity::default()
        };
        emit(Sideband::Mmap(Mmap {
            time_ns,
            pid,
            tid: pid,
            start: entry.start,
            len: entry.end.saturating_sub(entry.start),
            file_offset: entry.file_offset,
            prot: entry.prot,
            flags: entry.flags,
            path: entry.path,
            identity,
            synthesized: true,
        }));
    }
    // The number may have passed to another process meanwhile.
    if start_ticks(pid) != Some(started) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(n_threads(pid))
}
