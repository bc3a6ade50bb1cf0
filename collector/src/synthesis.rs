//! Process events for what existed before the recording, from `/proc`.

use crate::note::Note;
use crate::proc::{n_threads, parse_maps, start_ticks, thread_comm, threads};
use crate::sys::monotonic_ns;
use fpprof_recording::model::{Comm, FileIdentity, Fork, Mmap, Sideband};
use rustc_hash::FxHashSet;
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

/// Which processes are to be described anew, since events were lost that may have been theirs.
///
/// It is done when a process is sampled the next time: most that are told of never are.
#[derive(Debug, Default)]
pub(crate) struct Amends {
    n_lost: u64,
    /// Since the last loss; `None` before the first.
    described: Option<FxHashSet<u32>>,
}

impl Amends {
    /// Takes note of how many events were lost so far.
    pub(crate) fn note(&mut self, n_lost: u64) {
        if n_lost > std::mem::replace(&mut self.n_lost, n_lost) {
            self.described = Some(FxHashSet::default());
        }
    }

    /// Whether a process that was sampled is to be described; it counts as described from now on.
    pub(crate) fn are_due(&mut self, pid: u32) -> bool {
        self.described.as_mut().is_some_and(|described| described.insert(pid))
    }
}

/// Describes a process as it is now: what it had mapped before, as far as that is known, counts up to now.
///
/// One that has ended, or has nothing mapped, is left as it is.
pub(crate) fn describe_anew(reader: &mut impl Follows, pid: u32) {
    // Before `/proc` is read: what happens from now on is told by events.
    let time_ns = monotonic_ns();
    let mut events = Vec::new();
    let Ok(n_threads) = synthesize(pid, time_ns, &mut |event| events.push(event)) else { return };
    if !events.iter().any(|event| matches!(event, Sideband::Mmap(_))) {
        return;
    }
    reader.add(pid, 1, time_ns);
    for event in events {
        match event {
            // As by an exec, whatever was mapped is not any more.
            Sideband::Comm(comm) if comm.tid == pid => {
                reader.write_event(Sideband::Comm(Comm { exec: true, ..comm }));
            }
            event => reader.write_event(event),
        }
    }
    reader.add(pid, n_threads, time_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What was told, in one word each.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Follows for Told {
        fn add(&mut self, pid: u32, n_threads: u32, _time_ns: u64) {
            self.0.push(format!("add {pid} {n_threads}"));
        }

        fn write_event(&mut self, event: Sideband) {
            self.0.push(match event {
                Sideband::Comm(comm) => format!("comm {} {}", comm.tid, comm.exec),
                Sideband::Fork(_) => "thread".to_owned(),
                Sideband::Mmap(mmap) if mmap.path.ends_with(b"libc.so.6") => "libc".to_owned(),
                _ => "other".to_owned(),
            });
        }
    }

    /// Check that each process is due once after each loss, and none before the first.
    #[test]
    fn each_process_is_described_once_a_loss() {
        let mut amends = Amends::default();
        amends.note(0);
        assert!(!amends.are_due(1));
        for n_lost in [5, 6] {
            amends.note(n_lost);
            assert!(amends.are_due(1) && amends.are_due(2) && !amends.are_due(1));
            amends.note(n_lost);
            assert!(!amends.are_due(2), "nothing more was lost");
        }
    }

    /// Check that a process is described as if it had just executed its program, with what it has mapped and its threads;
    /// and that of one that is no more, or has nothing mapped, nothing is said.
    #[test]
    fn a_process_is_described_as_it_is() {
        let own = std::process::id();
        let mut told = Told::default();
        describe_anew(&mut told, own);
        assert_eq!(told.0[..2], [format!("add {own} 1"), format!("comm {own} true")]);
        assert!(told.0.contains(&"libc".to_owned()), "{:?}", told.0);
        assert!(told.0.last().is_some_and(|last| last.starts_with(&format!("add {own} "))), "{:?}", told.0);
        // 2 is the parent of the kernel's threads, where there is such a process.
        for other in [2, u32::MAX] {
            let mut told = Told::default();
            describe_anew(&mut told, other);
            assert!(told.0.is_empty(), "{other}: {:?}", told.0);
        }
    }
}
