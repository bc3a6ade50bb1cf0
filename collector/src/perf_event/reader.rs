//! Reading of the ring buffers into the recording.

use super::decode::{SampleLayout, decode, kind, time_ns};
use super::dumpable::Dumpable;
use super::events::{CpuEvents, Events};
use super::stack_ends::StackEnds;
use crate::error::Error;
use crate::groups::Groups;
use crate::modules::{Modules, Omitted};
use crate::proc::MemoryReads;
use crate::request::{MAX_EXCLUDED, Request, Target};
use crate::sampled::{AtSample, FollowsSamples, describe_sampled};
use crate::session::{add_start, note, ticks_in, write_event};
use crate::sideband::{Body, Records, Seen, Sharing, Throttling, Tracker, Verdict};
use crate::synthesis::{Follows, Resync, describe_parent};
use crate::sys::{PerfRing, Poller};
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{Checkpoint, CpuCounters, Gap, LossCause, Sample, Sampling, Sideband};
use perf_event_open_sys::bindings;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

/// Reads all rings, merges them by time, and writes the recording.
pub(super) struct Reader<W> {
    pub(super) writer: RecordingWriter<W>,
    pub(super) events: Events,
    pub(super) tracker: Tracker,
    sharing: Sharing,
    groups: Groups,
    pub(super) modules: Modules,
    pub(super) stack_ends: StackEnds,
    dumpable: Dumpable,
    pub(super) options: Options,
    /// errno of the first failed write.
    pub(super) write_failed: Option<i32>,
    /// Total bytes of sample records.
    pub(super) ring_bytes: u64,
    counts: BTreeMap<u32, Counts>,
    process_events: Vec<Sideband>,
    cursors: Vec<Cursor>,
    scratch: Vec<u8>,
    sample: Sample,
    pub(super) resync: Resync,
}

/// What to do with samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) layout: SampleLayout,
    pub(super) sampling: Sampling,
    pub(super) keeps_raw_stacks: bool,
    pub(super) includes_privileged: bool,
    pub(super) only_user: Option<u32>,
    /// Processes whose samples are skipped.
    pub(super) excluded_pids: [u32; MAX_EXCLUDED],
}

/// Counts of a CPU's ring so far.
#[derive(Debug, Default)]
struct Counts {
    /// Samples read, whatever happened to them.
    read: u64,
    /// Of those, samples of something that is not profiled.
    skipped: u64,
    /// Samples lost for lack of room, according to the records.
    lost: u64,
    /// Ticks suppressed by throttling that is over.
    throttled: u64,
    throttling: Throttling,
    /// Samples lost for lack of room in rings that are closed, as the kernel counted them.
    lost_before: u64,
    /// Time of the last record.
    last_ns: u64,
}

/// Reading position in a ring.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    at: u64,
    head: u64,
    /// Time of the record at `at`; `None` at the end.
    time_ns: Option<u64>,
}

impl Cursor {
    fn new(ring: &PerfRing, at: u64, head: u64, scratch: &mut Vec<u8>) -> Self {
        let record = ring.record(at, head, scratch);
        Self { at, head, time_ns: record.map(|record| time_ns(record).unwrap_or(0)) }
    }
}

impl<W: Write> Reader<W> {
    pub(super) fn new(
        writer: RecordingWriter<W>,
        events: Events,
        modules: Modules,
        options: Options,
        request: &Request,
    ) -> Self {
        let memory = MemoryReads::default();
        let follows_all = !events.has_threads();
        let tracker = Tracker::new(follows_all);
        // The kernel removes the events of a process when it executes a setuid program. What has a process's number when
        // events are opened may be another one by then, and of another user.
        let may_be_others = options.only_user.is_some() && !matches!(request.target, Target::Command { .. });
        Self {
            writer,
            events,
            tracker,
            sharing: Sharing::default(),
            groups: Groups::new(request, memory.clone()),
            modules,
            stack_ends: StackEnds::default(),
            dumpable: Dumpable::new(!follows_all && !may_be_others, options.includes_privileged, options.only_user),
            options,
            write_failed: None,
            ring_bytes: 0,
            counts: BTreeMap::new(),
            process_events: Vec::new(),
            cursors: Vec::new(),
            scratch: Vec::new(),
            sample: Sample::default(),
            resync: Resync::new(memory, request.parts_control.clone()),
        }
    }

    /// Reads everything up to `cut_ns`. The heads of the sample rings are loaded before process events are read, but
    /// samples are read after them: so whatever a process did before one of its samples has been read when the sample
    /// is.
    pub(super) fn read(&mut self, cut_ns: u64) {
        let mut cursors = std::mem::take(&mut self.cursors);
        let scratch = &mut self.scratch;
        let cursor = |cpu: &CpuEvents| Cursor::new(&cpu.ring, cpu.ring.tail(), cpu.ring.head(), scratch);
        cursors.extend(self.events.cpus.iter().map(cursor));
        self.modules.forget_unused();
        let mut events = std::mem::take(&mut self.process_events);
        self.events.sideband.drain(cut_ns, &mut events);
        events.drain(..).for_each(|event| self.read_event(event));
        self.process_events = events;
        self.resync.note(self.events.sideband.lost().events);
        self.resync.end_gone(&mut self.tracker);
        while let Some((i, cursor)) = earliest(&cursors, cut_ns) {
            let next = self.read_record(i, cursor);
            if let Some(slot) = cursors.get_mut(i) {
                *slot = next;
            }
        }
        cursors.clear();
        self.cursors = cursors;
        for (cpu, lost) in self.events.close_read() {
            self.counts.entry(cpu).or_default().lost_before += lost;
        }
        self.tracker.forget_ended(cut_ns);
        self.sharing.forget_ended(|pid| self.tracker.knows(pid));
        let tracker = &self.tracker;
        self.groups.forget_ended(|pid| tracker.knows(pid));
        self.stack_ends.forget_ended(|pid| tracker.knows(pid));
        self.dumpable.forget_ended(|pid| tracker.knows(pid));
        for module in self.modules.ready() {
            note(&mut self.write_failed, self.writer.module(module));
        }
    }

    fn read_event(&mut self, mut event: Sideband) {
        describe_parent(self, &event);
        add_start(&mut event, &self.tracker);
        let verdict = self.tracker.apply(&event);
        if verdict == Verdict::Skip {
            return;
        }
        self.stack_ends.apply(&event);
        self.dumpable.apply(&event);
        if let Some(group) = self.groups.due_at_fork(&event) {
            self.write_event(group);
        }
        self.groups.apply(&event);
        let copies = self.sharing.apply(&event);
        if verdict == Verdict::Keep {
            note(&mut self.write_failed, write_event(&mut self.writer, &mut self.modules, &self.tracker, event));
        }
        for copy in copies {
            self.stack_ends.apply(&copy);
            if self.tracker.apply(&copy) == Verdict::Keep {
                note(&mut self.write_failed, write_event(&mut self.writer, &mut self.modules, &self.tracker, copy));
            }
        }
    }

    fn read_record(&mut self, i: usize, cursor: Cursor) -> Cursor {
        let Some(cpu) = self.events.cpus.get_mut(i) else { return Cursor { time_ns: None, ..cursor } };
        let counts = self.counts.entry(cpu.cpu).or_default();
        let Some(record) = cpu.ring.record(cursor.at, cursor.head, &mut self.scratch) else {
            return Cursor { time_ns: None, ..cursor };
        };
        let record_bytes = record.len() as u64;
        let mut is_wanted = false;
        if kind(record) == bindings::PERF_RECORD_SAMPLE {
            counts.read += 1;
            self.ring_bytes += record_bytes;
            match decode(record, self.options.layout, &mut self.sample) {
                // The idle task, or a process that is not profiled.
                Ok(()) if self.sample.tid == 0 || self.options.excluded_pids.contains(&self.sample.pid) => {
                    counts.skipped += 1;
                }
                Ok(()) => {
                    let sample = &mut self.sample;
                    (sample.cpu_fired, sample.cpu_lost) = (counts.read + counts.lost, counts.lost);
                    is_wanted = true;
                }
                // Cannot happen; counts as dropped.
                Err(_) => {}
            }
        } else {
            let time_ns = cursor.time_ns.unwrap_or(0);
            let body = (Records { bytes: record }).next().map(|record| record.body());
            for gap in counts.take(cpu.cpu, time_ns, body, self.options.sampling) {
                note(&mut self.write_failed, self.writer.gap(&gap));
            }
        }
        counts.last_ns = cursor.time_ns.unwrap_or(counts.last_ns);
        let at = cursor.at + record_bytes;
        cpu.ring.release(at);
        let next = Cursor::new(&cpu.ring, at, cursor.head, &mut self.scratch);
        if is_wanted {
            self.hand_over();
        }
        next
    }

    /// Writes the current sample to the recording.
    fn hand_over(&mut self) {
        describe_sampled(self);
        let sample = &mut self.sample;
        end_stack(sample, &mut self.stack_ends);
        withhold(sample, &mut self.dumpable);
        self.modules.note_kernel(&sample.kernel);
        let ranges = self.tracker.ranges(sample);
        let scrub = (!self.options.keeps_raw_stacks).then_some(ranges);
        note(&mut self.write_failed, self.writer.hand_over(sample, scrub));
    }

    /// Writes an event that is in no ring.
    pub(super) fn write_event(&mut self, event: Sideband) {
        let verdict = self.tracker.apply(&event);
        self.stack_ends.apply(&event);
        self.groups.apply(&event);
        if verdict == Verdict::Pass {
            return;
        }
        let written = write_event(&mut self.writer, &mut self.modules, &self.tracker, event);
        note(&mut self.write_failed, written);
    }

    /// Writes all files that will be gone; returns what could not be kept.
    pub(super) fn finish_modules(&mut self, limit: Option<Duration>) -> Omitted {
        let (writer, write_failed) = (&mut self.writer, &mut self.write_failed);
        self.modules.finish(limit, |module| note(write_failed, writer.module(module)))
    }

    /// Flushes everything written so far.
    pub(super) fn flush(&mut self) {
        let flushed = self.writer.flush();
        note(&mut self.write_failed, flushed);
    }

    /// Writes the balance so far, after all the samples it counts.
    pub(super) fn checkpoint(&mut self, time_ns: u64) {
        // First, so that the checkpoint counts the samples of all preceding blocks.
        self.flush();
        self.events.sideband.count_lost();
        let sideband_lost = self.events.sideband.lost();
        let checkpoint = Checkpoint { time_ns, cpus: self.counters(false), sideband_lost };
        let written = self.writer.checkpoint(&checkpoint);
        note(&mut self.write_failed, written);
        self.flush();
    }

    /// Samples a CPU that has come online.
    pub(super) fn reopen(&mut self, cpu: u32, poller: &Poller) -> Result<(), Error> {
        self.events.reopen(cpu, poller)?;
        self.counts.entry(cpu).or_default().throttling.give_up();
        Ok(())
    }

    /// The CPUs that are or were sampled, in order.
    fn cpus(&self) -> BTreeSet<u32> {
        self.events.cpus.iter().map(|cpu| cpu.cpu).chain(self.counts.keys().copied()).collect()
    }

    /// Counts what no record reported: throttling that has not ended, and losses since the last record, from the
    /// kernel's own count. Call it when no more samples can arrive.
    pub(super) fn close_balance(&mut self, stopped_ns: u64) {
        for cpu in self.cpus() {
            let counts = self.counts.entry(cpu).or_default();
            let rings = self.events.cpus.iter().filter(|ring| ring.cpu == cpu);
            let lost =
                rings.map(CpuEvents::lost).try_fold(counts.lost_before, |sum, lost| Some(sum.saturating_add(lost?)));
            let lost = lost.unwrap_or(counts.lost).saturating_sub(counts.lost);
            let end_of_throttling = counts.throttling.open_since_ns().map(|_| Body::Unthrottle { time_ns: stopped_ns });
            let end_of_losses = (lost > 0).then_some(Body::Lost(lost));
            for body in [end_of_throttling, end_of_losses] {
                for gap in counts.take(cpu, stopped_ns, body, self.options.sampling) {
                    note(&mut self.write_failed, self.writer.gap(&gap));
                }
            }
        }
    }

    /// The balance of every CPU: fired is the sum of read, lost, and throttled. At the end nothing is in flight: what
    /// was read and is not in the recording was dropped.
    pub(super) fn counters(&self, is_end: bool) -> Vec<CpuCounters> {
        let none = Counts::default();
        let of_cpu = |cpu: u32| {
            let counts = self.counts.get(&cpu).unwrap_or(&none);
            let tally = self.writer.tallies().get(&(0, cpu)).copied().unwrap_or_default();
            let causes = [(LossCause::RingFull, counts.lost), (LossCause::Throttled, counts.throttled)];
            let recorded = tally.written;
            let not_recorded = counts.read.saturating_sub(counts.skipped).saturating_sub(recorded);
            CpuCounters {
                cpu,
                fired: counts.read + counts.lost + counts.throttled,
                recorded,
                lost: causes.into_iter().filter(|&(_, n)| n > 0).collect(),
                skipped: counts.skipped,
                dropped: if is_end { not_recorded } else { tally.unwritten },
                ..CpuCounters::default()
            }
        };
        self.cpus().into_iter().map(of_cpu).collect()
    }

    /// Samples written, lost, and dropped so far.
    pub(super) fn totals(&self) -> (u64, u64, u64) {
        let samples: u64 = self.counts.values().map(|counts| counts.read - counts.skipped).sum();
        let lost = self.counts.values().map(|counts| counts.lost).sum();
        let unwritten = self.writer.tallies().values().map(|tally| tally.unwritten).sum();
        (samples.saturating_sub(unwritten), lost, unwritten)
    }

    /// Whether a ring is a quarter full: what was in it last time was too recent to read, or much has come since.
    pub(super) fn is_filling(&self) -> bool {
        self.events.cpus.iter().any(|cpu| {
            let filled = cpu.ring.head().wrapping_sub(cpu.ring.tail());
            filled >= cpu.ring.data_bytes() as u64 / 4
        })
    }
}

impl Counts {
    /// Counts a record that is not a sample; returns the gap that it reports.
    fn take(&mut self, cpu: u32, time_ns: u64, body: Option<Body>, sampling: Sampling) -> Vec<Gap> {
        match body {
            Some(Body::Lost(lost)) => {
                self.lost = self.lost.saturating_add(lost);
                // After the last record, which can itself report losses.
                let start_ns = if self.last_ns > 0 { self.last_ns.saturating_add(1).min(time_ns) } else { time_ns };
                return vec![Gap { cpu, event: 0, start_ns, end_ns: time_ns, lost, cause: LossCause::RingFull }];
            }
            Some(Body::Throttle { time_ns }) => self.throttling.begin(time_ns),
            Some(Body::Unthrottle { time_ns }) => self.throttling.end(time_ns),
            _ => {}
        }
        let mut gaps = Vec::new();
        for (start_ns, end_ns) in self.throttling.take_ended() {
            let lost = ticks_in(end_ns.saturating_sub(start_ns), sampling);
            self.throttled = self.throttled.saturating_add(lost);
            let gap = Gap { cpu, event: 0, start_ns, end_ns, lost, cause: LossCause::Throttled };
            gaps.extend((lost > 0).then_some(gap));
        }
        gaps
    }
}

fn earliest(cursors: &[Cursor], cut_ns: u64) -> Option<(usize, Cursor)> {
    let timed = cursors.iter().enumerate().filter_map(|(i, cursor)| Some((cursor.time_ns?, i, *cursor)));
    let (_, i, cursor) =
        timed.filter(|&(time_ns, _, _)| time_ns <= cut_ns).min_by_key(|&(time_ns, i, _)| (time_ns, i))?;
    Some((i, cursor))
}

/// Removes the copied stack from a sample if its process is not dumpable.
fn withhold(sample: &mut Sample, dumpable: &mut Dumpable) {
    if sample.stack.is_empty() || dumpable.allows(sample.pid, sample.time_ns) {
        return;
    }
    sample.stack.clear();
    sample.user_regs = sample.user_regs.map(|regs| regs.pointers());
    sample.withheld = true;
}

/// Sets the end of the stack, and removes what lies beyond: arguments, environment, other mappings.
fn end_stack(sample: &mut Sample, stack_ends: &mut StackEnds) {
    let Some(sp) = sample.user_regs.map(|regs| regs.sp()) else { return };
    sample.stack_end = stack_ends.end(sample.pid, sp, sample.time_ns, sample.stack_from_sp());
    if let Some(end) = sample.stack_end {
        let depth = usize::try_from(end.address.saturating_sub(sp)).unwrap_or(usize::MAX);
        sample.stack.truncate(depth);
    }
}

impl<W: Write> Follows for Reader<W> {
    fn add(&mut self, pid: u32, seen: &Seen) {
        self.tracker.add(pid, seen);
        self.stack_ends.add(pid, seen.is_anew);
    }

    fn write_event(&mut self, event: Sideband) {
        Self::write_event(self, event);
    }

    fn followed(&mut self) -> (&Tracker, &mut Resync) {
        (&self.tracker, &mut self.resync)
    }
}

impl<W: Write> FollowsSamples for Reader<W> {
    fn at_sample(&mut self) -> AtSample<'_> {
        let Self { sample, tracker, resync, sharing, groups, .. } = self;
        AtSample { sample, tracker, resync, sharing, groups }
    }
}
