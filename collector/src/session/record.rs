//! Making a recording.

use super::balance::cpu_counters;
use super::reader::{Parts, Reader};
use super::samplers::Samplers;
use super::target::Running;
use crate::bpf::types::counter;
use crate::bpf::{Filter, Programs};
use crate::error::Error;
use crate::host::host;
use crate::modules::{Modules, vdso};
use crate::plan::Plan;
use crate::proc::processes;
use crate::request::{Note, Outcome, Progress, Request, Target, TargetStatus};
use crate::ring::Rings;
use crate::sideband::{SidebandSource, Tracker};
use crate::synthesis::synthesize;
use crate::sys::{
    ObjectStorage, OpenFiles, Poller, Rusage, StatisticsGuard, StopFlag, monotonic_ns, realtime_ns, rusage,
};
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{self, CaptureMode, Collector, End, EndReason, Event, Meta, OwnCost, Sampling, Sideband};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The reader looks at the rings at least so often; fuller rings wake it earlier.
const POLL: Duration = Duration::from_millis(100);
/// What was collected is on the disk after so long.
const FLUSH: Duration = Duration::from_secs(1);
/// Records younger than this stay in their rings: an earlier one of another CPU may still be on its way.
const SETTLE_NS: u64 = 2_000_000;

/// Records what `request` asks for into `sink` until the target ends, the time is over, or `stop` is set.
///
/// Give it the file itself: whole blocks are written. `progress` is called some times a second. Nothing of a command runs
/// before everything that can be known to fail has been tried.
///
/// A sink that fails does not end the recording: it is tried again with each block, and what it did not take is counted
/// as dropped.
///
/// # Errors
/// See [`Error`]; in all cases the target has not been touched, but for a command that could not be executed.
pub fn record<W: Write>(
    request: &Request,
    sink: W,
    stop: &StopFlag,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    let plan = Plan::new(request)?;
    let before = rusage();
    let open_files = OpenFiles::raise();
    let mut storage = ObjectStorage::uninit();
    let mut programs = Programs::load(&mut storage, &plan.wish).map_err(Error::bpf("loading"))?;
    let memory = programs.map_memory(&plan.wish).map_err(Error::system("mapping the rings"))?;
    let rings = Rings::new(memory, plan.wish.layout, plan.wish.n_cpus);
    let statistics = StatisticsGuard::enable();
    let sideband = SidebandSource::open(&plan.cpus)?;
    let samplers = Samplers::open(&plan.cpus, plan.event, request.sampling, programs.sampler(), &sideband)?;
    if plan.wish.filter == Filter::Tracked {
        programs.follow().map_err(Error::bpf("following processes"))?;
    }
    let running = match (&request.target, &plan.command) {
        (Target::Pids(pids), _) => Running::attach(pids, &programs)?,
        (_, Some(command)) => Running::hold(command, &open_files, &programs, plan.wish.filter != Filter::Tracked)?,
        _ => Running::System,
    };
    let writer = RecordingWriter::new(sink, &meta(request, &plan, &running))?;
    let tracker = Tracker::new(running.follows_all());
    let parts = Parts { writer, sideband, rings, tracker, modules: Modules::new(open_files.limit()) };
    let reader = Reader::new(parts, request.keep_raw_stacks, request.mode != CaptureMode::Fp);
    let has_statistics = statistics.is_some();
    let mut session = Session {
        request,
        plan: &plan,
        programs: &programs,
        samplers,
        reader,
        running,
        stop,
        started_ns: 0,
        notes: Vec::new(),
    };
    session.start()?;
    let reason = session.run(progress)?;
    session.finish(reason, &before, has_statistics)
}

struct Session<'a, W> {
    request: &'a Request,
    plan: &'a Plan,
    programs: &'a Programs<'a>,
    samplers: Samplers,
    reader: Reader<W>,
    running: Running,
    stop: &'a StopFlag,
    started_ns: u64,
    notes: Vec<Note>,
}

impl<W: Write> Session<'_, W> {
    /// Process events first, so that nothing falls between them and what is read from `/proc`; then samples; then the
    /// command.
    fn start(&mut self) -> Result<(), Error> {
        self.reader.sideband.enable()?;
        self.describe_existing();
        self.started_ns = monotonic_ns();
        self.samplers.enable()?;
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
                pid.into_iter().for_each(|pid| self.reader.tracker.add(pid, 1));
                return;
            }
            Target::Pids(pids) => pids.clone(),
            Target::System | Target::SystemWhile { .. } => processes(),
        };
        let mut unreadable = 0;
        for pid in existing {
            self.reader.tracker.add(pid, 1);
            let reader = &mut self.reader;
            match synthesize(pid, now_ns, &mut |event| reader.write_event(event)) {
                Ok(n_threads) => self.reader.tracker.add(pid, n_threads),
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            self.notes.push(Note::ProcessesUnreadable(unreadable));
        }
    }

    fn run(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<EndReason, Error> {
        let started = Instant::now();
        let mut last_flush = started;
        let doorbell = doorbell(self.programs)?;
        let poller = self.poller(&doorbell)?;
        loop {
            let now = Instant::now();
            let left = self.request.duration.map(|duration| duration.saturating_sub(now - started));
            if let Some(reason) = self.end_reason(left)? {
                return Ok(reason);
            }
            poller.wait(left.map_or(POLL, |left| left.min(POLL))).map_err(Error::system("waiting for samples"))?;
            doorbell.consume().map_err(Error::bpf("waiting for samples"))?;
            self.reader.read(monotonic_ns().saturating_sub(SETTLE_NS));
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
        Ok(poller)
    }

    fn end_reason(&mut self, left: Option<Duration>) -> Result<Option<EndReason>, Error> {
        if self.running.has_ended()? {
            return Ok(Some(match self.running.status() {
                Some(TargetStatus::Exited(status)) => EndReason::Exited(status),
                Some(TargetStatus::Killed(signal)) => EndReason::Killed(signal),
                None => EndReason::TargetsGone,
            }));
        }
        if let Some(signal) = self.stop.signal() {
            return Ok(Some(EndReason::Signal(signal)));
        }
        Ok(left.filter(Duration::is_zero).map(|_| EndReason::Duration))
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

    /// Stops sampling, reads all that is left, and closes the recording.
    fn finish(mut self, reason: EndReason, before: &Rusage, has_statistics: bool) -> Result<Outcome, Error> {
        self.samplers.disable()?;
        let stopped_ns = monotonic_ns();
        let at_stop = rusage();
        if !self.running.terminate()? {
            self.notes.push(Note::TargetStillRuns);
        }
        self.reader.disable_sideband()?;
        self.reader.read(u64::MAX);
        let modules = self.reader.take_modules();
        let not_kept = modules.finish(|module| self.reader.write_event(Sideband::Module(module)));
        self.reader.flush();
        let own_cost = self.own_cost(before, &at_stop, has_statistics)?;
        let reason = self.reader.write_failed.map_or(reason, EndReason::WriteFailed);
        let end = End {
            time_ns: stopped_ns,
            reason,
            cpus: self.counters(stopped_ns),
            sideband_lost: self.reader.sideband.lost(),
            own_cost,
        };
        if let Err(error) = self.reader.writer.finish(&end) {
            let errno = match &error {
                fpprof_recording::Error::Write(source) => source.raw_os_error(),
                _ => None,
            };
            self.notes.push(Note::EndNotWritten(errno.unwrap_or(libc::EIO)));
        }
        self.add_notes(not_kept);
        Ok(Outcome {
            samples: end.cpus.iter().map(|cpu| cpu.recorded).sum(),
            end,
            target_status: self.running.status(),
            sampled_for: Duration::from_nanos(stopped_ns.saturating_sub(self.started_ns)),
            bytes_written: self.reader.writer.bytes_written(),
            notes: self.notes,
        })
    }

    fn counters(&self, now_ns: u64) -> Vec<model::CpuCounters> {
        let throttled: Vec<_> = self.reader.sideband.throttled(now_ns).collect();
        let of_cpu = |&cpu: &u32| {
            let time_ns = throttled.iter().find(|count| count.cpu == cpu).map_or(0, |count| count.time_ns);
            let ticks = ticks_in(time_ns, self.request.sampling);
            cpu_counters(cpu, &self.reader.rings.counters(cpu), self.reader.written(cpu), ticks)
        };
        self.plan.cpus.iter().map(of_cpu).collect()
    }

    fn checkpoint(&mut self) {
        let time_ns = monotonic_ns();
        let checkpoint =
            model::Checkpoint { time_ns, cpus: self.counters(time_ns), sideband_lost: self.reader.sideband.lost() };
        self.reader.checkpoint(&checkpoint);
        self.reader.flush();
    }

    fn own_cost(&self, before: &Rusage, at_stop: &Rusage, has_statistics: bool) -> Result<OwnCost, Error> {
        let now = rusage();
        let statistics = has_statistics.then(|| self.programs.statistics()).transpose();
        let statistics = statistics.map_err(Error::system("reading the statistics of the BPF programs"))?;
        let cpu_ns = |usage: &Rusage| usage.user_ns + usage.system_ns;
        Ok(OwnCost {
            user_ns: now.user_ns.saturating_sub(before.user_ns),
            system_ns: now.system_ns.saturating_sub(before.system_ns),
            after_stop_ns: cpu_ns(&now).saturating_sub(cpu_ns(at_stop)),
            max_rss_bytes: now.max_rss_bytes,
            bpf_run_ns: statistics.map(|(sampler, others_ns)| sampler.run_ns + others_ns),
            bpf_runs: statistics.map(|(sampler, _)| sampler.runs),
            ring_bytes: self.reader.total(counter::COUNT_BYTES),
        })
    }

    fn add_notes(&mut self, files_not_kept: u64) {
        let reader = &self.reader;
        let counted = [
            (reader.total(counter::COUNT_KERNEL_CHAIN_FAILED), Note::KernelStacksMissing as fn(u64) -> Note),
            (reader.total(counter::COUNT_STACK_END_UNKNOWN), Note::StackEndUnknown),
            (reader.total(counter::COUNT_TRACKED_FULL), Note::ProcessesNotFollowed),
            (files_not_kept, Note::FilesNotKept),
            (reader.writer.sideband_dropped(), Note::ProcessEventsDropped),
        ];
        self.notes.extend(counted.into_iter().filter(|&(n, _)| n > 0).map(|(n, note)| note(n)));
    }
}

/// Ticks that would have fired in that time. With a period in cycles there is no saying; then none are counted.
fn ticks_in(time_ns: u64, sampling: Sampling) -> u64 {
    let ticks = match sampling {
        Sampling::FrequencyHz(hz) => u128::from(time_ns) * u128::from(hz) / 1_000_000_000,
        Sampling::Period(_) => 0,
    };
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

fn doorbell<'a>(programs: &'a Programs<'_>) -> Result<libbpf_rs::RingBuffer<'a>, Error> {
    let mut builder = libbpf_rs::RingBufferBuilder::new();
    builder.add(programs.doorbell(), |_| 0).map_err(Error::bpf("waiting for samples"))?;
    builder.build().map_err(Error::bpf("waiting for samples"))
}

fn meta(request: &Request, plan: &Plan, running: &Running) -> Meta {
    let target = match &request.target {
        Target::Command { argv } => model::Target::Command {
            argv: argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            pid: running.command_pid().unwrap_or(0),
        },
        Target::Pids(pids) => model::Target::Pids(pids.clone()),
        Target::System | Target::SystemWhile { .. } => model::Target::System,
    };
    Meta {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        start_ns: monotonic_ns(),
        start_unix_ns: realtime_ns(),
        host: host(),
        collector: Collector::Ebpf,
        events: vec![Event { name: plan.event.name().to_owned(), sampling: request.sampling }],
        mode: request.mode,
        kernel_stacks: request.kernel_stacks,
        scrubbed: !request.keep_raw_stacks,
        target,
    }
}
