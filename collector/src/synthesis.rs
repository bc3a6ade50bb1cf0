//! Process events for what existed before the recording, from `/proc`.

use crate::note::Note;
use crate::parts_control::PartsControl;
use crate::proc::{
    MapsEntry, MemoryReads, cgroup_of, effective_uid, is_kernel_thread, parse_maps, start_ticks, thread_comm,
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
    /// Processes described since the last loss; `None` before the first.
    described: Option<FxHashSet<u32>>,
    /// Undescribed processes that were tried since the last [`Resync::note`].
    tried: FxHashSet<u32>,
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
/// Minimum charge for each mapping or thread that is described, so that at most 5,000 per second are written for a
/// user.
const EVENT_NS: u64 = 10_000;

impl Resync {
    pub(crate) fn new(memory: MemoryReads, parts_control: Option<Arc<PartsControl>>) -> Self {
        let credit = Credit::new(AT_ONCE_NS, SHARE);
        let (tried, again) = Default::default();
        Self { memory, parts_control, n_lost: 0, described: None, tried, again, credit, n_unclear: 0 }
    }

    /// Notes the number of events lost so far; those that were dropped later are added. Call it once for each read of the
    /// samples.
    pub(crate) fn note(&mut self, n_lost: u64) {
        let n_lost = n_lost.saturating_add(self.parts_control.as_ref().map_or(0, |control| control.n_dropped()));
        let now_ns = monotonic_ns();
        self.tried.clear();
        self.again.retain(|_, described_ns| now_ns.saturating_sub(*described_ns) < AGAIN_NS);
        self.credit.forget(now_ns);
        if n_lost > std::mem::replace(&mut self.n_lost, n_lost) {
            self.described = Some(FxHashSet::default());
        }
    }

    /// Whether the process of a sample has to be described before the sample is written; it counts as described from
    /// now on.
    pub(crate) fn due(&mut self, sample: &Sample, known: Known) -> Option<Due> {
        let pid = sample.pid;
        self.n_unclear += u64::from(known == Known::Some);
        let is_unclear = self.described.as_ref().is_some_and(|described| !described.contains(&pid));
        let due = if known == Known::Nothing && self.tried.insert(pid) {
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

    fn has_credit(&self, pid: u32) -> bool {
        // Usually no user owes anything.
        self.credit.is_whole() || self.credit.has(user(pid), monotonic_ns())
    }

    /// Charges the CPU time that it took to describe a process with `n` events.
    pub(crate) fn charge(&mut self, pid: u32, cpu_ns: u64, n: usize) {
        let cost_ns = cpu_ns.saturating_add((n as u64).saturating_mul(EVENT_NS));
        self.credit.spend(user(pid), monotonic_ns(), cost_ns);
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
    let n = describe_if_same(reader, pid, due).unwrap_or(0);
    let (_, resync) = reader.followed();
    resync.charge(pid, spent_ns(resync).saturating_sub(before_ns), n);
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
                Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::TimedOut) => {
                    return Err(error);
                }
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
mod tests {
    use super::*;
    use fpprof_recording::model::FpFrame;

    /// The recorded events, in one word each.
    struct Recorder {
        words: Vec<String>,
        /// The time they apply from.
        as_of_ns: u64,
        resync: Resync,
        tracker: Tracker,
    }

    impl Default for Recorder {
        fn default() -> Self {
            Self { words: Vec::new(), as_of_ns: 0, resync: resync(), tracker: Tracker::new(true) }
        }
    }

    impl Follows for Recorder {
        fn add(&mut self, pid: u32, seen: &Seen) {
            assert!(seen.described_ns.is_some());
            assert!(seen.threads.iter().any(|&(tid, ran_ns)| tid == pid && ran_ns >= seen.since_ns));
            self.words.push(format!("add {pid}"));
            self.tracker.add(pid, seen);
        }

        fn write_event(&mut self, event: Sideband) {
            if let Sideband::Mmap(mmap) = &event {
                self.as_of_ns = mmap.time_ns;
            }
            self.words.push(match event {
                Sideband::Comm(comm) => format!("comm {} {}", comm.tid, comm.exec),
                Sideband::Fork(_) => "thread".to_owned(),
                Sideband::Cgroup(_) => "group".to_owned(),
                Sideband::Mmap(mmap) if mmap.path.ends_with(b"libc.so.6") => "libc".to_owned(),
                _ => "other".to_owned(),
            });
        }

        fn followed(&mut self) -> (&Tracker, &mut Resync) {
            (&self.tracker, &mut self.resync)
        }
    }

    fn resync() -> Resync {
        Resync::new(MemoryReads::default(), None)
    }

    /// Check that each process is due once after each loss, and none before the first.
    #[test]
    fn each_process_is_described_once_a_loss() {
        let sample = |pid| Sample { pid, ..Sample::default() };
        let mut resync = resync();
        resync.note(0);
        assert_eq!(resync.due(&sample(1), Known::All), None);
        for n_lost in [5, 6] {
            resync.note(n_lost);
            let due = [1, 2, 1].map(|pid| resync.due(&sample(pid), Known::All));
            assert_eq!(due, [Some(Due::Anew(1)), Some(Due::Anew(2)), None]);
            resync.note(n_lost);
            assert_eq!(resync.due(&sample(2), Known::All), None, "nothing more was lost");
        }
        let control = Arc::new(PartsControl::default());
        resync.parts_control = Some(Arc::clone(&control));
        control.note_dropped(1);
        resync.note(6);
        let due = [2, 2].map(|pid| resync.due(&sample(pid), Known::All));
        assert_eq!(due, [Some(Due::Anew(2)), None], "events were dropped after they were recorded");
    }

    /// Check that a process is due, and counted, while not all of its mappings are known; but that its user's processes
    /// get only a fraction of the time.
    #[test]
    fn describing_again_is_bounded() {
        let sample = |pid| Sample { pid, ..Sample::default() };
        let (own, mut resync) = (std::process::id(), resync());
        for n in 0..3 {
            resync.note(0);
            assert_eq!(resync.due(&sample(own), Known::Some), Some(Due::Anew(own)));
            assert_eq!(resync.due(&sample(own), Known::Some), None, "it was a moment ago");
            assert_eq!(resync.due(&sample(own), Known::All), None);
            assert_eq!(resync.n_unclear(), 2 * n + 2);
            std::thread::sleep(Duration::from_nanos(AGAIN_NS));
        }
        resync.note(0);
        // The budget of an hour.
        resync.charge(own, 3600 * 1_000_000_000 / SHARE, 0);
        resync.note(1);
        for known in [Known::Some, Known::All] {
            assert_eq!(resync.due(&sample(own), known), None);
            assert_eq!(resync.due(&sample(u32::MAX), known), (known == Known::Some).then_some(Due::Anew(u32::MAX)));
        }
        assert_eq!(resync.n_unclear(), 8);
    }

    /// Check that an undescribed process is due with each read of the samples, as of its sample's time.
    #[test]
    fn sampled_processes_are_described() {
        let user_fp = vec![FpFrame { address: 0x1000, frame_address: 0 }];
        let sample = Sample { pid: 7, time_ns: 5, user_fp, ..Sample::default() };
        let due = Due::Sampled { pid: 7, time_ns: 5, ip: Some(0x1000) };
        let mut resync = resync();
        for _ in 0..2 {
            resync.note(0);
            assert_eq!(resync.due(&sample, Known::All), None);
            assert_eq!(resync.due(&sample, Known::Nothing), Some(due));
            assert_eq!(resync.due(&sample, Known::Nothing), None, "it was tried");
        }
    }

    /// Check that existing processes are described one by one, but not if something is known of them by then.
    #[test]
    fn existing_processes_have_their_turns() {
        let child = std::process::Command::new("sleep").arg("600").spawn();
        let (own, mut child) = (std::process::id(), child.unwrap());
        let mut existing = Existing::new([own, child.id(), own]);
        let mut recorder = Recorder::default();
        let adds = |recorder: &Recorder| {
            recorder.words.iter().filter(|word| word.starts_with("add")).cloned().collect::<Vec<_>>()
        };
        for expected in [vec![own], vec![own, child.id()], vec![own, child.id()]] {
            existing.describe(&mut recorder, Some(5), Duration::ZERO);
            assert_eq!(adds(&recorder), expected.iter().map(|pid| format!("add {pid}")).collect::<Vec<_>>());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(existing.is_done() && existing.note().is_none());
    }

    /// Check that a process is described as if it had just executed its program, with its mappings and threads; and
    /// that nothing is recorded for one that is gone, or has nothing mapped.
    #[test]
    fn a_process_is_described_as_it_is() {
        let own = std::process::id();
        let mut recorder = Recorder::default();
        describe_due(&mut recorder, Due::Anew(own));
        assert_eq!(recorder.words[..2], [format!("add {own}"), format!("comm {own} true")]);
        let has = |word: &str| recorder.words.iter().any(|event| event == word);
        assert!(has("libc") && has("group"), "{:?}", recorder.words);
        // PID 2 is the parent of all kernel threads, where there is such a process.
        for other in [2, u32::MAX] {
            let mut recorder = Recorder::default();
            describe_due(&mut recorder, Due::Anew(other));
            assert!(recorder.words.is_empty(), "{other}: {:?}", recorder.words);
        }
        if is_kernel_thread(2) {
            let mut recorder = Recorder::default();
            describe_due(&mut recorder, Due::Sampled { pid: 2, time_ns: 5, ip: None });
            assert_eq!(recorder.words, ["add 2", "comm 2 false", "group"]);
        }
    }

    /// Check that a process that no longer has the sampled code mapped is not described: it has executed another
    /// program.
    #[test]
    fn a_process_is_not_described_as_its_next_program() {
        let own = std::process::id();
        let here = own_code as fn() as usize as u64;
        for (ip, is_described) in [(None, true), (Some(here), true), (Some(0x1000), false)] {
            let mut recorder = Recorder::default();
            describe_due(&mut recorder, Due::Sampled { pid: own, time_ns: 5, ip });
            assert_eq!(!recorder.words.is_empty(), is_described, "{ip:x?}");
        }
    }

    fn own_code() {}

    /// Check that a process is described at its first fork, so that its child is known.
    #[test]
    fn parents_are_described_when_they_fork() {
        let own = std::process::id();
        let fork = |pid, parent_pid| Sideband::Fork(Fork { time_ns: 5, pid, tid: pid, parent_pid, parent_tid: own });
        let mut recorder = Recorder::default();
        describe_parent(&mut recorder, &fork(own, own));
        assert!(recorder.words.is_empty(), "a thread");
        let child = u32::MAX;
        for _ in 0..2 {
            describe_parent(&mut recorder, &fork(child, own));
        }
        assert_eq!(recorder.words.iter().filter(|word| word.starts_with("add")).count(), 1);
        assert_eq!(recorder.as_of_ns, 4, "before the fork, so that the child has it");
        recorder.tracker.apply(&fork(child, own));
        assert_eq!(recorder.tracker.known_of(child), Known::All);
    }
}
