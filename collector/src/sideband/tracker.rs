//! Which processes are profiled, and what they have mapped.

use fpprof_recording::MappingRanges;
use fpprof_recording::model::{Comm, Exit, Fork, Mmap, Sideband};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Follows the process events: which processes are profiled, and where they have something mapped.
///
/// Mappings of a process only grow until its next exec: nothing tells of `munmap`.
#[derive(Debug)]
pub(crate) struct Tracker {
    follows_all: bool,
    processes: FxHashMap<u32, Process>,
    /// Ended, but samples of theirs may still come.
    ended: Vec<u32>,
    none: MappingRanges,
}

/// Shared until one of the sharers changes it: a process that is forked only to exec copies nothing.
#[derive(Debug, Default, Clone)]
struct Process {
    ranges: Rc<MappingRanges>,
    /// Before the last exec, and when that was.
    before_exec: Option<(u64, Rc<MappingRanges>)>,
    n_threads: u32,
    /// An event before this is of an earlier process with the same number, or of its own making.
    since_ns: u64,
}

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Of a process that is not profiled.
    Skip,
}

impl Tracker {
    /// Everything, or only what [`Tracker::add`] names and its descendants.
    pub(crate) fn new(follows_all: bool) -> Self {
        Self { follows_all, processes: FxHashMap::default(), ended: Vec::new(), none: MappingRanges::new() }
    }

    /// Profiles a process that is known to exist at `since_ns` and has `n_threads`.
    pub(crate) fn add(&mut self, pid: u32, n_threads: u32, since_ns: u64) {
        let process = self.processes.entry(pid).or_default();
        (process.n_threads, process.since_ns) = (n_threads, since_ns);
    }

    /// Takes note of an event; says whether it is of a profiled process.
    pub(crate) fn apply(&mut self, event: &Sideband) -> Verdict {
        match event {
            Sideband::Mmap(mmap) => self.mmap(mmap),
            Sideband::Comm(comm) => self.comm(comm),
            Sideband::Fork(fork) => self.fork(fork),
            Sideband::Exit(exit) => self.exit(exit),
            Sideband::Module(_) => Verdict::Keep,
        }
    }

    /// Where the process had something mapped when it was sampled.
    pub(crate) fn ranges(&self, pid: u32, time_ns: u64) -> &MappingRanges {
        let Some(process) = self.processes.get(&pid) else { return &self.none };
        match &process.before_exec {
            Some((exec_ns, before)) if time_ns < *exec_ns => before,
            _ => &process.ranges,
        }
    }

    /// Forgets what no sample can need any more: call it when all samples up to the last event have been seen.
    pub(crate) fn forget_ended(&mut self) {
        for pid in self.ended.drain(..) {
            if self.processes.get(&pid).is_some_and(|process| process.n_threads == 0) {
                self.processes.remove(&pid);
            }
        }
    }

    fn known(&mut self, pid: u32) -> Option<&mut Process> {
        if self.follows_all {
            return Some(self.processes.entry(pid).or_insert_with(|| Process { n_threads: 1, ..Process::default() }));
        }
        self.processes.get_mut(&pid)
    }

    fn mmap(&mut self, mmap: &Mmap) -> Verdict {
        let Some(process) = self.known(mmap.pid) else { return Verdict::Skip };
        Rc::make_mut(&mut process.ranges).insert(mmap.start, mmap.start.saturating_add(mmap.len));
        Verdict::Keep
    }

    fn comm(&mut self, comm: &Comm) -> Verdict {
        let Some(process) = self.known(comm.pid) else { return Verdict::Skip };
        if comm.exec {
            process.before_exec = Some((comm.time_ns, std::mem::take(&mut process.ranges)));
            process.n_threads = 1;
        }
        Verdict::Keep
    }

    fn fork(&mut self, fork: &Fork) -> Verdict {
        let is_thread = fork.pid == fork.parent_pid;
        let Some(parent) = self.known(fork.parent_pid) else {
            // The number may have been that of a profiled process; but a command's own fork is no such case.
            let is_other = self.processes.get(&fork.pid).is_some_and(|process| process.since_ns < fork.time_ns);
            if !is_thread && is_other {
                self.processes.remove(&fork.pid);
            }
            return Verdict::Skip;
        };
        if is_thread {
            parent.n_threads = parent.n_threads.saturating_add(1);
        } else {
            let child = Process { n_threads: 1, since_ns: fork.time_ns, ..parent.clone() };
            self.processes.insert(fork.pid, child);
        }
        Verdict::Keep
    }

    fn exit(&mut self, exit: &Exit) -> Verdict {
        let Some(process) = self.known(exit.pid) else { return Verdict::Skip };
        process.n_threads = process.n_threads.saturating_sub(1);
        if process.n_threads == 0 {
            self.ended.push(exit.pid);
        }
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests;
