//! Process events for what existed before the recording, from `/proc`.

use crate::proc::{n_threads, parse_maps, start_ticks, thread_comm, threads};
use fpprof_recording::model::{Comm, FileIdentity, Fork, Mmap, Sideband};
use std::io;

/// The state of one process at `time_ns`, as events: its names, threads and mappings. Returns its number of threads.
///
/// # Errors
/// When the process is gone, or not ours to read. Some events may have been emitted.
pub(crate) fn synthesize(pid: u32, time_ns: u64, emit: &mut impl FnMut(Sideband)) -> io::Result<u32> {
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
