//! Process events for what existed before the recording, from `/proc`.

use crate::note::Note;
use crate::parts_control::PartsControl;
use crate::proc::{
    MapsEntry, MemoryReads, cgroup_of, effective_uid, is_gone, is_kernel_thread, parse_maps, start_ticks, thread_comm,
    thread_runs, threads,
};
use crate::share::Credit;
use crate::sideband::{Known, RunningThreads, Seen, Tracker};
use crate::sys::{monotonic_ns, thread_cpu_ns};
use fpprof_recording::model::{Cgroup, Comm, Exit, FileIdentity, Fork, Mmap, Sample, Sideband};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A reader that follows processes and writes their events.
pub(crate) trait Follows {
    /// Adds an existing process. If all of its mappings are known, they follow as events.
    fn add(&mut self, pid: u32, seen: &Seen);
    /// Writes an event.
    fn write_event(&mut self, event: Sideband);
    /// The tracked processes, and those due to be described.
    fn followed(&mut self) -> (&Tracker, &mut Resync);
}

/// Processes that existed when the recording began, unless they are known by other means.
///
/// Processes that are sampled before their turn are described by way of [`Resync`].
#[derive(Debug, Default)]
pub(crate) struct Existing {
    pids: Vec<u32>,
    n_unreadable: u64,
}

impl Existing {
    pub(crate) fn new(pids: impl IntoIterator<Item = u32>) -> Self {
        Self { pids: pids.into_iter().collect(), n_unreadable: 0 }
    }

    /// Whether all have been described.
    pub(crate) fn is_done(&self) -> bool {
        self.pids.is_empty()
    }

    /// Adds and describes some of them until `limit` has passed, at least one, as of `time_ns` or as of now. All
    /// samples up to that time must have been read. Starts with the newest processes, which are the most likely to be
    /// active.
    pub(crate) fn describe(&mut self, reader: &mut impl Follows, time_ns: Option<u64>, limit: Duration) {
        let begun = Instant::now();
        while let Some(pid) = self.pids.pop() {
            if reader.followed().0.known_of(pid) != Known::Nothing {
                continue;
            }
            if let Ok(description) = synthesize(pid, time_ns, &reader.followed().1.memory) {
                description.write_to(reader, pid);
            } else {
                let seen = undescribed(pid);
                // All its events count: it may have executed a program and ended since the recording began.
                let since_ns = if reader.followed().0.follows_all() { 0 } else { seen.since_ns };
                reader.add(pid, &Seen { since_ns, ..seen });
                self.n_unreadable += 1;
            }
            if begun.elapsed() >= limit {
                break;
            }
        }
    }

    /// Reports how many could not be described.
    pub(crate) fn note(&self) -> Option<Note> {
        (self.n_unreadable > 0).then_some(Note::ProcessesUnreadable(self.n_unreadable))
    }
}

/// A process whose mappings are unknown.
pub(crate) fn undescribed(pid: u32) -> Seen {
    let since_ns = monotonic_ns();
    Seen { since_ns, threads: running_threads(pid), ..Seen::default() }
}

/// How to describe a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Anew, as from now on.
    Anew(u32),
    /// As from the time of a sample, since no event reported what it had mapped by then. Only if something is still
    /// mapped at the sampled instruction: the process may have executed another program since.
    Sampled { pid: u32, time_ns: u64, ip: Option<u64> },
}

impl Due {
    /// For a process that runs the sampled code.
    pub(crate) fn sampled(pid: u32, sample: &Sample) -> Self {
        let ip = sample.user_regs.map(|regs| regs.ip()).or_else(|| sample.user_fp.first().map(|leaf| leaf.address));
        Self::Sampled { pid, time_ns: sample.time_ns, ip }
    }
}

/// Decides which processes are described when they are sampled.
///
/// These are processes whose events may have been lost or left out: they are described when they are next sampled,
/// since most processes with events never are. And processes whose mappings no event reported.
///
/// Describing one user's processes again takes at most a fraction of the time, one part in [`SHARE`].
#[derive(Debug)]
pub(crate) struct Resync {
    memory: MemoryReads,
    /// Reports which events are dropped after they were recorded.
    parts_control: Option<Arc<PartsControl>>,
    n_lost: u64,
    /// Whether events may have been missed since the last [`Resync::note`] without being counted.
    has_missed: bool,
    /// When the last loss was noted, and whether processes that are gone were looked for since; when they were.
    lost_ns: u64,
    is_gone_due: bool,
    looked_ns: u64,
    /// Processes described since the last loss; `None` before the first.
    described: Option<FxHashSet<u32>>,
    /// Undescribed processes that were tried since the last [`Resync::note`].
    tried: FxHashSet<u32>,
    /// Undescribed processes that could not be described when they were last tried.
    failed: FxHashSet<u32>,
    /// When each process that needs describing repeatedly was last described, if less than [`AGAIN_NS`] ago.
    again: FxHashMap<u32, u64>,
    /// Time budget for describing again.
    credit: Credit,
    /// Samples of processes whose mappings are not all known.
    n_unclear: u64,
}

/// The fraction of the time that may be spent on a user's processes, and the initial burst.
const SHARE: u64 = 20;
const AT_ONCE_NS: u64 = 50_000_000;
/// Shortest time between descriptions of a process whose mappings are not all known.
const AGAIN_NS: u64 = 100_000_000;
/// Shortest time between looks for processes whose end was lost.
const GONE_NS: u64 = 10_000_000_000;
/// The most processes noted that could not be described; of more, all are forgotten.
const MAX_FAILED: usize = 4096;
/// Minimum charge for each mapping or thread that is described, so that at most 5,000 per second are written for a
/// user.
const EVENT_NS: u64 = 10_000;

impl Resync {
    pub(crate) fn new(memory: MemoryReads, parts_control: Option<Arc<PartsControl>>) -> Self {
        let credit = Credit::new(AT_ONCE_NS, SHARE);
        let (tried, failed, again) = Default::default();
        let (n_lost, has_missed, lost_ns, is_gone_due, looked_ns, n_unclear) = Default::default();
        Self {
            memory,
            parts_control,
            n_lost,
            has_missed,
            lost_ns,
            is_gone_due,
            looked_ns,
            described: None,
            tried,
            failed,
            again,
            credit,
            n_unclear,
        }
    }

    /// Notes that events may have been missed which nothing counts: those of a CPU before its events were opened.
    pub(crate) fn missed(&mut self) {
        self.has_missed = true;
    }

    /// Notes the number of events lost so far; those that were dropped later are added. Call it once for each read of the
    /// samples.
    pub(crate) fn note(&mut self, n_lost: u64) {
        let n_lost = n_lost.saturating_add(self.parts_control.as_ref().map_or(0, |control| control.n_dropped()));
        let now_ns = monotonic_ns();
        self.tried.clear();
        self.again.retain(|_, described_ns| now_ns.saturating_sub(*described_ns) < AGAIN_NS);
        self.credit.forget(now_ns);
        let has_missed = std::mem::take(&mut self.has_missed);
        if n_lost > std::mem::replace(&mut self.n_lost, n_lost) || has_missed {
            self.described = Some(FxHashSet::default());
            (self.lost_ns, self.is_gone_due) = (now_ns, true);
        }
    }

    /// Has the tracker end processes whose end was lost: after a loss, and once more some time later.
    pub(crate) fn end_gone(&mut self, tracker: &mut Tracker) {
        let now_ns = monotonic_ns();
        if self.is_gone_due && now_ns.saturating_sub(self.looked_ns) >= GONE_NS {
            // What ended just before the loss may not have been waited for yet.
            (self.is_gone_due, self.looked_ns) = (now_ns.saturating_sub(self.lost_ns) < GONE_NS, now_ns);
            tracker.end_gone(now_ns, is_gone);
        }
    }

    /// Whether the process of a sample has to be described before the sample is written; it counts as described from
    /// now on. For `program_ns`, see [`Tracker::program_ns`].
    pub(crate) fn due(&mut self, sample: &Sample, known: Known, program_ns: u64) -> Option<Due> {
        let pid = sample.pid;
        self.n_unclear += u64::from(known == Known::Some);
        let was_there = program_ns <= self.lost_ns;
        let is_unclear = was_there && self.described.as_ref().is_some_and(|described| !described.contains(&pid));
        let may_try = || !self.failed.contains(&pid) || self.has_credit(pid);
        let due = if known == Known::Nothing && may_try() && self.tried.insert(pid) {
            Due::sampled(pid, sample)
        } else if (is_unclear || (known == Known::Some && !self.again.contains_key(&pid))) && self.has_credit(pid) {
            self.again.insert(pid, monotonic_ns());
            Due::Anew(pid)
        } else {
            return None;
        };
        self.described.iter_mut().for_each(|described| _ = described.insert(pid));
        Some(due)
    }

    /// Whether there is time to describe the process of a user again.
    pub(crate) fn has_credit(&self, pid: u32) -> bool {
        // Usually no user owes anything.
        self.credit.is_whole() || self.credit.has(user(pid), monotonic_ns())
    }

    /// Charges the CPU time that it took to describe a process with `n` events.
    pub(crate) fn charge(&mut self, pid: u32, cpu_ns: u64, n: usize) {
        let cost_ns = cpu_ns.saturating_add((n as u64).saturating_mul(EVENT_NS));
        self.credit.spend(user(pid), monotonic_ns(), cost_ns);
    }

    /// Notes whether a process could be described. If not, its next description needs credit: it could cause one at each
    /// read.
    fn note_outcome(&mut self, pid: u32, is_described: bool) {
        if is_described {
            self.failed.remove(&pid);
        } else if self.failed.len() < MAX_FAILED {
            self.failed.insert(pid);
        } else {
            self.failed.clear();
        }
    }

    /// Number of samples of processes whose mappings were not all known.
    pub(crate) fn n_unclear(&self) -> u64 {
        self.n_unclear
    }
}

/// The user of a process; processes that are gone share one pseudo-user.
fn user(pid: u32) -> u32 {
    effective_uid(pid).unwrap_or(u32::MAX)
}

/// Describes a process that is due. One that has ended, or has nothing mapped any more, is left alone; for a kernel
/// thread, only its existence is recorded, once.
pub(crate) fn describe_due(reader: &mut impl Follows, due: Due) {
    let (Due::Anew(pid) | Due::Sampled { pid, .. }) = due;
    let spent_ns = |resync: &Resync| thread_cpu_ns().saturating_add(resync.memory.cpu_ns());
    let before_ns = spent_ns(reader.followed().1);
    let described = describe_if_same(reader, pid, due);
    let (_, resync) = reader.followed();
    resync.charge(pid, spent_ns(resync).saturating_sub(before_ns), described.unwrap_or(0));
    resync.note_outcome(pid, described.is_some());
}

/// Describes an unknown process when it forks. The child may have executed a program before it can be described itself,
/// but until then it has what its parent has.
pub(crate) fn describe_parent(reader: &mut impl Follows, event: &Sideband) {
    let Sideband::Fork(Fork { time_ns, pid, parent_pid, .. }) = *event else { return };
    // As of just before: the child inherits what was recorded by then.
    let time_ns = time_ns.saturating_sub(1);
    let is_unknown = |tracker: &Tracker| tracker.follows(parent_pid) && tracker.known_of(parent_pid) == Known::Nothing;
    let (tracker, resync) = reader.followed();
    if pid != parent_pid && is_unknown(tracker) && resync.tried.insert(parent_pid) {
        describe_due(reader, Due::Sampled { pid: parent_pid, time_ns, ip: None });
    }
}

/// Describes a due process if `/proc` still shows the process that was meant; returns the number of events.
fn describe_if_same(reader: &mut impl Follows, pid: u32, due: Due) -> Option<usize> {
    let (time_ns, ip) = match due {
        Due::Anew(_) => (None, None),
        Due::Sampled { time_ns, ip, .. } => (Some(time_ns), ip),
    };
    let is_anew = time_ns.is_none();
    let mut description = synthesize(pid, time_ns, &reader.followed().1.memory).ok()?;
    let mut mapped = description.events.iter().filter_map(|event| match event {
        Sideband::Mmap(mmap) => Some(mmap.start..mmap.start.saturating_add(mmap.len)),
        _ => None,
    });
    let is_described = match ip {
        Some(ip) => mapped.any(|range| range.contains(&ip)),
        // A kernel thread has no mappings, and must have been described to be recognised as one.
        None => mapped.next().is_some() || (!is_anew && is_kernel_thread(pid)),
    };
    if !is_described {
        return None;
    }
    description.seen.is_anew = is_anew;
    for event in &mut description.events {
        // As by an exec, earlier mappings are discarded: what is known of them is valid up to now.
        if let Sideband::Comm(comm) = event
            && comm.tid == pid
        {
            comm.exec = is_anew;
        }
    }
    let n = description.events.len();
    description.write_to(reader, pid);
    Some(n)
}

/// A process as shown by `/proc`.
struct Description {
    seen: Seen,
    /// Events for its names, threads, control group and mappings.
    events: Vec<Sideband>,
}

impl Description {
    fn write_to(self, reader: &mut impl Follows, pid: u32) {
        reader.add(pid, &self.seen);
        self.events.into_iter().for_each(|event| reader.write_event(event));
    }
}

/// The present state of a process, described as of `as_of_ns`, or as of now.
///
/// # Errors
/// If the process is gone or does not answer, or access is denied.
fn synthesize(pid: u32, as_of_ns: Option<u64>, memory: &MemoryReads) -> io::Result<Description> {
    let started = start_ticks(pid).ok_or(io::ErrorKind::NotFound)?;
    // What happens from now on is reported by events.
    let since_ns = monotonic_ns();
    let time_ns = as_of_ns.unwrap_or(since_ns);
    let (threads, maps) = threads_and_maps(pid, memory)?;
    let comm = thread_comm(pid, pid).unwrap_or_default();
    let mut events = vec![Sideband::Comm(Comm { time_ns, pid, tid: pid, comm, exec: false, start_ticks: started })];
    for &(tid, _) in threads.iter().filter(|&&(tid, _)| tid != pid) {
        events.push(Sideband::Fork(Fork { time_ns, pid, tid, parent_pid: pid, parent_tid: pid }));
        if let Some(comm) = thread_comm(pid, tid) {
            events.push(Sideband::Comm(Comm { time_ns, pid, tid, comm, exec: false, start_ticks: started }));
        }
    }
    let tid = threads.first().map_or(pid, |&(tid, _)| tid);
    events.extend(cgroup_of(pid, tid).map(|path| Sideband::Cgroup(Cgroup { time_ns, pid, path, ..Cgroup::default() })));
    events.extend(parse_maps(&maps).map(|entry| mapping(pid, time_ns, entry)));
    // The PID may have been reused meanwhile.
    if start_ticks(pid) != Some(started) {
        return Err(io::ErrorKind::NotFound.into());
    }
    if threads.iter().all(|&(tid, _)| tid != pid) {
        // The first thread has exited while others run, or nobody has waited for the process.
        events.push(Sideband::Exit(Exit { time_ns, pid, tid: pid }));
    }
    let described_ns = Some(as_of_ns.unwrap_or_else(monotonic_ns));
    Ok(Description { seen: Seen { since_ns, threads, described_ns, is_anew: false }, events })
}

/// The most attempts to read a process whose threads come and go.
const MAX_LOOKS: usize = 8;

/// The running threads of a process, each with a time at which it ran, and `/proc/PID/maps`; neither if none runs.
///
/// The maps are read through a running thread: one that has exited, as the first one may have, has none. If that thread
/// is gone meanwhile, everything is read again: a thread that executes a program takes the ID of the first.
///
/// # Errors
/// If the process is gone or does not answer, or access is denied.
fn threads_and_maps(pid: u32, memory: &MemoryReads) -> io::Result<(RunningThreads, Vec<u8>)> {
    let mut failed = io::ErrorKind::NotFound.into();
    for look in 0..MAX_LOOKS {
        let running = running_threads(pid);
        for &(tid, _) in &running {
            match memory.maps(pid, tid) {
                // A kernel thread has no mappings.
                Ok(maps) if !maps.is_empty() || thread_runs(pid, tid) => return Ok((running, maps)),
                Err(error) if !is_of_thread(&error) => return Err(error),
                Err(error) => failed = error,
                Ok(_) => {}
            }
        }
        if running.is_empty() && look > 0 {
            return Ok((running, Vec::new()));
        }
    }
    Err(failed)
}

/// Whether another thread of the process may be readable.
fn is_of_thread(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, TimedOut};
    !matches!(error.kind(), FileTooLarge | PermissionDenied | TimedOut)
}

/// The first thread comes last: if another thread executes a program meanwhile, it has the ID of the first by then.
fn running_threads(pid: u32) -> RunningThreads {
    let mut threads = threads(pid);
    threads.sort_by_key(|&tid| tid == pid);
    let timed = threads.into_iter().map(|tid| (tid, monotonic_ns()));
    timed.filter(|&(tid, _)| thread_runs(pid, tid)).collect()
}

fn mapping(pid: u32, time_ns: u64, entry: MapsEntry) -> Sideband {
    let identity = FileIdentity {
        dev_major: entry.dev_major,
        dev_minor: entry.dev_minor,
        inode: entry.inode,
        ..FileIdentity::default()
    };
    Sideband::Mmap(Mmap {
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
    })
}

#[cfg(test)]
mod tests;
