//! A recording session with eBPF.

use super::cpus::Cpus;
use super::interrupt::interrupt_ns;
use super::meta::meta;
use super::pace::{DESCRIBE, FLUSH, MissPace, Pace, SETTLE_NS, must_flush};
use super::reader::{Parts, Reader};
use super::samplers::Samplers;
use super::stack_hints::{HINTS_BYTES, StackHints};
use super::target::Running;
use super::ticks::TicksBegun;
use super::waits::switching_code;
use crate::bpf::{Filter, Programs, collect_messages};
use crate::error::Error;
use crate::modules::Modules;
use crate::note::Note;
use crate::plan::Plan;
use crate::privileges;
use crate::proc::{MemoryReads, Written, process_of, processes, written};
use crate::request::{MAX_EXCLUDED, Outcome, Progress, Request, Target, Update};
use crate::ring::Rings;
use crate::rules::{JitProcesses, RuleLoader};
use crate::sideband::{SidebandSource, Tracker};
use crate::synthesis::{Existing, undescribed};
use crate::sys::{
    ObjectStorage, OpenFiles, Poller, Rusage, SharedMap, StatisticsGuard, StopFlag, monotonic_ns, rusage,
};
use crate::vdso;
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{CaptureMode, Checkpoint, EndReason, Sideband};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session after everything that the kernel can refuse: the programs are loaded and attached, and the events are
/// open.
pub(crate) struct Loaded<'a> {
    request: &'a Request,
    plan: Plan,
    before: Spent,
    open_files: OpenFiles,
    programs: Programs<'a>,
    memory: (SharedMap, SharedMap),
    hints: SharedMap,
    statistics: Option<StatisticsGuard>,
    sideband: SidebandSource,
    samplers: Samplers,
}

/// Loads what a recording with our BPF programs needs; samples nothing yet.
pub(crate) fn load<'a>(request: &'a Request, storage: &'a mut ObjectStorage) -> Result<Loaded<'a>, Error> {
    collect_messages();
    let plan = Plan::new(request)?;
    let interrupt_ns = interrupt_ns(&plan.event);
    let before = Spent { usage: rusage(), written: written(), interrupt_ns };
    let open_files = OpenFiles::raise();
    let mut programs = Programs::load(storage, &plan.config).map_err(Error::bpf)?;
    let memory = programs.map_memory(&plan.config).map_err(Error::bpf_setup("mapping the ring buffers"))?;
    let hints = programs.map_stack_hints(HINTS_BYTES).map_err(Error::bpf_setup("mapping the ends of stacks"))?;
    let statistics = request.statistics.then(StatisticsGuard::enable).flatten();
    let sideband = SidebandSource::open(&plan.cpus)?;
    let samplers = Samplers::open(&plan.cpus, &plan.event, request.sampling, programs.sampler(), &sideband)?;
    // Before anything is tracked and before `/proc` is read, so that nothing is missed in between.
    sideband.enable()?;
    programs.follow().map_err(Error::bpf)?;
    Ok(Loaded { request, plan, before, open_files, programs, memory, hints, statistics, sideband, samplers })
}

impl Loaded<'_> {
    /// Records; see [`crate::record`].
    pub(crate) fn record<W: Write>(
        self,
        sink: W,
        stop: &StopFlag,
        update: &mut dyn FnMut(Update<'_>),
    ) -> Result<Outcome, Error> {
        let Self { request, plan, programs, samplers, .. } = self;
        let refused_statistics = request.statistics && self.statistics.is_none();
        let running = hold_target(request, &plan, &self.open_files, &programs)?;
        // Creates the file: in another user's directory, root needs CAP_DAC_OVERRIDE for that, and drops it next.
        let meta = meta(request, &plan.event, &running);
        let writer = RecordingWriter::new(sink, &meta)?;
        // After the fork of the command, which keeps its own priority and capabilities; before threads are started,
        // which inherit them.
        privileges::prepare_thread(request)?;
        let memory = MemoryReads::default();
        let parts = Parts {
            writer,
            sideband: self.sideband,
            rings: Rings::new(self.memory, &plan.config),
            tracker: Tracker::new(running.follows_all()),
            modules: Modules::new(self.open_files.limit(), request)?,
            stack_hints: StackHints::new(self.hints, memory.clone()),
            rule_loader: rule_loader(request, plan.config.n_rule_sets, &programs)?,
            jit_processes: jit_processes(request, &programs, &memory)?,
            memory: memory.clone(),
        };
        let excluded = request.excluded_pids();
        programs.exclude(excluded).map_err(Error::bpf)?;
        let mut reader = Reader::new(parts, request);
        reader.switching = request.off_cpu.and_then(|_| switching_code());
        let mut session = Session {
            request,
            plan: &plan,
            programs: &programs,
            excluded,
            samplers,
            reader,
            running,
            stop,
            start_ns: meta.start_ns,
            begun: TicksBegun::default(),
            cpu_ns_at_start: 0,
            cpus: Cpus::new(&plan.cpus),
            throttled_ticks: BTreeMap::new(),
            nested: Nested::default(),
            existing: Existing::default(),
            notes: refused_statistics.then_some(Note::StatisticsRefused).into_iter().collect(),
            load: ReaderLoad::default(),
            memory,
        };
        session.add_workers(request.encoder_threads.unwrap_or(0))?;
        session.start()?;
        let reason = session.run(update)?;
        session.finish(reason, &self.before, self.statistics.is_some())
    }
}

/// Starts the rule loader, in the mode that walks by call frame information.
fn rule_loader(request: &Request, n_sets: u32, programs: &Programs<'_>) -> Result<Option<RuleLoader>, Error> {
    if !walks_by_cfi(request) {
        return Ok(None);
    }
    let table = programs.map_rules(n_sets).map_err(Error::bpf_setup("mapping the rules"))?;
    let files = programs.code_files().map_err(Error::bpf)?;
    let rule_loader = RuleLoader::start(table, files, Arc::clone(&request.parser));
    rule_loader.map(Some).map_err(Error::system("starting a thread"))
}

/// The processes whose JIT-compiled code the kernel walks, in the same mode.
fn jit_processes(
    request: &Request,
    programs: &Programs<'_>,
    memory: &MemoryReads,
) -> Result<Option<JitProcesses>, Error> {
    let new = |map| JitProcesses::new(map, memory.clone());
    walks_by_cfi(request).then(|| programs.jit_processes().map(new).map_err(Error::bpf)).transpose()
}

fn walks_by_cfi(request: &Request) -> bool {
    matches!(request.mode, CaptureMode::Cfi { .. })
}

/// Acquires the target; a command does not run yet.
fn hold_target(
    request: &Request,
    plan: &Plan,
    open_files: &OpenFiles,
    programs: &Programs<'_>,
) -> Result<Running, Error> {
    let track = |tid: u32, is_active| programs.track(tid, is_active).map_err(Error::bpf);
    Ok(match (&request.target, &plan.command) {
        (Target::Pids(pids), _) => Running::attach(pids, |pid| track(pid, true))?,
        (Target::Threads(tids), _) => Running::attach_threads(tids, |tid| track(tid, true))?,
        (_, Some(command)) => {
            Running::hold(command, open_files, plan.config.filter != Filter::Tracked, |pid| track(pid, false))?
        }
        _ => plan.cgroup.as_ref().map_or(Running::System, |cgroup| Running::Cgroup(cgroup.clone())),
    })
}

/// CPU time of this process and its parser so far.
pub(crate) fn cpu_ns(request: &Request) -> u64 {
    let parser_ns = u64::try_from(request.parser.cpu_time().as_nanos()).unwrap_or(u64::MAX);
    rusage().cpu_ns().saturating_add(parser_ns)
}

/// What this process had used before the recording.
pub(super) struct Spent {
    pub(super) usage: Rusage,
    pub(super) written: Option<Written>,
    /// Cost of one interrupt.
    pub(super) interrupt_ns: Option<u64>,
}

/// State of the losses that a program counts without recording their time.
#[derive(Debug, Default)]
pub(super) struct Nested {
    pub(super) by_cpu: BTreeMap<u32, u64>,
    pub(super) since_ns: u64,
}

/// A recording in progress.
pub(super) struct Session<'a, W> {
    pub(super) request: &'a Request,
    pub(super) plan: &'a Plan,
    pub(super) programs: &'a Programs<'a>,
    /// See [`Programs::exclude`].
    excluded: [u32; MAX_EXCLUDED],
    pub(super) samplers: Samplers,
    pub(super) reader: Reader<W>,
    pub(super) running: Running,
    pub(super) stop: &'a StopFlag,
    /// When the recording began.
    pub(super) start_ns: u64,
    pub(super) begun: TicksBegun,
    /// CPU time of this process and its parser when sampling began.
    pub(super) cpu_ns_at_start: u64,
    pub(super) cpus: Cpus,
    /// Ticks suppressed by throttling that is over, by CPU.
    pub(super) throttled_ticks: BTreeMap<u32, u64>,
    /// Losses of nested probes already written as gaps, by CPU, and the time since which there may be more.
    pub(super) nested: Nested,
    /// Processes yet to be described.
    pub(super) existing: Existing,
    pub(super) notes: Vec<Note>,
    load: ReaderLoad,
    pub(super) memory: MemoryReads,
}

impl<W: Write> Session<'_, W> {
    /// Describes the named processes that exist, then starts sampling and the command. All other existing processes,
    /// which may be thousands, are described while sampling.
    fn start(&mut self) -> Result<(), Error> {
        self.describe_named();
        self.cpu_ns_at_start = cpu_ns(self.request);
        self.begun = TicksBegun::at(monotonic_ns());
        self.nested.since_ns = self.begun.time_ns;
        self.samplers.enable(self.programs.sampler())?;
        let refused = self.programs.start_waits().map_err(Error::bpf)?;
        self.notes.extend((refused > 0).then_some(Note::WaitsNotFollowed(refused)));
        if self.plan.config.waits.is_some_and(|waits| waits.stacks_at_block) {
            self.copy_stacks_of_blocked()?;
        }
        self.running.release(self.plan.command.as_ref())
    }

    fn describe_named(&mut self) {
        if let Some(module) = vdso::of_64_bits() {
            self.reader.write_event(Sideband::Module(module));
        }
        let named = match &self.request.target {
            Target::Command { .. } => {
                let pid = self.running.command_pid();
                pid.into_iter().for_each(|pid| self.reader.tracker.add(pid, &undescribed(pid)));
                return;
            }
            Target::Pids(pids) => BTreeSet::from_iter(pids.iter().copied()),
            Target::Threads(tids) => tids.iter().filter_map(|&tid| process_of(tid)).collect(),
            Target::Cgroup { .. } | Target::System | Target::SystemWhile { .. } => {
                self.existing = Existing::new(processes());
                return;
            }
        };
        self.existing = Existing::new(named);
        self.existing.describe(&mut self.reader, None, Duration::MAX);
    }

    fn run(&mut self, update: &mut dyn FnMut(Update<'_>)) -> Result<EndReason, Error> {
        let started = Instant::now();
        let (mut last_look, mut last_flush) = (started, started);
        let mut pace = Pace::new(self.request.poll);
        let mut miss_pace = MissPace::new(self.request.sampling);
        let doorbell = doorbell(self.programs)?;
        let poller = self.poller(&doorbell)?;
        loop {
            let now = Instant::now();
            let left = self.request.duration.map(|duration| duration.saturating_sub(now - started));
            if let Some(reason) = self.running.end_reason(self.stop, left)? {
                return Ok(reason);
            }
            if self.request.max_bytes.is_some_and(|max| self.reader.writer.bytes_written() >= max) {
                return Ok(EndReason::MaxSize);
            }
            // The doorbell is for data that comes faster than expected.
            let pause = pace.pause(now, self.reader.rings.produced());
            let pause = if self.existing.is_done() { pause } else { Duration::ZERO };
            let for_rules = self.reader.n_missed().map(|n_missed| miss_pace.pause(now, n_missed));
            let pause = for_rules.map_or(pause, |for_rules| for_rules.min(pause));
            poller.wait(left.map_or(pause, |left| left.min(pause))).map_err(Error::system("waiting for samples"))?;
            doorbell.consume().map_err(Error::bpf)?;
            let cut_ns = monotonic_ns().saturating_sub(SETTLE_NS);
            self.load.measure(|| self.reader.read(cut_ns));
            self.existing.describe(&mut self.reader, Some(cut_ns.max(self.begun.time_ns)), DESCRIBE);
            self.follow_cpus(&poller)?;
            self.follow_parser()?;
            if last_look.elapsed() >= FLUSH {
                if self.request.encoder_threads.is_none() && self.load.is_high(last_look.elapsed()) {
                    self.add_workers(usize::from(self.reader.writer.n_workers() < most_workers()))?;
                }
                last_look = Instant::now();
                self.reader.modules.look();
            }
            if must_flush(self.request, last_flush.elapsed()) {
                last_flush = Instant::now();
                self.checkpoint();
            }
            update(Update::Progress(&self.progress(started)));
        }
    }

    /// Excludes the parser's processes of this moment.
    fn follow_parser(&mut self) -> Result<(), Error> {
        let excluded = self.request.excluded_pids();
        if excluded != std::mem::replace(&mut self.excluded, excluded) {
            self.programs.exclude(excluded).map_err(Error::bpf)?;
        }
        Ok(())
    }

    fn add_workers(&mut self, n: usize) -> Result<(), Error> {
        for _ in 0..n {
            match self.reader.writer.add_worker() {
                // A failing sink will fail again with the next block.
                Err(fpprof_recording::Error::Write(_)) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
            rules_do_not_fit: self.reader.rules_do_not_fit(),
            lacks_rings: self.cpus.joined.last().is_some_and(|&cpu| cpu >= self.plan.config.n_ring_cpus),
        }
    }

    fn checkpoint(&mut self) {
        // First, so that the checkpoint counts the samples of all preceding blocks.
        self.reader.flush();
        self.note_throttling();
        let time_ns = monotonic_ns();
        self.note_nested(time_ns);
        let cpus = self.counters(time_ns, |ring_id| self.reader.current_written(ring_id));
        self.reader.sideband.count_lost();
        let checkpoint = Checkpoint { time_ns, cpus, sideband_lost: self.reader.sideband.lost() };
        self.reader.checkpoint(&checkpoint);
        self.reader.flush();
    }

    /// Samples CPUs that have come online, again or for the first time. Those without a ring, because their number is
    /// higher than that of any CPU at the start, only count what they lose.
    pub(super) fn follow_cpus(&mut self, poller: &Poller) -> Result<(), Error> {
        for cpu in self.cpus.take_unsampled() {
            // This fails if the CPU is gone again.
            if self.reader.sideband.reopen(cpu, poller).is_ok()
                && self.samplers.reopen(cpu, self.programs.sampler(), &self.reader.sideband).is_ok()
            {
                self.cpus.opened(cpu);
                self.reader.resync.missed();
            } else {
                self.cpus.failed();
            }
        }
        Ok(())
    }
}

/// How much of its time the reader spends reading.
#[derive(Debug, Default)]
struct ReaderLoad {
    busy: Duration,
}

impl ReaderLoad {
    fn measure(&mut self, read: impl FnOnce()) {
        let begun = Instant::now();
        read();
        self.busy += begun.elapsed();
    }

    /// Whether that was more than two thirds of `elapsed`, the time since the last call.
    fn is_high(&mut self, elapsed: Duration) -> bool {
        std::mem::take(&mut self.busy) * 3 > elapsed * 2
    }
}

/// The most encoding threads: a profiler must leave the machine to the profiled programs.
fn most_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(4))
}

fn doorbell<'a>(programs: &'a Programs<'_>) -> Result<libbpf_rs::RingBuffer<'a>, Error> {
    let mut builder = libbpf_rs::RingBufferBuilder::new();
    builder.add(programs.doorbell(), |_| 0).map_err(Error::bpf)?;
    builder.build().map_err(Error::bpf)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only more than two thirds of the time since the last call count as a high load.
    #[test]
    fn load_is_high_above_two_thirds() {
        let asked = |busy_ms| ReaderLoad { busy: Duration::from_millis(busy_ms) }.is_high(Duration::from_millis(900));
        assert_eq!((asked(600), asked(601)), (false, true));
        let mut load = ReaderLoad { busy: Duration::from_secs(1) };
        assert!(load.is_high(Duration::from_secs(1)) && !load.is_high(Duration::from_secs(1)));
    }
}
