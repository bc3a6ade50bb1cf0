//! A recording session with perf events alone.

use super::decode::SampleLayout;
use super::events::Events;
use super::plan::Plan;
use super::reader::{Options, Reader};
use crate::error::Error;
use crate::modules::{Modules, Omitted};
use crate::note::{Note, recorded};
use crate::privileges;
use crate::proc::{processes, read_number};
use crate::request::{MAX_EXCLUDED, Outcome, Progress, Request, Target, Update};
use crate::session::{
    Cpus, DESCRIBE, FLUSH, Running, SETTLE_NS, TicksBegun, cpu_ns, errno_of, events, meta, must_flush,
};
use crate::synthesis::{Existing, undescribed};
use crate::sys::{OpenFiles, Poller, Rusage, StopFlag, monotonic_ns, rusage, user_registers};
use crate::vdso;
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{
    CaptureMode, Collector, CpuCounters, End, EndReason, Meta, NotCounted, OwnCost, Sampling, Sideband, Uncounted,
};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Opens the events for the whole machine, if that is the target, and closes them.
pub(crate) fn rehearse(request: &Request) -> Result<(), Error> {
    match request.target {
        Target::System => {
            let plan = Plan::new(request)?;
            let _open_files = OpenFiles::raise();
            Events::open_cpus(&plan).map(drop)
        }
        _ => Ok(()),
    }
}

/// Records with perf events alone, see [`crate::record`].
pub(crate) fn record<W: Write>(
    request: &Request,
    sink: W,
    stop: &StopFlag,
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Outcome, Error> {
    let plan = Plan::new(request)?;
    let before = rusage();
    let open_files = OpenFiles::raise();
    let mut events = None;
    let running = match (&request.target, &plan.command) {
        (Target::Pids(pids), _) => {
            let running = Running::attach(pids, |_| Ok(()))?;
            events = Some(Events::open_pids(&plan, pids)?);
            running
        }
        (_, Some(command)) => Running::hold(command, &open_files, plan.is_system, |pid| {
            events = Some(Events::open_thread(&plan, pid)?);
            Ok(())
        })?,
        _ => Running::System,
    };
    let events = events.map_or_else(|| Events::open_cpus(&plan), Ok)?;
    // Before `/proc` is read, so that nothing is missed in between.
    events.sideband.enable()?;
    // Creates the file: in another user's directory, root needs CAP_DAC_OVERRIDE for that, and drops it next.
    let meta = description(request, &plan, &running);
    let writer = RecordingWriter::new(sink, &meta)?;
    privileges::prepare_thread(request)?;
    let mut session = Session {
        request,
        notes: notes_of(&plan, &events),
        reader: Reader::new(
            writer,
            events,
            Modules::new(open_files.limit(), request)?,
            options(request, &plan),
            request,
        ),
        plan: &plan,
        running,
        stop,
        start_ns: meta.start_ns,
        begun: TicksBegun::default(),
        cpu_ns_at_start: 0,
        cpus: Cpus::new(&plan.cpus),
        existing: Existing::default(),
    };
    session.start()?;
    let reason = session.run(update)?;
    session.finish(reason, &before)
}

fn description(request: &Request, plan: &Plan, running: &Running) -> Meta {
    let excluded = plan.event.excludes_kernel.then_some(NotCounted::KernelTicks);
    let uncounted = (!plan.event.counts_lost).then_some(NotCounted::LastLosses);
    let unseen = (!plan.is_system).then_some(NotCounted::FirstPeriods);
    Meta {
        collector: Collector::PerfEvent,
        kernel_stacks: plan.event.kernel_stacks,
        not_counted: excluded.into_iter().chain(uncounted).chain(unseen).collect(),
        ..meta(request, &plan.event.event, running)
    }
}

fn options(request: &Request, plan: &Plan) -> Options {
    let max_frames = read_number("/proc/sys/kernel/perf_event_max_stack");
    let layout = SampleLayout {
        period: match request.sampling {
            Sampling::Period(period) => Some(period),
            Sampling::FrequencyHz(_) => None,
        },
        has_chain: plan.event.kernel_stacks || request.mode.has_frame_pointers(),
        regs: user_registers(request.mode),
        has_stack: request.mode != CaptureMode::Fp,
        max_frames: max_frames.and_then(|max| u64::try_from(max).ok()).unwrap_or(127),
        return_address_mask: crate::arch::return_address_mask(),
    };
    Options {
        layout,
        sampling: request.sampling,
        keeps_raw_stacks: request.keep_raw_stacks,
        includes_privileged: request.include_privileged,
        only_user: request.only_user,
        excluded_pids: excluded_pids(request, plan),
    }
}

fn excluded_pids(request: &Request, plan: &Plan) -> [u32; MAX_EXCLUDED] {
    if plan.is_system { request.excluded_pids() } else { [0; MAX_EXCLUDED] }
}

fn notes_of(plan: &Plan, events: &Events) -> Vec<Note> {
    let mut notes = Vec::new();
    if plan.event.excludes_kernel {
        notes.push(Note::KernelNotSampled);
    }
    if plan.ring_bytes.first() != Some(&events.ring_bytes()) {
        notes.push(Note::SmallRings(events.ring_bytes()));
    }
    notes
}

/// A recording in progress.
struct Session<'a, W> {
    request: &'a Request,
    plan: &'a Plan,
    reader: Reader<W>,
    running: Running,
    stop: &'a StopFlag,
    /// When the recording began.
    start_ns: u64,
    begun: TicksBegun,
    /// CPU time of this process and its parser when sampling began.
    cpu_ns_at_start: u64,
    cpus: Cpus,
    /// Processes yet to be described.
    existing: Existing,
    notes: Vec<Note>,
}

impl<W: Write> Session<'_, W> {
    /// Describes the named processes that exist, then starts sampling and the command; other processes are described
    /// while sampling.
    fn start(&mut self) -> Result<(), Error> {
        self.describe_named();
        self.cpu_ns_at_start = cpu_ns(self.request);
        self.begun = TicksBegun::at(monotonic_ns());
        self.reader.events.enable()?;
        self.running.release(self.plan.command.as_ref())
    }

    fn describe_named(&mut self) {
        if let Some(module) = vdso::of_64_bits() {
            self.reader.write_event(Sideband::Module(module));
        }
        match &self.request.target {
            Target::Command { .. } => {
                let pid = self.running.command_pid();
                pid.into_iter().for_each(|pid| self.reader.tracker.add(pid, &undescribed(pid)));
            }
            Target::Pids(pids) => {
                self.existing = Existing::new(pids.iter().copied());
                self.existing.describe(&mut self.reader, None, Duration::MAX);
            }
            // The plan accepts neither threads nor control groups.
            Target::Threads(_) | Target::Cgroup { .. } | Target::System | Target::SystemWhile { .. } => {
                self.existing = Existing::new(processes());
            }
        }
    }

    fn run(&mut self, update: &mut dyn FnMut(Update<'_>)) -> Result<EndReason, Error> {
        let started = Instant::now();
        let (mut last_look, mut last_flush) = (started, started);
        let failed = Error::system;
        let poller = Poller::new().map_err(failed("waiting for samples"))?;
        poller.add(self.stop.as_fd()).map_err(failed("waiting for signals"))?;
        for fd in self.reader.events.descriptors() {
            poller.add(fd).map_err(failed("waiting for samples"))?;
        }
        self.running.watch(&poller)?;
        if !self.reader.events.has_threads() {
            self.cpus.watch(&poller)?;
        }
        loop {
            let left = self.request.duration.map(|duration| duration.saturating_sub(started.elapsed()));
            if let Some(reason) = self.running.end_reason(self.stop, left)? {
                return Ok(reason);
            }
            if self.request.max_bytes.is_some_and(|max| self.reader.writer.bytes_written() >= max) {
                return Ok(EndReason::MaxSize);
            }
            // A ring wakes the reader when it passes its watermark, not while it stays above.
            let pause = match self.reader.is_filling() {
                _ if !self.existing.is_done() => Duration::ZERO,
                true => Duration::from_nanos(SETTLE_NS),
                false => self.request.poll,
            };
            poller.wait(left.map_or(pause, |left| left.min(pause))).map_err(failed("waiting for samples"))?;
            let cut_ns = monotonic_ns().saturating_sub(SETTLE_NS);
            self.reader.read(cut_ns);
            self.existing.describe(&mut self.reader, Some(cut_ns.max(self.begun.time_ns)), DESCRIBE);
            self.follow_cpus(&poller);
            self.reader.options.excluded_pids = excluded_pids(self.request, self.plan);
            if last_look.elapsed() >= FLUSH {
                last_look = Instant::now();
                self.reader.modules.look();
            }
            if must_flush(self.request, last_flush.elapsed()) {
                last_flush = Instant::now();
                self.reader.checkpoint(monotonic_ns());
            }
            let (samples, lost, dropped) = self.reader.totals();
            let bytes_written = self.reader.writer.bytes_written();
            let elapsed = started.elapsed();
            update(Update::Progress(&Progress {
                elapsed,
                samples,
                lost,
                dropped,
                bytes_written,
                rules_do_not_fit: false,
                lacks_rings: false,
            }));
        }
    }

    /// Samples CPUs that have come online, again or for the first time. Events of threads outlast their CPU's absence; on a
    /// CPU that was never there before, threads are not sampled.
    fn follow_cpus(&mut self, poller: &Poller) {
        if self.reader.events.has_threads() {
            return;
        }
        for cpu in self.cpus.take_unsampled() {
            // This fails if the CPU is gone again.
            if self.reader.reopen(cpu, poller).is_ok() {
                self.cpus.opened(cpu);
                self.reader.resync.missed();
            } else {
                self.cpus.failed();
            }
        }
    }

    /// Stops sampling, reads everything left, and closes the recording.
    fn finish(mut self, reason: EndReason, before: &Rusage) -> Result<Outcome, Error> {
        self.reader.events.disable()?;
        let stopped_ns = monotonic_ns();
        let at_stop = rusage();
        if !self.running.terminate()? {
            self.notes.push(Note::TargetStillRuns);
        }
        self.reader.events.sideband.disable()?;
        self.reader.events.sideband.count_lost();
        self.reader.read(u64::MAX);
        self.reader.close_balance(stopped_ns);
        let omitted = self.reader.finish_modules(self.request.save_limit);
        self.reader.flush();
        let still_fails = self.reader.write_failed.filter(|_| self.reader.writer.is_failing());
        let mut end = End {
            time_ns: stopped_ns,
            reason: still_fails.map_or(reason, EndReason::WriteFailed),
            cpus: self.reader.counters(true),
            sideband_lost: self.reader.events.sideband.lost(),
            own_cost: self.own_cost(before, &at_stop),
            uncounted: Uncounted::default(),
            notes: Vec::new(),
        };
        end.uncounted = self.uncounted(&end.cpus, stopped_ns);
        self.add_notes(omitted, &end);
        end.notes = recorded(&self.notes);
        if let Err(error) = self.reader.writer.finish(&end) {
            let errno = errno_of(&error);
            end.reason = EndReason::WriteFailed(errno);
            self.notes.push(Note::EndNotWritten(errno));
        }
        Ok(Outcome {
            collector: Collector::PerfEvent,
            samples: end.cpus.iter().map(|cpu| cpu.recorded).sum(),
            events: events(self.request, &self.plan.event.event),
            blocked_ns: 0,
            end,
            target_status: self.running.status(),
            duration: Duration::from_nanos(stopped_ns.saturating_sub(self.start_ns)),
            sampled_for: Duration::from_nanos(stopped_ns.saturating_sub(self.begun.time_ns)),
            bytes_written: self.reader.writer.bytes_written(),
            notes: self.notes,
        })
    }

    fn own_cost(&self, before: &Rusage, at_stop: &Rusage) -> OwnCost {
        let now = rusage();
        let parser_ns = cpu_ns(self.request).saturating_sub(now.cpu_ns());
        OwnCost {
            user_ns: now.user_ns.saturating_sub(before.user_ns),
            system_ns: now.system_ns.saturating_sub(before.system_ns),
            parser_ns,
            before_start_ns: self.cpu_ns_at_start.saturating_sub(before.cpu_ns()),
            after_stop_ns: now.cpu_ns().saturating_sub(at_stop.cpu_ns()),
            max_rss_bytes: now.max_rss_bytes,
            ring_bytes: self.reader.ring_bytes,
            // There are no BPF programs.
            bpf_run_ns: Some(0),
            ..OwnCost::default()
        }
    }

    /// What is in no balance. The expected number of ticks is only known for a timer that fires on whole CPUs.
    fn uncounted(&self, cpus: &[CpuCounters], stopped_ns: u64) -> Uncounted {
        let event = &self.plan.event.event;
        let has_rate = self.plan.is_system && event.is_timer();
        let cpus = self.cpus.all_along(cpus);
        Uncounted {
            ticks: if has_rate { self.begun.missing(self.request.sampling, stopped_ns, &cpus) } else { 0 },
            counter_share_percent: if event.is_hardware() { self.reader.events.counter_share() } else { None },
        }
    }

    fn add_notes(&mut self, omitted: Omitted, end: &End) {
        let is_blind = self.plan.is_system && !self.cpus.are_watched();
        let counted = [
            (end.uncounted.ticks, Note::TicksMissing as fn(u64) -> Note),
            (self.cpus.unsampled().len() as u64, Note::CpusNotSampled),
            (self.cpus.joined.len() as u64, Note::CpusJoined),
            (u64::from(is_blind), |_| Note::CpusNotWatched),
            (self.request.parser.n_failed(), Note::ParserFailed),
            (self.request.parser.n_left_out(), Note::FilesNotParsed),
            (self.reader.tracker.n_left_by_exec(), Note::EventsRemovedByExec),
            (self.reader.events.sideband.n_names_left_out(), Note::NamesNotRecorded),
            (self.reader.writer.gaps_dropped(), Note::GapsDropped),
            (self.reader.writer.sideband_dropped(), Note::ProcessEventsDropped),
        ];
        let (mappings, samples) = (self.reader.events.sideband.n_not_in_full(), self.reader.resync.n_unclear());
        self.notes.extend(self.existing.note());
        self.notes.extend(end.uncounted.counter_share_percent.map(Note::CounterShared));
        // They are counted of all processes of the machine, profiled or not.
        let has_missing = samples > 0 || (mappings > 0 && self.request.target == Target::System);
        self.notes.extend(has_missing.then_some(Note::MappingsNotRecorded { mappings, samples }));
        let counted = counted.into_iter().chain(omitted.counted());
        self.notes.extend(counted.filter(|&(n, _)| n > 0).map(|(n, note)| note(n)));
    }
}
