//! Making a recording.

use super::cpus::Cpus;
use super::interrupt::interrupt_ns;
use super::meta::meta;
use super::pace::Pace;
use super::reader::{Parts, Reader};
use super::samplers::Samplers;
use super::target::Running;
use super::ticks::TicksBegun;
use super::waits::switching_code;
use crate::bpf::{Filter, Programs};
use crate::error::Error;
use crate::modules::{Modules, vdso};
use crate::note::Note;
use crate::plan::Plan;
use crate::proc::{Written, process_of, processes, written};
use crate::request::{Outcome, Progress, Request, Target};
use crate::ring::Rings;
use crate::sideband::{SidebandSource, Tracker};
use crate::synthesis::describe;
use crate::sys::{ObjectStorage, OpenFiles, Poller, Rusage, StatisticsGuard, StopFlag, monotonic_ns, rusage};
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{CaptureMode, Checkpoint, EndReason, Sideband};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The reader looks at the rings at least so often; and the more often the faster they fill.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// What was collected is on the disk after so long.
pub(crate) const FLUSH: Duration = Duration::from_secs(1);
/// Records younger than this stay in their rings: an earlier one of another CPU may still be on its way.
pub(crate) const SETTLE_NS: u64 = 2_000_000;

/// Records with our BPF program, see [`crate::record`].
pub(crate) fn record_with_bpf<W: Write>(
    request: &Request,
    sink: W,
    stop: &StopFlag,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    let plan = Plan::new(request)?;
    let interrupt_ns = interrupt_ns(&plan.event);
    let before = Spent { usage: rusage(), written: written(), interrupt_ns };
    let open_files = OpenFiles::raise();
    let mut storage = ObjectStorage::uninit();
    let mut programs = Programs::load(&mut storage, &plan.wish).map_err(Error::bpf("loading"))?;
    let memory = programs.map_memory(&plan.wish).map_err(Error::system("mapping the rings"))?;
    let rings = Rings::new(memory, plan.wish.layout, (plan.wish.n_cpus, plan.wish.n_events()));
    let statistics = StatisticsGuard::enable();
    let sideband = SidebandSource::open(&plan.cpus)?;
    let samplers = Samplers::open(&plan.cpus, &plan.event, request.sampling, programs.sampler(), &sideband)?;
    // Before anything is tracked and before `/proc` is read, so that nothing falls between.
    sideband.enable()?;
    programs.follow().map_err(Error::bpf("following processes"))?;
    let running = match (&request.target, &plan.command) {
        (Target::Pids(pids), _) => {
            Running::attach(pids, |pid| programs.track(pid, true).map_err(Error::bpf("tracking a process")))?
        }
        (Target::Threads(tids), _) => {
            Running::attach_threads(tids, |tid| programs.track(tid, true).map_err(Error::bpf("tracking a thread")))?
        }
        (_, Some(command)) => Running::hold(command, &open_files, plan.wish.filter != Filter::Tracked, |pid| {
            programs.track(pid, false).map_err(Error::bpf("tracking the command"))
        })?,
        _ => plan.cgroup.as_ref().map_or(Running::System, |cgroup| Running::Cgroup(cgroup.path.clone())),
    };
    let writer = RecordingWriter::new(sink, &meta(request, &plan.event, &running))?;
    let tracker = Tracker::new(running.follows_all());
    let parts = Parts { writer, sideband, rings, tracker, modules: Modules::new(open_files.limit()) };
    let mut reader = Reader::new(parts, request.keep_raw_stacks, request.mode != CaptureMode::Fp);
    reader.switching = request.off_cpu.and_then(|_| switching_code());
    let has_statistics = statistics.is_some();
    let mut session = Session {
        request,
        plan: &plan,
        programs: &programs,
        samplers,
        reader,
        running,
        stop,
        begun: TicksBegun::default(),
        cpus: Cpus::new(&plan.cpus),
        throttled_ticks: BTreeMap::new(),
        nested: Nested::default(),
        notes: Vec::new(),
    };
    session.start()?;
    let reason = session.run(progress)?;
    session.finish(reason, &before, has_statistics)
}

/// What this process had used before the recording.
pub(super) struct Spent {
    pub(super) usage: Rusage,
    pub(super) written: Option<Written>,
    /// What one interrupt costs.
    pub(super) interrupt_ns: Option<u64>,
}

/// What is known of losses that a program counts without noting when.
#[derive(Debug, Default)]
pub(super) struct Nested {
    pub(super) by_cpu: BTreeMap<u32, u64>,
    pub(super) since_ns: u64,
}

/// A recording under way.
pub(super) struct Session<'a, W> {
    pub(super) request: &'a Request,
    pub(super) plan: &'a Plan,
    pub(super) programs: &'a Programs<'a>,
    pub(super) samplers: Samplers,
    pub(super) reader: Reader<W>,
    pub(super) running: Running,
    pub(super) stop: &'a StopFlag,
    pub(super) begun: TicksBegun,
    pub(super) cpus: Cpus,
    /// Ticks that throttling suppressed, by CPU, as far as it is over.
    pub(super) throttled_ticks: BTreeMap<u32, u64>,
    /// Losses of probes inside one another's program that are written as gaps, by CPU, and since when more may have come.
    pub(super) nested: Nested,
    pub(super) notes: Vec<Note>,
}

impl<W: Write> Session<'_, W> {
    /// What exists already, then samples, then the command.
    fn start(&mut self) -> Result<(), Error> {
        self.describe_existing();
        self.begun = TicksBegun::at(monotonic_ns());
        self.nested.since_ns = self.begun.time_ns;
        self.samplers.enable(self.programs.sampler())?;
        let refused = self.programs.start_waits().map_err(Error::bpf("watching what blocks"))?;
        self.notes.extend((refused > 0).then_some(Note::WaitsNotFollowed(refused)));
        self.running.release(self.plan.command.as_ref())
    }

    fn describe_existing(&mut self) {
        let now_ns = monotonic_ns();
        if let Some(module) = vdso() {
            self.reader.write_event(Sideband::Module(module));
        }
        let existing = match &self.request.target {
            Target::Command { .. } => {
                let pid = self.running.command_pid();
                pid.into_iter().for_each(|pid| self.reader.tracker.add(pid, 1, now_ns));
                return;
            }
            Target::Pids(pids) => BTreeSet::from_iter(pids.iter().copied()),
            Target::Threads(tids) => tids.iter().filter_map(|&tid| process_of(tid)).collect(),
            Target::Cgroup { .. } | Target::System | Target::SystemWhile { .. } => processes().into_iter().collect(),
        };
        self.notes.extend(describe(&mut self.reader, existing, now_ns));
    }

    fn run(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<EndReason, Error> {
        let started = Instant::now();
        let mut last_flush = started;
        let mut pace = Pace::new();
        let doorbell = doorbell(self.programs)?;
        let poller = self.poller(&doorbell)?;
        loop {
            let now = Instant::now();
            let left = self.request.duration.map(|duration| duration.saturating_sub(now - started));
            if let Some(reason) = self.running.end_reason(self.stop, left)? {
                return Ok(reason);
            }
            // The doorbell is for what comes faster than expected.
            let pause = pace.pause(now, self.reader.rings.produced());
            poller.wait(left.map_or(pause, |left| left.min(pause))).map_err(Error::system("waiting for samples"))?;
            doorbell.consume().map_err(Error::bpf("waiting for samples"))?;
            self.reader.read(monotonic_ns().saturating_sub(SETTLE_NS));
            self.follow_cpus(&poller)?;
            if last_flush.elapsed() >= FLUSH {
                last_flush = Instant::now();
                self.checkpoint();
            }
            progress(&self.progress(started));
        }
    }

    fn poller(&self, doorbell: &libbpf_rs::RingBuffer<'_>) -> Result<Poller, Error> {
        let failed = Error::system;
        let poller = Poller::new().map_err(failed("waiting for samples"))?;
        poller.add_raw(doorbell.epoll_fd()).map_err(failed("waiting for samples"))?;
        poller.add(self.stop.as_fd()).map_err(failed("waiting for signals"))?;
        for fd in self.reader.sideband.descriptors() {
            poller.add(fd).map_err(failed("waiting for process events"))?;
        }
        self.running.watch(&poller)?;
        self.cpus.watch(&poller)?;
        Ok(poller)
    }

    fn progress(&self, started: Instant) -> Progress {
        let dropped = self.reader.n_unwritten();
        Progress {
            elapsed: started.elapsed(),
            samples: self.reader.n_samples - dropped,
            lost: self.reader.n_lost(),
            dropped,
            bytes_written: self.reader.writer.bytes_written(),
        }
    }

    fn checkpoint(&mut self) {
        self.note_throttling();
        let time_ns = monotonic_ns();
        self.note_nested(time_ns);
        let cpus = self.counters(time_ns, |lane| self.reader.written_so_far(lane));
        self.reader.sideband.count_lost();
        let checkpoint = Checkpoint { time_ns, cpus, sideband_lost: self.reader.sideband.lost() };
        self.reader.checkpoint(&checkpoint);
        self.reader.flush();
    }
}

fn doorbell<'a>(programs: &'a Programs<'_>) -> Result<libbpf_rs::RingBuffer<'a>, Error> {
    let mut builder = libbpf_rs::RingBufferBuilder::new();
    builder.add(programs.doorbell(), |_| 0).map_err(Error::bpf("waiting for samples"))?;
    builder.build().map_err(Error::bpf("waiting for samples"))
}
