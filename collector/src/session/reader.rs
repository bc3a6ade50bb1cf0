//! Reading of the ring buffers into the recording.

use super::balance::{LOST, OpenWaits, Written};
use super::stack_hints::StackHints;
use super::wait_halves::WaitHalves;
use super::waits::{WAITS, leave_out_own};
use crate::bpf::types::{cfi_miss, counter};
use crate::decode::{Kind, decode, kind, record_time_ns};
use crate::error::Error;
use crate::groups::Groups;
use crate::modules::{Modules, Omitted};
use crate::proc::{MemoryReads, start_ticks};
use crate::request::Request;
use crate::ring::{Cursor, RingId, Rings};
use crate::rules::{JitProcesses, Missed, RuleLoader};
use crate::sampled::{AtSample, FollowsSamples, describe_sampled};
use crate::sideband::{Seen, Sharing, SidebandSource, Tracker, Verdict};
use crate::synthesis::{Follows, Resync, describe_parent};
use fpprof_recording::model::{CaptureMode, CfiEnd, Checkpoint, Gap, LossCause, Sample, Sideband};
use fpprof_recording::{RecordingWriter, WriteTally};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;
use std::ops::Range;
use std::time::Duration;

/// Reads all rings, merges them by time, and writes the recording.
pub(super) struct Reader<W> {
    pub(super) writer: RecordingWriter<W>,
    pub(super) sideband: SidebandSource,
    pub(super) rings: Rings,
    pub(super) tracker: Tracker,
    sharing: Sharing,
    groups: Groups,
    pub(super) modules: Modules,
    pub(super) keeps_raw_stacks: bool,
    pub(super) keeps_regs: bool,
    /// errno of the first failed write.
    pub(super) write_failed: Option<i32>,
    /// Samples passed to the writer.
    pub(super) n_samples: u64,
    pub(super) ring_bytes: u64,
    /// Time of the waits among them.
    pub(super) blocked_ns: u64,
    /// Waits that were open at the end, and the ring that they count for.
    pub(super) open_waits: Option<(RingId, OpenWaits)>,
    /// Address range of the kernel's scheduling function, if waits are sampled.
    pub(super) switching: Option<Range<u64>>,
    pub(super) stack_hints: StackHints,
    /// Loads rules for walks by call frame information, in modes that use them.
    pub(super) rule_loader: Option<RuleLoader>,
    /// Walks that missed a rule.
    n_missed: u64,
    /// Releases JIT-compiled code for such walks, in the same modes.
    jit_processes: Option<JitProcesses>,
    pub(super) wait_halves: WaitHalves,
    /// Waits whose stacks were never read: the thread had continued before.
    woken: BTreeMap<RingId, u64>,
    process_events: Vec<Sideband>,
    cursors: Vec<Cursor>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    sample: Sample,
    gaps: Vec<Gap>,
    pub(super) resync: Resync,
}

/// What a reader is built from.
pub(super) struct Parts<W> {
    pub(super) writer: RecordingWriter<W>,
    pub(super) sideband: SidebandSource,
    pub(super) rings: Rings,
    pub(super) tracker: Tracker,
    pub(super) modules: Modules,
    pub(super) stack_hints: StackHints,
    pub(super) rule_loader: Option<RuleLoader>,
    pub(super) jit_processes: Option<JitProcesses>,
    pub(super) memory: MemoryReads,
}

impl<W: Write> Reader<W> {
    pub(super) fn new(parts: Parts<W>, request: &Request) -> Self {
        let Parts { writer, sideband, rings, tracker, modules, stack_hints, rule_loader, jit_processes, memory } =
            parts;
        Self {
            writer,
            sideband,
            rings,
            tracker,
            sharing: Sharing::default(),
            groups: Groups::new(request, memory.clone()),
            modules,
            keeps_raw_stacks: request.keep_raw_stacks,
            keeps_regs: request.mode != CaptureMode::Fp,
            write_failed: None,
            n_samples: 0,
            ring_bytes: 0,
            blocked_ns: 0,
            open_waits: None,
            switching: None,
            stack_hints,
            rule_loader,
            n_missed: 0,
            jit_processes,
            wait_halves: WaitHalves::default(),
            woken: BTreeMap::new(),
            process_events: Vec::new(),
            cursors: Vec::new(),
            next: BinaryHeap::new(),
            sample: Sample::default(),
            gaps: Vec::new(),
            resync: Resync::new(memory, request.parts_control.clone()),
        }
    }

    /// How many walks by call frame information missed rules so far; `None` if no rules can be found for them.
    pub(super) fn n_missed(&self) -> Option<u64> {
        self.rule_loader.as_ref().filter(|loader| loader.finds_rules()).map(|_| self.n_missed)
    }

    /// See [`crate::Progress::rules_do_not_fit`].
    pub(super) fn rules_do_not_fit(&self) -> bool {
        self.rule_loader.as_ref().is_some_and(RuleLoader::do_not_fit)
    }

    /// Reads everything up to `cut_ns`.
    ///
    /// The heads of the sample rings are loaded before process events are read, but samples are read after them: so
    /// whatever a process did before one of its samples has been read when the sample is.
    pub(super) fn read(&mut self, cut_ns: u64) {
        self.cursors.clear();
        self.cursors.extend(self.rings.ring_ids().map(|ring_id| self.rings.cursor(ring_id)));
        self.modules.forget_unused();
        let mut events = std::mem::take(&mut self.process_events);
        self.sideband.drain(cut_ns, &mut events);
        events.drain(..).for_each(|event| self.read_event(event));
        self.process_events = events;
        self.resync.note(self.sideband.lost().events);
        self.resync.end_gone(&mut self.tracker);
        self.read_samples(cut_ns);
        self.tracker.forget_ended(cut_ns);
        self.sharing.forget_ended(|pid| self.tracker.knows(pid));
        self.groups.forget_ended(|pid| self.tracker.knows(pid));
        self.wait_halves.forget_ended();
        self.write_modules();
    }

    fn read_event(&mut self, mut event: Sideband) {
        if let Sideband::Exit(exit) = &event {
            self.wait_halves.thread_ended(exit.tid);
        }
        describe_parent(self, &event);
        add_start(&mut event, &self.tracker);
        let verdict = self.tracker.apply(&event);
        if verdict == Verdict::Skip {
            return;
        }
        if let Some(group) = self.groups.due_at_fork(&event) {
            self.write_event(group);
        }
        self.groups.apply(&event);
        let copies = self.sharing.apply(&event);
        if verdict == Verdict::Keep {
            self.keep(event);
        }
        for copy in copies {
            if self.tracker.apply(&copy) == Verdict::Keep {
                self.keep(copy);
            }
        }
    }

    fn keep(&mut self, event: Sideband) {
        if let Sideband::Mmap(mmap) = &event {
            self.rule_loader.iter_mut().for_each(|rule_loader| rule_loader.mapped(mmap));
            self.jit_processes.iter_mut().for_each(|processes| processes.mapped(mmap));
        }
        note(&mut self.write_failed, write_event(&mut self.writer, &mut self.modules, &self.tracker, event));
    }

    fn read_samples(&mut self, cut_ns: u64) {
        let mut next = std::mem::take(&mut self.next);
        let time =
            |rings: &Rings, cursor: &Cursor| rings.record(cursor).map(|record| record_time_ns(record).unwrap_or(0));
        let all = self.cursors.iter().enumerate();
        next.extend(all.filter_map(|(i, cursor)| Some(Reverse((time(&self.rings, cursor)?, i)))));
        while let Some(Reverse((time_ns, i))) = next.pop() {
            if time_ns > cut_ns {
                break;
            }
            let Some(mut cursor) = self.cursors.get(i).copied() else { break };
            self.read_sample(&mut cursor);
            self.rings.release(&cursor);
            if let Some(time_ns) = time(&self.rings, &cursor) {
                next.push(Reverse((time_ns, i)));
            }
            if let Some(slot) = self.cursors.get_mut(i) {
                *slot = cursor;
            }
        }
        next.clear();
        self.next = next;
    }

    fn read_sample(&mut self, cursor: &mut Cursor) {
        let record = self.rings.record(cursor).unwrap_or(&[]);
        let record_bytes = record.len();
        let decoded = decode(record, cursor.ring_id(), self.keeps_regs, &mut self.sample, &mut self.gaps);
        let (Some((kind, start_boottime)), Ok(miss)) = (kind(record), decoded) else {
            // Cannot happen; what follows cannot be decoded. All of it counts as dropped.
            return cursor.skip_all();
        };
        miss.into_iter().for_each(|miss| self.resolve(&miss));
        self.ring_bytes += record_bytes as u64;
        if !self.sample.stack.is_empty() && self.sample.stack_end.is_none() {
            self.stack_hints.find_end(&mut self.sample, start_boottime);
        }
        match kind {
            Kind::Sample => self.hand_over(),
            Kind::WaitBegun { since_ns } => self.wait_halves.begin(since_ns, &self.sample),
            Kind::WaitEnded { since_ns } if self.wait_halves.end(since_ns, &mut self.sample) => self.hand_over(),
            Kind::WaitEnded { .. } => self.lose_wait(cursor.ring_id()),
        }
        for gap in self.gaps.drain(..) {
            note(&mut self.write_failed, self.writer.gap(&gap));
        }
        self.rings.advance(cursor, record_bytes);
    }

    /// Provides what the current sample's walk was given up for, so that the next ones go on.
    fn resolve(&mut self, miss: &cfi_miss) {
        let is_resolved = match (self.sample.cfi_end, &mut self.jit_processes, &self.rule_loader) {
            (Some(CfiEnd::NoFile), Some(processes), _) => {
                let Sample { pid, tid, .. } = self.sample;
                processes.missed(pid, tid, &miss.program)
            }
            (_, _, Some(rule_loader)) => {
                rule_loader.request(Missed::new(&self.sample, miss));
                true
            }
            _ => false,
        };
        if is_resolved {
            self.n_missed += 1;
        }
    }

    /// Counts a wait that has a length but no stacks.
    fn lose_wait(&mut self, ring_id: RingId) {
        *self.woken.entry(ring_id).or_default() += 1;
        let RingId { cpu, event } = ring_id;
        let time_ns = self.sample.time_ns;
        self.write_gap(&Gap { cpu, event, start_ns: time_ns, end_ns: time_ns, lost: 1, cause: LossCause::Woken });
    }

    /// Writes the current sample to the recording.
    fn hand_over(&mut self) {
        if self.sample.event == WAITS {
            self.blocked_ns = self.blocked_ns.saturating_add(self.sample.weight);
            self.switching.iter().for_each(|code| leave_out_own(&mut self.sample.kernel, code));
        }
        describe_sampled(self);
        let sample = &self.sample;
        self.modules.note_kernel(&sample.kernel);
        let scrub = (!self.keeps_raw_stacks).then(|| self.tracker.ranges(sample));
        note(&mut self.write_failed, self.writer.hand_over(sample, scrub));
        self.n_samples += 1;
    }

    /// Writes a sample that is in no ring.
    pub(super) fn write_sample(&mut self, sample: Sample) {
        self.sample = sample;
        self.hand_over();
    }

    /// Writes each CPU's losses since its last sample. Call it when no more samples are taken.
    pub(super) fn write_open_gaps(&mut self) {
        for gap in self.rings.counted_ring_ids().flat_map(|ring_id| self.rings.open_gaps(ring_id)) {
            note(&mut self.write_failed, self.writer.gap(&gap));
        }
    }

    /// Writes a gap that is in no ring.
    pub(super) fn write_gap(&mut self, gap: &Gap) {
        let written = self.writer.gap(gap);
        note(&mut self.write_failed, written);
    }

    /// Writes an event that is in no ring.
    pub(super) fn write_event(&mut self, event: Sideband) {
        self.groups.apply(&event);
        if self.tracker.apply(&event) == Verdict::Pass {
            return;
        }
        self.keep(event);
    }

    /// Writes modules that are no longer at their paths, as far as they are ready.
    fn write_modules(&mut self) {
        for module in self.modules.ready() {
            note(&mut self.write_failed, self.writer.module(module));
        }
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

    /// Writes the balance so far.
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        let written = self.writer.checkpoint(checkpoint);
        note(&mut self.write_failed, written);
    }

    /// What became of a ring's samples so far, except those in flight.
    pub(super) fn current_written(&self, ring_id: RingId) -> Written {
        let tally = self.writer.tallies().get(&(ring_id.event, ring_id.cpu)).copied().unwrap_or_default();
        Written { recorded: tally.written, dropped: tally.unwritten, woken: self.n_woken(ring_id) }
    }

    /// What became of all of a ring's samples. Call it when none is in flight.
    pub(super) fn final_written(&self, ring_id: RingId) -> Written {
        let recorded = self.current_written(ring_id).recorded;
        let open = self.open_waits.filter(|&(id, _)| id == ring_id).map_or(0, |(_, open)| open.recorded);
        let handed_over = self.rings.counters(ring_id).get(counter::COUNT_RECORDED) + open;
        let woken = self.n_woken(ring_id);
        Written { recorded, dropped: handed_over.saturating_sub(recorded + woken), woken }
    }

    fn n_woken(&self, ring_id: RingId) -> u64 {
        self.woken.get(&ring_id).copied().unwrap_or(0)
    }

    /// Samples that could not be written.
    pub(super) fn n_unwritten(&self) -> u64 {
        self.writer.tallies().values().map(|WriteTally { unwritten, .. }| unwritten).sum()
    }

    /// Samples lost on the kernel's side so far.
    pub(super) fn n_lost(&self) -> u64 {
        self.rings.counted_ring_ids().map(|ring_id| self.rings.counters(ring_id).sum(&LOST)).sum()
    }

    /// Sum of a counter over all CPUs and events.
    pub(super) fn total(&self, which: counter) -> u64 {
        self.rings.counted_ring_ids().map(|ring_id| self.rings.counters(ring_id).get(which)).sum()
    }

    /// Sum of a counter over all CPUs, for one event.
    pub(super) fn total_of(&self, event: u16, which: counter) -> u64 {
        let ring_ids = self.rings.counted_ring_ids().filter(|ring_id| ring_id.event == event);
        ring_ids.map(|ring_id| self.rings.counters(ring_id).get(which)).sum()
    }

    /// Stops process events; their rings can only be read to the end after that.
    pub(super) fn disable_sideband(&self) -> Result<(), Error> {
        self.sideband.disable()
    }
}

/// Adds the start time to the exec of a process that no event reported: another process may have had its number.
pub(crate) fn add_start(event: &mut Sideband, tracker: &Tracker) {
    if let Sideband::Comm(comm) = event
        && comm.exec
        && !tracker.knows(comm.pid)
    {
        comm.start_ticks = start_ticks(comm.pid).unwrap_or(0);
    }
}

/// Writes an event, and notes the file of a mapping.
pub(crate) fn write_event<W: Write>(
    writer: &mut RecordingWriter<W>,
    modules: &mut Modules,
    tracker: &Tracker,
    mut event: Sideband,
) -> Result<(), fpprof_recording::Error> {
    if let Sideband::Mmap(mmap) = &mut event {
        modules.note(mmap, tracker);
    }
    writer.sideband(&event)
}

/// Keeps the first write error. The writer counts what could not be written.
pub(crate) fn note(failed: &mut Option<i32>, result: Result<(), fpprof_recording::Error>) {
    if let Err(error) = result {
        failed.get_or_insert(errno_of(&error));
    }
}

/// The errno of a write error.
pub(crate) fn errno_of(error: &fpprof_recording::Error) -> i32 {
    let errno = match error {
        fpprof_recording::Error::Write(source) => source.raw_os_error(),
        _ => None,
    };
    errno.unwrap_or(libc::EIO)
}

impl<W: Write> FollowsSamples for Reader<W> {
    fn at_sample(&mut self) -> AtSample<'_> {
        let Self { sample, tracker, resync, sharing, groups, .. } = self;
        AtSample { sample, tracker, resync, sharing, groups }
    }
}

impl<W: Write> Follows for Reader<W> {
    fn add(&mut self, pid: u32, seen: &Seen) {
        self.tracker.add(pid, seen);
    }

    fn write_event(&mut self, event: Sideband) {
        Self::write_event(self, event);
    }

    fn followed(&mut self) -> (&Tracker, &mut Resync) {
        (&self.tracker, &mut self.resync)
    }
}
