//! Builds a timeline from process events, in one sweep in order of time.

use super::event::Event;
use super::files::{Embedded, FileTable, SharedBytes};
use super::sampled::Sampled;
use super::timeline::{Backing, CgroupIx, CommIx, Edit, Lifetime, Log, ProcessIx, SpaceKey, Timeline};
use super::window::Window;
use crate::symbols::JitCodes;
use fpprof_recording::model::{Cgroup, Comm, Exit, Fork, Mmap, Sideband};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `PROT_EXEC`.
///
/// # Sources
/// `include/uapi/asm-generic/mman-common.h`.
const PROT_EXEC: u32 = 4;

/// Parents of kernel threads: the idle thread, which made `kthreadd`, and `kthreadd` itself.
///
/// # Sources
/// `rest_init` in `init/main.c` of Linux 6.18.
const MAKERS_OF_KERNEL_THREADS: [u32; 2] = [0, 2];

/// Events kept in [`Builder::of_recording`], 64 bytes each. With a recorder that handled a hundred thousand events a
/// second, the latest events were ten thousand behind.
const WINDOW_EVENTS: usize = 1 << 17;

/// Executable mappings by start address, with their end and backing.
type Ranges = BTreeMap<u64, (u64, Backing)>;

/// The state of a pid at the current point of the sweep.
#[derive(Debug)]
struct Live {
    process: ProcessIx,
    log: u32,
    start_ticks: u64,
    /// The first thread ended: if it acts again, the pid was reused and its fork was lost.
    is_leader_gone: bool,
    /// It has executed a program and has not mapped anything since.
    is_fresh: bool,
    /// It ended, according to the kernel, while it was fresh. The kernel reports that when it removes a task's perf
    /// events because the program gains privileges (setuid): either mappings follow, or no more events of the process.
    is_left: bool,
    /// See [`super::Place::may_be_of_kernel`].
    may_be_of_kernel: bool,
    /// Shared with forked children until one of them changes.
    executable: Arc<Ranges>,
}

/// Collects process events in any order, and builds a [`Timeline`].
#[derive(Debug)]
pub struct Builder {
    window: Window,
    /// `None` if the timeline must cover every moment.
    sampled: Option<Sampled>,
    files: FileTable,
    contents: SharedBytes,
    live: FxHashMap<u32, Live>,
    free_logs: Vec<u32>,
    timeline: Timeline,
}

impl Timeline {
    /// Builds the history of these events, which may come in any order.
    #[must_use]
    pub fn new(events: impl IntoIterator<Item = Sideband>) -> Self {
        let mut builder = Builder::default();
        for event in events {
            builder.add(&event);
        }
        builder.finish()
    }
}

/// Keeps all events until the last one has come.
impl Default for Builder {
    fn default() -> Self {
        Self::new(usize::MAX, None)
    }
}

impl Builder {
    /// For events that come nearly in order: keeps only a window of them, and only the history that samples need.
    #[must_use]
    pub fn of_recording(sampled: Sampled) -> Self {
        Self::new(WINDOW_EVENTS, Some(sampled))
    }

    pub(super) fn new(n_events: usize, mut sampled: Option<Sampled>) -> Self {
        sampled.iter_mut().for_each(Sampled::sort);
        Self {
            window: Window::new(n_events),
            sampled,
            files: FileTable::default(),
            contents: SharedBytes::default(),
            live: FxHashMap::default(),
            free_logs: Vec::new(),
            timeline: Timeline::default(),
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Sideband) {
        let event = match event {
            Sideband::Mmap(mmap) => self.map_event(mmap),
            Sideband::Comm(comm) => Some(self.comm_event(comm)),
            Sideband::Fork(fork) => Some(Event::Fork(*fork)),
            Sideband::Exit(exit) => Some(Event::Exit(*exit)),
            Sideband::Cgroup(Cgroup { time_ns, pid, path, environment }) => {
                let cgroup = CgroupIx(match environment.as_slice() {
                    [] => self.timeline.cgroups.intern(path),
                    environment => self.timeline.cgroups.intern(&[path, environment].join(&0)),
                });
                let has_environment = !environment.is_empty();
                Some(Event::Cgroup { time_ns: *time_ns, pid: *pid, cgroup, has_environment })
            }
            Sideband::Module(module) => {
                let bytes = self.contents.share(&module.bytes);
                let (path, identity) = (module.path.clone(), module.identity);
                self.timeline.embedded.push(Embedded { path, identity, bytes });
                None
            }
        };
        if let Some(event) = event.and_then(|event| self.window.push(event)) {
            self.apply(event);
        }
    }

    /// Builds the timeline.
    #[must_use]
    pub fn finish(self) -> Timeline {
        self.finish_in_order().unwrap_or_default()
    }

    /// The same; `None` if an event came later than the window allows.
    pub(crate) fn finish_in_order(mut self) -> Option<Timeline> {
        while let Some(event) = self.window.pop() {
            self.apply(event);
        }
        if self.window.is_too_small() {
            return None;
        }
        self.timeline.files = self.files.into_files();
        self.timeline.jit_codes =
            Arc::new(JitCodes::read(self.timeline.embedded.iter().map(|module| (&*module.path, &*module.bytes))));
        Some(self.timeline)
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Fork(fork) => self.fork(fork),
            Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks } => {
                self.comm(time_ns, (pid, tid), comm, is_exec, start_ticks);
            }
            Event::Map { time_ns, pid, tid, start, end, executable } => {
                self.map((pid, tid), Edit { time_ns, start, end, executable });
            }
            Event::Cgroup { time_ns, pid, cgroup, .. } => self.set_cgroup(pid, time_ns, Some(cgroup)),
            Event::Exit(exit) => self.exit(exit),
        }
    }

    fn map_event(&mut self, mmap: &Mmap) -> Option<Event> {
        let end = mmap.start.checked_add(mmap.len).filter(|&end| end > mmap.start);
        let Some(end) = end else {
            self.timeline.n_impossible = self.timeline.n_impossible.saturating_add(1);
            return None;
        };
        let is_executable = mmap.prot & PROT_EXEC != 0;
        let executable = is_executable.then(|| Backing {
            file: self.files.intern(&mmap.path, mmap.identity, mmap.time_ns),
            file_offset: mmap.file_offset,
        });
        let Mmap { time_ns, pid, tid, start, .. } = *mmap;
        Some(Event::Map { time_ns, pid, tid, start, end, executable })
    }

    fn comm_event(&mut self, event: &Comm) -> Event {
        let Comm { time_ns, pid, tid, ref comm, exec: is_exec, start_ticks } = *event;
        let comm = CommIx(self.timeline.comms.intern(comm));
        Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks }
    }

    fn fork(&mut self, fork: Fork) {
        if let Some(comm) = self.last_comm(fork.parent_tid).or_else(|| self.last_comm(fork.parent_pid)) {
            self.name_thread(fork.tid, fork.time_ns, comm);
        }
        if fork.parent_pid == fork.pid {
            return;
        }
        let parent = self.live.get(&fork.parent_pid);
        let may_be_of_kernel =
            parent.map_or(MAKERS_OF_KERNEL_THREADS.contains(&fork.parent_pid), |parent| parent.may_be_of_kernel);
        let base = parent.and_then(|parent| self.present_key(parent.log));
        let executable = parent.map_or_else(Arc::default, |parent| Arc::clone(&parent.executable));
        self.begin_process(fork.pid, fork.time_ns, base, executable, 0, may_be_of_kernel);
        let comm = self.last_comm(fork.tid);
        self.name_process(fork.pid, comm);
        self.set_cgroup(fork.pid, fork.time_ns, self.last_cgroup(fork.parent_pid));
    }

    fn comm(&mut self, time_ns: u64, (pid, tid): (u32, u32), comm: CommIx, is_exec: bool, start_ticks: u64) {
        let is_other_process = self.live.get(&pid).is_none_or(|live| {
            let is_restarted = start_ticks != 0 && live.start_ticks != 0 && live.start_ticks != start_ticks;
            // An exec by a thread other than the first ends the first one and takes its number: that is not a reuse.
            is_restarted || (live.is_leader_gone && tid == pid && !is_exec)
        });
        if is_other_process {
            self.begin_unforked(pid, time_ns, start_ticks, !is_exec);
        } else if is_exec {
            self.exec(pid, time_ns);
        }
        if let Some(live) = self.live.get_mut(&pid)
            && start_ticks != 0
        {
            live.start_ticks = start_ticks;
        }
        self.name_thread(tid, time_ns, comm);
        if tid == pid {
            self.name_process(pid, Some(comm));
        }
    }

    fn map(&mut self, (pid, tid): (u32, u32), edit: Edit) {
        if self.live.get(&pid).is_none_or(|live| live.is_leader_gone && tid == pid) {
            self.begin_unforked(pid, edit.time_ns, 0, false);
        }
        let Some(live) = self.live.get_mut(&pid) else { return };
        live.is_fresh = false;
        if std::mem::take(&mut live.may_be_of_kernel)
            && let Some(lifetime) = self.timeline.lifetimes.get_mut(&pid).and_then(|lifetimes| lifetimes.last_mut())
        {
            lifetime.may_be_of_kernel = false;
        }
        if std::mem::take(&mut live.is_left) {
            self.timeline.n_left_by_exec = self.timeline.n_left_by_exec.saturating_sub(1);
        }
        let range = live.executable.range(..edit.end).next_back().filter(|(_, (end, _))| *end > edit.start);
        let is_there = |executable| range == Some((&edit.start, &(edit.end, executable)));
        // `munmap` is not reported: a program that maps and unmaps the same range repeatedly changes nothing here.
        if edit.executable.map_or(range.is_none(), is_there) {
            return;
        }
        let is_cut = range.is_some();
        let executable = Arc::make_mut(&mut live.executable);
        if is_cut {
            cut(executable, edit.start, edit.end);
        }
        if let Some(backing) = edit.executable {
            executable.insert(edit.start, (edit.end, backing));
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

    /// Starts a process whose fork is not known.
    fn begin_unforked(&mut self, pid: u32, from_ns: u64, start_ticks: u64, may_be_of_kernel: bool) {
        if self.live.contains_key(&pid) {
            // The control group is that of an earlier process with this pid.
            self.set_cgroup(pid, from_ns, None);
        }
        self.begin_process(pid, from_ns, None, Arc::default(), start_ticks, may_be_of_kernel);
    }

    fn begin_process(
        &mut self,
        pid: u32,
        from_ns: u64,
        base: Option<SpaceKey>,
        executable: Arc<Ranges>,
        start_ticks: u64,
        may_be_of_kernel: bool,
    ) {
        let process = ProcessIx(u32::try_from(self.timeline.process_pids.len()).unwrap_or(u32::MAX));
        self.timeline.process_pids.push(pid);
        self.timeline.process_comms.push(None);
        let log = self.begin_log(pid, base);
        self.begin_lifetime(pid, Lifetime { from_ns, process, log, may_be_of_kernel });
        let live = Live {
            process,
            log,
            start_ticks,
            is_leader_gone: false,
            is_fresh: false,
            is_left: false,
            may_be_of_kernel,
            executable,
        };
        self.live.insert(pid, live);
    }

    fn exec(&mut self, pid: u32, from_ns: u64) {
        let log = self.begin_log(pid, None);
        let Some(live) = self.live.get_mut(&pid) else { return };
        live.log = log;
        (live.is_leader_gone, live.is_fresh, live.is_left) = (false, true, false);
        live.may_be_of_kernel = false;
        live.executable = Arc::default();
        let lifetime = Lifetime { from_ns, process: live.process, log, may_be_of_kernel: false };
        self.begin_lifetime(pid, lifetime);
    }

    /// Starts a lifetime of a pid, and drops the previous one if it has no samples.
    fn begin_lifetime(&mut self, pid: u32, lifetime: Lifetime) {
        let lifetimes = self.timeline.lifetimes.entry(pid).or_default();
        let is_needed = |last: &Lifetime| has_samples(self.sampled.as_ref(), pid, last.from_ns, lifetime.from_ns);
        let forgotten = lifetimes.pop_if(|last| !is_needed(last));
        lifetimes.push(lifetime);
        if let Some(forgotten) = forgotten {
            self.release(forgotten.log);
        }
    }

    fn begin_log(&mut self, pid: u32, base: Option<SpaceKey>) -> u32 {
        if let Some(base) = base.and_then(|base| self.timeline.logs.get_mut(base.log as usize)) {
            base.n_users = base.n_users.saturating_add(1);
        }
        let new = Log { pid, base, edits: Vec::new(), n_users: 1 };
        if let Some(free) = self.free_logs.pop()
            && let Some(log) = self.timeline.logs.get_mut(free as usize)
        {
            *log = new;
            return free;
        }
        self.timeline.logs.push(new);
        u32::try_from(self.timeline.logs.len()).unwrap_or(u32::MAX).saturating_sub(1)
    }

    /// Removes a user from a log. A log without users is freed, and so is its use of the log it was forked from.
    fn release(&mut self, log: u32) {
        let mut next = Some(log);
        while let Some(number) = next.take() {
            let Some(log) = self.timeline.logs.get_mut(number as usize) else { return };
            log.n_users = log.n_users.saturating_sub(1);
            if log.n_users == 0 {
                next = std::mem::take(log).base.map(|base| base.log);
                self.free_logs.push(number);
            }
        }
    }

    /// The state of a log after all its edits so far. Refers to the ancestor that really holds them.
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

    fn name_thread(&mut self, tid: u32, from_ns: u64, comm: CommIx) {
        let comms = self.timeline.thread_comms.entry(tid).or_default();
        comms.pop_if(|&mut (last_ns, _)| !has_samples(self.sampled.as_ref(), tid, last_ns, from_ns));
        comms.push((from_ns, comm));
    }

    fn last_cgroup(&self, pid: u32) -> Option<CgroupIx> {
        self.timeline.process_cgroups.get(&pid)?.last()?.1
    }

    fn set_cgroup(&mut self, pid: u32, from_ns: u64, cgroup: Option<CgroupIx>) {
        if self.last_cgroup(pid) == cgroup {
            return;
        }
        let cgroups = self.timeline.process_cgroups.entry(pid).or_default();
        cgroups.pop_if(|&mut (last_ns, _)| !has_samples(self.sampled.as_ref(), pid, last_ns, from_ns));
        if cgroups.last().and_then(|&(_, last)| last) != cgroup {
            cgroups.push((from_ns, cgroup));
        }
    }

    fn name_process(&mut self, pid: u32, comm: Option<CommIx>) {
        let process = self.live.get(&pid).map(|live| live.process.0 as usize);
        if let Some(name) = process.and_then(|process| self.timeline.process_comms.get_mut(process)) {
            *name = comm;
        }
    }
}

/// Whether a thread or process may have been sampled in this interval.
fn has_samples(sampled: Option<&Sampled>, id: u32, from_ns: u64, to_ns: u64) -> bool {
    sampled.is_none_or(|sampled| sampled.has(id, from_ns, to_ns))
}

/// Removes start..end from `ranges`.
fn cut(ranges: &mut Ranges, start: u64, end: u64) {
    while let Some((&hit_start, &(hit_end, backing))) =
        ranges.range(..end).next_back().filter(|(_, (hit_end, _))| *hit_end > start)
    {
        ranges.remove(&hit_start);
        if hit_end > end {
            let file_offset = backing.file_offset.wrapping_add(end.wrapping_sub(hit_start));
            ranges.insert(end, (hit_end, Backing { file_offset, ..backing }));
        }
        if hit_start < start {
            ranges.insert(hit_start, (start, backing));
        }
    }
}
