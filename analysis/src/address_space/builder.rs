//! From process events to a timeline: sort by time, then one sweep.

use super::files::FileTable;
use super::timeline::{Backing, CommIx, Edit, Life, Log, ProcessIx, SpaceKey, Timeline};
use crate::symbols::JitCodes;
use fpprof_recording::model::{Comm, Exit, Fork, Mmap, Sideband};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `PROT_EXEC`.
///
/// # Sources
/// `include/uapi/asm-generic/mman-common.h`.
const PROT_EXEC: u32 = 4;

/// A process event without its names, so that sorting moves little.
#[derive(Debug, Clone, Copy)]
enum Event {
    Fork(Fork),
    Comm { time_ns: u64, pid: u32, tid: u32, comm: CommIx, is_exec: bool, start_ticks: u64 },
    Map { time_ns: u64, pid: u32, tid: u32, start: u64, end: u64, executable: Option<Backing> },
    Exit(Exit),
}

impl Event {
    /// Order of time. What happens at the same time is ordered as a process would do it, so that the order in which
    /// events come does not matter.
    fn order(&self) -> (u64, u8, u32, u32, u64, u64) {
        match *self {
            Self::Fork(fork) => (fork.time_ns, 0, fork.pid, fork.tid, 0, 0),
            Self::Comm { time_ns, pid, tid, is_exec, comm, .. } => {
                (time_ns, 1, pid, tid, u64::from(!is_exec), u64::from(comm.0))
            }
            Self::Map { time_ns, pid, tid, start, end, .. } => (time_ns, 2, pid, tid, start, end),
            Self::Exit(exit) => (exit.time_ns, 3, exit.pid, exit.tid, 0, 0),
        }
    }
}

/// What a pid is at the present point of the sweep.
#[derive(Debug)]
struct Live {
    process: ProcessIx,
    log: u32,
    start_ticks: u64,
    /// The first thread ended: should it act again, the pid is used again and its fork was lost.
    is_leader_gone: bool,
    /// It executed a program and has nothing mapped yet.
    is_fresh: bool,
    /// It was told to be at its end while it was fresh. The kernel says so when it takes a task's events away, since the
    /// program gives it other rights (setuid): then its mappings follow, or nothing is told of it any more.
    is_left: bool,
    /// Executable mappings, start to end. Shared with forked children until one of them changes.
    executable: Arc<BTreeMap<u64, u64>>,
}

/// Takes process events in any order, and makes a [`Timeline`] of them.
#[derive(Debug, Default)]
pub struct Builder {
    events: Vec<Event>,
    files: FileTable,
    comm_index: FxHashMap<Vec<u8>, CommIx>,
    live: FxHashMap<u32, Live>,
    timeline: Timeline,
}

impl Builder {
    /// Takes an event in.
    pub fn add(&mut self, event: &Sideband) {
        match event {
            Sideband::Mmap(mmap) => self.add_mmap(mmap),
            Sideband::Comm(comm) => self.add_comm(comm),
            Sideband::Fork(fork) => self.events.push(Event::Fork(*fork)),
            Sideband::Exit(exit) => self.events.push(Event::Exit(*exit)),
            Sideband::Module(module) => self.timeline.embedded.push(module.clone()),
        }
    }

    /// The history that the events tell.
    #[must_use]
    pub fn finish(mut self) -> Timeline {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(Event::order);
        for event in events {
            match event {
                Event::Fork(fork) => self.fork(fork),
                Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks } => {
                    self.comm(time_ns, (pid, tid), comm, is_exec, start_ticks);
                }
                Event::Map { time_ns, pid, tid, start, end, executable } => {
                    self.map((pid, tid), Edit { time_ns, start, end, executable });
                }
                Event::Exit(exit) => self.exit(exit),
            }
        }
        self.timeline.files = self.files.into_files();
        self.timeline.jit_codes = Arc::new(JitCodes::read(&self.timeline.embedded));
        self.timeline
    }

    fn add_mmap(&mut self, mmap: &Mmap) {
        let end = mmap.start.checked_add(mmap.len).filter(|&end| end > mmap.start);
        let Some(end) = end else {
            self.timeline.n_impossible = self.timeline.n_impossible.saturating_add(1);
            return;
        };
        let is_executable = mmap.prot & PROT_EXEC != 0;
        let executable = is_executable.then(|| Backing {
            file: self.files.intern(&mmap.path, mmap.identity, mmap.time_ns),
            file_offset: mmap.file_offset,
        });
        let Mmap { time_ns, pid, tid, start, .. } = *mmap;
        self.events.push(Event::Map { time_ns, pid, tid, start, end, executable });
    }

    fn add_comm(&mut self, event: &Comm) {
        let Comm { time_ns, pid, tid, ref comm, exec: is_exec, start_ticks } = *event;
        let comm = match self.comm_index.get(comm) {
            Some(&known) => known,
            None => {
                let new = CommIx(u32::try_from(self.timeline.comms.len()).unwrap_or(u32::MAX));
                self.timeline.comms.push(comm.clone());
                self.comm_index.insert(comm.clone(), new);
                new
            }
        };
        self.events.push(Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks });
    }

    fn fork(&mut self, fork: Fork) {
        if let Some(comm) = self.last_comm(fork.parent_tid).or_else(|| self.last_comm(fork.parent_pid)) {
            self.timeline.thread_comms.entry(fork.tid).or_default().push((fork.time_ns, comm));
        }
        if fork.parent_pid == fork.pid {
            return;
        }
        let parent = self.live.get(&fork.parent_pid).map(|parent| (parent.log, Arc::clone(&parent.executable)));
        let base = parent.as_ref().and_then(|&(log, _)| self.present_key(log));
        let executable = parent.map_or_else(Arc::default, |(_, executable)| executable);
        self.begin_process(fork.pid, fork.time_ns, base, executable, 0);
        let comm = self.last_comm(fork.tid);
        self.name_process(fork.pid, comm);
    }

    fn comm(&mut self, time_ns: u64, (pid, tid): (u32, u32), comm: CommIx, is_exec: bool, start_ticks: u64) {
        let is_other_process = self.live.get(&pid).is_none_or(|live| {
            let is_restarted = start_ticks != 0 && live.start_ticks != 0 && live.start_ticks != start_ticks;
            // An exec by a thread that is not the first ends the first one and takes its number: no reuse.
            is_restarted || (live.is_leader_gone && tid == pid && !is_exec)
        });
        if is_other_process {
            self.begin_process(pid, time_ns, None, Arc::default(), start_ticks);
        } else if is_exec {
            self.exec(pid, time_ns);
        }
        if let Some(live) = self.live.get_mut(&pid)
            && start_ticks != 0
        {
            live.start_ticks = start_ticks;
        }
        self.timeline.thread_comms.entry(tid).or_default().push((time_ns, comm));
        if tid == pid {
            self.name_process(pid, Some(comm));
        }
    }

    fn map(&mut self, (pid, tid): (u32, u32), edit: Edit) {
        if self.live.get(&pid).is_none_or(|live| live.is_leader_gone && tid == pid) {
            self.begin_process(pid, edit.time_ns, None, Arc::default(), 0);
        }
        let Some(live) = self.live.get_mut(&pid) else { return };
        live.is_fresh = false;
        if std::mem::take(&mut live.is_left) {
            self.timeline.n_left_by_exec = self.timeline.n_left_by_exec.saturating_sub(1);
        }
        let is_cut = overlaps(&live.executable, edit.start, edit.end);
        if !is_cut && edit.executable.is_none() {
            return;
        }
        let executable = Arc::make_mut(&mut live.executable);
        if is_cut {
            cut(executable, edit.start, edit.end);
        }
        if edit.executable.is_some() {
            executable.insert(edit.start, edit.end);
        }
        if let Some(log) = self.timeline.logs.get_mut(live.log as usize) {
            log.edits.push(edit);
        }
    }

    fn exit(&mut self, exit: Exit) {
        if exit.tid != exit.pid {
            return;
        }
        let Some(live) = self.live.get_mut(&exit.pid) else { return };
        if !live.is_fresh {
            live.is_leader_gone = true;
        } else if !std::mem::replace(&mut live.is_left, true) {
            self.timeline.n_left_by_exec = self.timeline.n_left_by_exec.saturating_add(1);
        }
    }

    fn begin_process(
        &mut self,
        pid: u32,
        from_ns: u64,
        base: Option<SpaceKey>,
        executable: Arc<BTreeMap<u64, u64>>,
        start_ticks: u64,
    ) {
        let process = ProcessIx(u32::try_from(self.timeline.process_pids.len()).unwrap_or(u32::MAX));
        self.timeline.process_pids.push(pid);
        self.timeline.process_comms.push(None);
        let log = self.begin_log(base);
        self.timeline.lives.entry(pid).or_default().push(Life { from_ns, process, log });
        let live =
            Live { process, log, start_ticks, is_leader_gone: false, is_fresh: false, is_left: false, executable };
        self.live.insert(pid, live);
    }

    fn exec(&mut self, pid: u32, from_ns: u64) {
        let log = self.begin_log(None);
        let Some(live) = self.live.get_mut(&pid) else { return };
        live.log = log;
        (live.is_leader_gone, live.is_fresh, live.is_left) = (false, true, false);
        live.executable = Arc::default();
        let life = Life { from_ns, process: live.process, log };
        self.timeline.lives.entry(pid).or_default().push(life);
    }

    fn begin_log(&mut self, base: Option<SpaceKey>) -> u32 {
        let log = u32::try_from(self.timeline.logs.len()).unwrap_or(u32::MAX);
        self.timeline.logs.push(Log { base, edits: Vec::new() });
        log
    }

    /// The state of a log after all its edits so far, by the log that really holds them.
    fn present_key(&self, log: u32) -> Option<SpaceKey> {
        let entry = self.timeline.logs.get(log as usize)?;
        match (entry.edits.is_empty(), entry.base) {
            (true, Some(base)) => Some(base),
            _ => Some(SpaceKey { log, edits: u32::try_from(entry.edits.len()).ok()? }),
        }
    }

    fn last_comm(&self, tid: u32) -> Option<CommIx> {
        self.timeline.thread_comms.get(&tid)?.last().map(|&(_, comm)| comm)
    }

    fn name_process(&mut self, pid: u32, comm: Option<CommIx>) {
        let process = self.live.get(&pid).map(|live| live.process.0 as usize);
        if let Some(name) = process.and_then(|process| self.timeline.process_comms.get_mut(process)) {
            *name = comm;
        }
    }
}

/// Whether any of `ranges` (start to end, not overlapping) overlaps start..end.
fn overlaps(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    ranges.range(..end).next_back().is_some_and(|(_, &last_end)| last_end > start)
}

/// Takes start..end out of `ranges`.
fn cut(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    while let Some((&hit_start, &hit_end)) = ranges.range(..end).next_back().filter(|&(_, &hit_end)| hit_end > start) {
        ranges.remove(&hit_start);
        if hit_end > end {
            ranges.insert(end, hit_end);
        }
        if hit_start < start {
            ranges.insert(hit_start, start);
        }
    }
}
