//! Which processes are profiled, and what they have mapped.

use super::allowance::is_range_only;
use fpprof_recording::MappingRanges;
use fpprof_recording::model::{Abi, Comm, Exit, FileIdentity, Fork, Mmap, Sample, Sideband};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Tracks process events: which processes are profiled, and where they have something mapped.
///
/// Mappings of a process only grow until its next exec: no event reports `munmap`.
#[derive(Debug)]
pub(crate) struct Tracker {
    follows_all: bool,
    processes: FxHashMap<u32, Process>,
    /// When processes ended; 0 if that was seen in `/proc`. The kernel reports the end before the process is completely
    /// gone, so samples may still come.
    ended: Vec<(u64, u32)>,
    /// What each PID had mapped before an exec, before it was reused, or before `/proc` was read, and until when, in
    /// ascending order. A program that starts processes quickly creates many between two reads of the samples.
    former: FxHashMap<u32, Vec<Former>>,
    /// Time up to which samples had been read at the last call.
    seen_ns: u64,
    /// Processes whose events ended at an exec.
    n_left_by_exec: u64,
    none: Mappings,
}

/// What a PID had mapped.
#[derive(Debug)]
struct Former {
    /// See [`Process::described_ns`].
    described_ns: Option<u64>,
    /// Valid up to this time.
    until_ns: u64,
    mapped: Mappings,
}

/// Where a process has something mapped. Shared until one of the sharers changes it: a process that is forked only to
/// exec copies nothing.
#[derive(Debug, Clone, Default)]
struct Mappings {
    all: Arc<MappingRanges>,
    /// The ranges that contain, or contained, code.
    code: Arc<MappingRanges>,
}

#[derive(Debug, Default)]
struct Process {
    /// 0 if no fork event reported it.
    parent: u32,
    mapped: Mappings,
    /// The last mappings that were written, none of which overlaps another; [`MAX_LATEST`] at most.
    latest: Vec<Mapped>,
    /// Not everything it has mapped was reported, or there are more ranges than are kept apart: see [`MAX_RANGES`].
    has_missed: bool,
    /// Threads known to run, each with a time at which it did: from `/proc` and from fork events, less those that
    /// exited later. A count would not do: `/proc` may be read before or after an event that is yet to come, so the
    /// same fork or exit can be seen twice, and a thread can reuse the ID of one whose exit is yet to come.
    threads: FxHashMap<u32, u64>,
    /// A time at which the process existed, before `/proc` was read. An event up to this is of an earlier process with
    /// the same PID, or `/proc` already showed its effect.
    since_ns: u64,
    /// Time from which on everything it has mapped is known; `None` while it is not.
    described_ns: Option<u64>,
    /// When it executed its program, or `/proc` was read; its parent's time if it has done neither since its fork.
    program_ns: u64,
    exec: Exec,
    /// What `/proc` last showed replaces all earlier mappings, as after an exec.
    is_anew: bool,
}

/// Knowledge of a process's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// `/proc` has to be read before its stacks are scrubbed.
    Nothing,
    /// Some were not reported, or can no longer be distinguished from the gaps between them.
    Some,
    All,
}

/// The most ranges kept apart for a process: beyond that the nearest are joined, and the process has to be described
/// again. A process has 65,530 mappings at most (`vm.max_map_count`), but these include mappings that were unmapped.
const MAX_RANGES: usize = 4096;
/// How many recent mappings of a process are compared to the next.
const MAX_LATEST: usize = 4;
/// The most ancestors looked for.
const MAX_ANCESTORS: usize = 8;

/// A mapping, without its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapped {
    /// Start, length and offset in the file.
    place: (u64, u64, u64),
    /// Protection and flags.
    how: (u32, u32),
    identity: FileIdentity,
    /// Hash of its path.
    hash: u64,
}

impl Mapped {
    fn of(mmap: &Mmap) -> Self {
        Self {
            place: (mmap.start, mmap.len, mmap.file_offset),
            how: (mmap.prot, mmap.flags),
            identity: mmap.identity,
            hash: FxBuildHasher.hash_one(&mmap.path),
        }
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        let (own_start, len, _) = self.place;
        own_start < end && start < own_start.saturating_add(len)
    }
}

/// How far a process is in executing its last program.
///
/// A task's own events are removed when it executes a program that gives it other rights (setuid): all other events
/// report an exit right after the exec, before the program has anything mapped, and then its mappings. The removed
/// events report nothing more. So a process that is killed at that moment stays known until its PID is reused.
///
/// # Sources
/// `begin_new_exec` in `fs/exec.c` and `perf_event_exit_task` in `kernel/events/core.c` of Linux 6.18.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Exec {
    /// Runs the program.
    #[default]
    Done,
    /// Has nothing mapped yet.
    Fresh,
    /// Has nothing mapped yet, and was reported to have exited.
    Left,
}

/// Threads that had not begun to exit, each with a time at which it had not.
pub(crate) type RunningThreads = Vec<(u32, u64)>;

/// What `/proc` showed of an existing process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// A time at which the process existed, before `/proc` was read. 0 if its mappings were not read: then all its
    /// events count.
    pub(crate) since_ns: u64,
    pub(crate) threads: RunningThreads,
    /// Time from which on it is taken to have mapped what was read, which follows as events. `None` if that could not
    /// be read.
    pub(crate) described_ns: Option<u64>,
    /// Earlier mappings no longer count, because events about them may have been lost.
    pub(crate) is_anew: bool,
}

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// A mapping without code where no code was, or a repeated mapping: need not be written, since every address still
    /// resolves as before.
    Pass,
    /// An event of a process that is not profiled.
    Skip,
}

impl Tracker {
    /// Tracks everything, or only what [`Tracker::add`] names and its descendants.
    pub(crate) fn new(follows_all: bool) -> Self {
        Self {
            follows_all,
            processes: FxHashMap::default(),
            ended: Vec::new(),
            former: FxHashMap::default(),
            seen_ns: 0,
            n_left_by_exec: 0,
            none: Mappings::default(),
        }
    }

    /// Starts profiling an existing process.
    pub(crate) fn add(&mut self, pid: u32, seen: &Seen) {
        let process = self.processes.entry(pid).or_default();
        let described_ns = process.described_ns;
        let former = (seen.is_anew || (seen.described_ns.is_some() && described_ns.is_none()))
            .then(|| Mappings { all: std::mem::take(&mut process.mapped.all), code: Arc::clone(&process.mapped.code) });
        process.latest.clear();
        process.has_missed = false;
        process.is_anew = seen.is_anew;
        if seen.is_anew {
            process.mapped.code = Arc::default();
        }
        process.threads = seen.threads.iter().copied().collect();
        (process.since_ns, process.described_ns) = (seen.since_ns, seen.described_ns);
        process.program_ns = seen.since_ns;
        if process.threads.is_empty() {
            self.ended.push((0, pid));
        }
        if let Some(mapped) = former.filter(|_| described_ns.is_some()) {
            self.keep(pid, Former { described_ns, until_ns: seen.since_ns, mapped });
        }
    }

    /// Applies an event; returns what to do with it.
    pub(crate) fn apply(&mut self, event: &Sideband) -> Verdict {
        match event {
            Sideband::Mmap(mmap) => self.mmap(mmap),
            Sideband::Comm(comm) => self.comm(comm),
            Sideband::Fork(fork) => self.fork(fork),
            Sideband::Exit(exit) => self.exit(exit),
            Sideband::Cgroup(_) | Sideband::Module(_) => Verdict::Keep,
        }
    }

    /// Where words of a sample's stack may point to besides that stack: anything that its process had mapped. For
    /// 32-bit code, only where there was code: nearly any four bytes point into a mapping of a 32-bit process with many
    /// mappings.
    pub(crate) fn ranges(&self, sample: &Sample) -> &Arc<MappingRanges> {
        let mapped = match (
            self.former.get(&sample.pid).and_then(|former| former_at(former, sample.time_ns)),
            self.processes.get(&sample.pid),
        ) {
            (Some(former), _) => &former.mapped,
            (None, Some(process)) => &process.mapped,
            (None, None) => &self.none,
        };
        if sample.user_regs.is_some_and(|regs| regs.abi == Abi::Bits32) { &mapped.code } else { &mapped.all }
    }

    /// Forgets what no sample can need any more: call it when all samples up to `cut_ns` have been read.
    pub(crate) fn forget_ended(&mut self, cut_ns: u64) {
        // A sample may be a little behind the events: what has ended since the last call is kept until the next one.
        let seen_ns = std::mem::replace(&mut self.seen_ns, cut_ns);
        self.former.retain(|_, former| {
            former.retain(|former| former.until_ns > seen_ns);
            !former.is_empty()
        });
        for (_, pid) in self.ended.extract_if(.., |(ended_ns, _)| *ended_ns <= seen_ns) {
            if self.processes.get(&pid).is_some_and(|process| process.threads.is_empty()) {
                self.processes.remove(&pid);
            }
        }
    }

    /// Processes without further events since they executed a program with other rights.
    pub(crate) fn n_left_by_exec(&self) -> u64 {
        self.n_left_by_exec
    }

    /// Whether all processes are profiled.
    pub(crate) fn follows_all(&self) -> bool {
        self.follows_all
    }

    /// Whether the process is profiled, as far as known.
    pub(crate) fn follows(&self, pid: u32) -> bool {
        self.follows_all || self.knows(pid)
    }

    /// Whether anything is known about the process.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// How much is known of the process's mappings.
    pub(crate) fn known_of(&self, pid: u32) -> Known {
        match self.processes.get(&pid).filter(|process| process.described_ns.is_some()) {
            None => Known::Nothing,
            Some(process) if process.has_missed => Known::Some,
            Some(_) => Known::All,
        }
    }

    /// Since when nothing of what a process has mapped can have been lost, if no event was lost since then.
    pub(crate) fn program_ns(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |process| process.program_ns)
    }

    /// The parent of a process, the parent of that one, and so on, as far as fork events reported them.
    pub(crate) fn ancestors(&self, pid: u32) -> Vec<u32> {
        let parent = |pid: &u32| self.processes.get(pid).map(|process| process.parent).filter(|&parent| parent != 0);
        std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS).collect()
    }

    /// Ends processes that existed before `now_ns` and are gone, though no event said so.
    pub(crate) fn end_gone(&mut self, now_ns: u64, is_gone: impl Fn(u32) -> bool) {
        for (&pid, process) in &mut self.processes {
            if !process.threads.is_empty() && process.since_ns < now_ns && is_gone(pid) {
                process.threads.clear();
                self.ended.push((now_ns, pid));
            }
        }
    }

    /// A profiled process. One that no event has reported yet has at least its first thread.
    fn known(&mut self, pid: u32) -> Option<&mut Process> {
        known(&mut self.processes, self.follows_all, pid)
    }

    fn mmap(&mut self, mmap: &Mmap) -> Verdict {
        let end = mmap.start.saturating_add(mmap.len);
        let Some(process) = known(&mut self.processes, self.follows_all, mmap.pid) else { return Verdict::Skip };
        let is_code = mmap.prot & libc::PROT_EXEC.cast_unsigned() != 0;
        let was_code = process.mapped.code.overlaps(mmap.start, end);
        let is_new = mmap.synthesized || mmap.time_ns > process.since_ns;
        let mut is_full = false;
        if is_new {
            is_full = add_range(&mut process.mapped.all, mmap.start, end);
        } else if let Some(former) =
            self.former.get_mut(&mmap.pid).and_then(|all| all.iter_mut().find(|former| mmap.time_ns < former.until_ns))
        {
            // Already shown by `/proc`, but valid for earlier samples.
            add_range(&mut former.mapped.all, mmap.start, end);
            if is_code {
                add_range(&mut former.mapped.code, mmap.start, end);
            }
        }
        if is_code {
            is_full |= add_range(&mut process.mapped.code, mmap.start, end);
        } else if was_code && is_new {
            Arc::make_mut(&mut process.mapped.code).remove(mmap.start, end);
        }
        process.has_missed |= is_new && !mmap.synthesized && (is_full || is_range_only(mmap));
        // The first mappings from `/proc` are all written: what was there before is unknown.
        let is_of_use = is_code || was_code || (mmap.synthesized && !process.is_anew);
        // A repeated mapping, as by a program that loads and unloads a library endlessly.
        let mapped = Mapped::of(mmap);
        let is_as_before = !mmap.synthesized && process.latest.contains(&mapped);
        if is_of_use && !is_as_before {
            process.latest.retain(|latest| !latest.overlaps(mmap.start, end));
            if process.latest.len() >= MAX_LATEST {
                process.latest.remove(0);
            }
            process.latest.push(mapped);
        }
        if std::mem::take(&mut process.exec) == Exec::Left {
            self.n_left_by_exec = self.n_left_by_exec.saturating_sub(1);
        }
        if is_of_use && !is_as_before { Verdict::Keep } else { Verdict::Pass }
    }

    fn comm(&mut self, comm: &Comm) -> Verdict {
        let Some(process) = self.known(comm.pid) else { return Verdict::Skip };
        if comm.exec && comm.time_ns <= process.since_ns {
            self.replace_former(comm.pid, comm.time_ns, Some(comm.time_ns), Mappings::default());
        } else if comm.exec {
            process.threads = FxHashMap::from_iter([(comm.pid, comm.time_ns)]);
            process.exec = Exec::Fresh;
            process.program_ns = comm.time_ns;
            let described_ns = process.described_ns.replace(comm.time_ns);
            process.latest.clear();
            process.has_missed = false;
            let mapped = std::mem::take(&mut process.mapped);
            self.keep(comm.pid, Former { described_ns, until_ns: comm.time_ns, mapped });
        }
        Verdict::Keep
    }

    fn fork(&mut self, fork: &Fork) -> Verdict {
        let is_thread = fork.pid == fork.parent_pid;
        let Some(parent) = known(&mut self.processes, self.follows_all, fork.parent_pid) else {
            // The PID may have been that of a profiled process; a command's own fork is no such case.
            let is_other = self.processes.get(&fork.pid).is_some_and(|process| process.since_ns < fork.time_ns);
            if !is_thread && is_other {
                self.replace(fork.pid, fork.time_ns, None);
            }
            return Verdict::Skip;
        };
        if is_thread {
            if fork.time_ns > parent.since_ns {
                parent.threads.insert(fork.tid, fork.time_ns);
            }
            return Verdict::Keep;
        }
        let former = self.former.get(&fork.parent_pid).map_or(&[][..], Vec::as_slice);
        let (mapped, is_known, is_exact) = parent.at_fork(former, fork.time_ns);
        let child = Process {
            parent: fork.parent_pid,
            mapped,
            latest: parent.latest.clone(),
            has_missed: parent.has_missed || !is_exact,
            threads: FxHashMap::from_iter([(fork.tid, fork.time_ns)]),
            since_ns: fork.time_ns,
            described_ns: is_known.then_some(fork.time_ns),
            program_ns: parent.program_ns,
            exec: Exec::Done,
            is_anew: false,
        };
        if self.processes.get(&fork.pid).is_none_or(|described| fork.time_ns > described.since_ns) {
            self.replace(fork.pid, fork.time_ns, Some(child));
        } else {
            self.replace_former(fork.pid, fork.time_ns, child.described_ns, child.mapped);
        }
        Verdict::Keep
    }

    /// From now on a PID means another process, or one that is not profiled.
    fn replace(&mut self, pid: u32, time_ns: u64, new: Option<Process>) {
        let old = match new {
            Some(new) => self.processes.insert(pid, new),
            None => self.processes.remove(&pid),
        };
        if let Some(Process { described_ns, mapped, .. }) = old {
            self.keep(pid, Former { described_ns, until_ns: time_ns, mapped });
        }
    }

    /// Records that from then on a PID meant another process or program, which `/proc` has already shown.
    fn replace_former(&mut self, pid: u32, time_ns: u64, described_ns: Option<u64>, mapped: Mappings) {
        let Some(all) = self.former.get_mut(&pid) else { return };
        if let Some((n, former)) = all.iter_mut().enumerate().find(|(_, former)| time_ns < former.until_ns) {
            let until_ns = std::mem::replace(&mut former.until_ns, time_ns);
            all.insert(n + 1, Former { described_ns, until_ns, mapped });
        }
    }

    /// Keeps what was mapped until now, for samples that are read later.
    fn keep(&mut self, pid: u32, former: Former) {
        self.former.entry(pid).or_default().push(former);
    }

    fn exit(&mut self, exit: &Exit) -> Verdict {
        let Some(process) = self.processes.get_mut(&exit.pid) else {
            return if self.follows_all { Verdict::Keep } else { Verdict::Skip };
        };
        if process.threads.get(&exit.tid).is_none_or(|&ran_ns| exit.time_ns < ran_ns) {
            return Verdict::Keep;
        }
        if process.exec != Exec::Done && exit.tid == exit.pid {
            let is_first = std::mem::replace(&mut process.exec, Exec::Left) == Exec::Fresh;
            self.n_left_by_exec = self.n_left_by_exec.saturating_add(u64::from(is_first));
            return Verdict::Keep;
        }
        process.threads.remove(&exit.tid);
        if process.threads.is_empty() {
            self.ended.push((exit.time_ns, exit.pid));
        }
        Verdict::Keep
    }
}

fn known(processes: &mut FxHashMap<u32, Process>, follows_all: bool, pid: u32) -> Option<&mut Process> {
    if follows_all {
        let unheard_of = || Process { threads: FxHashMap::from_iter([(pid, 0)]), ..Process::default() };
        return Some(processes.entry(pid).or_insert_with(unheard_of));
    }
    processes.get_mut(&pid)
}

impl Process {
    /// What a child has mapped at its fork; whether that is complete, and whether it is exact.
    ///
    /// `former` is what this process, the parent, had mapped. If `/proc` was read after the fork, that counts: the
    /// parent may have executed another program in between. If it was being read, the child has some of that and some
    /// of what was read.
    fn at_fork(&self, former: &[Former], fork_ns: u64) -> (Mappings, bool, bool) {
        let is_known = |described_ns: Option<u64>| described_ns.is_some_and(|described_ns| described_ns <= fork_ns);
        let is_being_read = self.described_ns.is_some_and(|described_ns| fork_ns < described_ns);
        if let Some(former) = former_at(former, fork_ns) {
            return (former.mapped.clone(), is_known(former.described_ns), false);
        }
        let mut mapped = self.mapped.clone();
        let is_before = |former: &&Former| former.until_ns == self.since_ns && former.described_ns.is_some();
        let before = former.last().filter(is_before).filter(|_| is_being_read);
        if let Some(Former { mapped: before, .. }) = before {
            before.all.iter().for_each(|(start, end)| _ = add_range(&mut mapped.all, start, end));
            before.code.iter().for_each(|(start, end)| _ = add_range(&mut mapped.code, start, end));
        }
        (mapped, is_known(self.described_ns) || before.is_some(), before.is_none())
    }
}

/// The earlier mappings, if they are valid at this time.
fn former_at(former: &[Former], time_ns: u64) -> Option<&Former> {
    former.iter().find(|former| time_ns < former.until_ns)
}

/// Adds a range; returns whether there were too many.
fn add_range(ranges: &mut Arc<MappingRanges>, start: u64, end: u64) -> bool {
    if ranges.covers(start, end) {
        return false;
    }
    let ranges = Arc::make_mut(ranges);
    ranges.insert(start, end);
    let is_full = ranges.len() > MAX_RANGES;
    if is_full {
        ranges.join_nearest(MAX_RANGES / 2);
    }
    is_full
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
