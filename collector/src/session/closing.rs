//! The end of a recording: what is left is read, counted and written.

use super::balance::{Written, cpu_counters, with_open};
use super::counted::{Seen, missing_about, missing_exactly, shared};
use super::meta::events;
use super::reader::errno_of;
use super::record::{Session, Spent, cpu_ns};
use super::ticks::ticks_in;
use crate::bpf::types::counter;
use crate::error::Error;
use crate::event::Opened;
use crate::modules::Omitted;
use crate::note::{Note, recorded};
use crate::proc::written;
use crate::request::{Outcome, Target};
use crate::ring::RingId;
use crate::rules::RuleLoader;
use crate::sideband::Throttled;
use crate::sys::{Count, Rusage, monotonic_ns, rusage};
use fpprof_recording::model::{Collector, CpuCounters, End, EndReason, Gap, LossCause, OwnCost, Sampling, Uncounted};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Number of firings that never reached the sampling program, by how it is determined.
#[derive(Debug, Clone, Copy)]
struct Missing {
    /// Of a timer, from the time that passed.
    ticks: u64,
    /// Of software events, from the kernel's count.
    occurrences: u64,
    /// Of a hardware counter, estimated.
    overflows: u64,
    /// Percentage of the time that the hardware counter was counting, if not all of it.
    counter_share: Option<u64>,
}

impl Missing {
    fn uncounted(&self) -> Uncounted {
        Uncounted { ticks: self.ticks + self.occurrences + self.overflows, counter_share_percent: self.counter_share }
    }
}

impl<W: Write> Session<'_, W> {
    /// Stops sampling, reads everything left, and closes the recording.
    pub(super) fn finish(mut self, reason: EndReason, before: &Spent, has_statistics: bool) -> Result<Outcome, Error> {
        let counts = self.samplers.disable()?;
        self.reader.rule_loader.iter().for_each(RuleLoader::end);
        self.programs.stop_waits();
        let stopped_ns = monotonic_ns();
        let at_stop = rusage();
        self.reader.read(u64::MAX);
        self.sample_open_waits(stopped_ns)?;
        if !self.running.terminate()? {
            self.notes.push(Note::TargetStillRuns);
        }
        self.reader.disable_sideband()?;
        self.reader.sideband.count_lost();
        self.reader.read(u64::MAX);
        self.reader.write_open_gaps();
        self.note_throttling();
        self.note_nested(stopped_ns);
        let open: Vec<_> = self.reader.sideband.throttled_now(stopped_ns).collect();
        open.iter().for_each(|throttled| self.write_throttled(throttled));
        let omitted = self.reader.finish_modules(self.request.save_limit);
        self.reader.flush();
        let own_cost = self.own_cost(before, &at_stop, has_statistics)?;
        let still_fails = self.reader.write_failed.filter(|_| self.reader.writer.is_failing());
        let reason = still_fails.map_or(reason, EndReason::WriteFailed);
        let cpus = self.counters(stopped_ns, |ring_id| self.reader.final_written(ring_id));
        let missing = self.missing(&cpus, stopped_ns, &counts)?;
        let uncounted = missing.uncounted();
        self.add_notes(omitted, missing);
        let mut end = End {
            time_ns: stopped_ns,
            reason,
            cpus,
            sideband_lost: self.reader.sideband.lost(),
            own_cost,
            uncounted,
            notes: recorded(&self.notes),
        };
        if let Err(error) = self.reader.writer.finish(&end) {
            let errno = errno_of(&error);
            end.reason = EndReason::WriteFailed(errno);
            self.notes.push(Note::EndNotWritten(errno));
        }
        Ok(Outcome {
            collector: Collector::Ebpf,
            samples: end.cpus.iter().map(|cpu| cpu.recorded).sum(),
            events: events(self.request, &self.plan.event),
            blocked_ns: self.reader.blocked_ns,
            end,
            target_status: self.running.status(),
            duration: Duration::from_nanos(stopped_ns.saturating_sub(self.start_ns)),
            sampled_for: Duration::from_nanos(stopped_ns.saturating_sub(self.begun.time_ns)),
            bytes_written: self.reader.writer.bytes_written(),
            notes: self.notes,
        })
    }

    /// The current counters of all CPUs and events.
    pub(super) fn counters(&self, now_ns: u64, written: impl Fn(RingId) -> Written) -> Vec<CpuCounters> {
        let open: Vec<_> = self.reader.sideband.throttled_now(now_ns).collect();
        let of_ring = |ring_id: RingId| {
            let still =
                open.iter().filter(|throttled| throttled.cpu == ring_id.cpu).map(|throttled| self.ticks(throttled));
            let ticks = self.throttled_ticks.get(&ring_id.cpu).copied().unwrap_or(0) + still.sum::<u64>();
            let ticks = if ring_id.event == 0 { ticks } else { 0 };
            let counters = cpu_counters(ring_id, &self.reader.rings.counters(ring_id), written(ring_id), ticks);
            match self.reader.open_waits {
                Some((id, open)) if id == ring_id => with_open(counters, open),
                _ => counters,
            }
        };
        let ring_ids = self.reader.rings.counted_ring_ids().filter(|ring_id| self.cpus.sampled.contains(&ring_id.cpu));
        ring_ids.map(of_ring).collect()
    }

    /// Counts the ticks suppressed in periods of throttling that have ended, and writes the periods as gaps. Each is
    /// rounded by itself, so that the gaps add up to the count.
    pub(super) fn note_throttling(&mut self) {
        let ended: Vec<_> = self.reader.sideband.take_throttled().collect();
        for throttled in ended {
            *self.throttled_ticks.entry(throttled.cpu).or_default() += self.ticks(&throttled);
            self.write_throttled(&throttled);
        }
    }

    /// Writes losses of probes that hit inside another probe's program, since the last call.
    pub(super) fn note_nested(&mut self, now_ns: u64) {
        let start_ns = std::mem::replace(&mut self.nested.since_ns, now_ns);
        for RingId { cpu, event } in self.reader.rings.counted_ring_ids().filter(|ring_id| ring_id.event == 0) {
            let total = self.reader.rings.counters(RingId { cpu, event }).get(counter::COUNT_LOST_NESTED);
            let known = self.nested.by_cpu.entry(cpu).or_default();
            let lost = total.saturating_sub(std::mem::replace(known, total));
            if lost > 0 {
                self.reader.write_gap(&Gap { cpu, event, start_ns, end_ns: now_ns, lost, cause: LossCause::Nested });
            }
        }
    }

    /// Firings that are in no balance.
    fn missing(&self, cpus: &[CpuCounters], stopped_ns: u64, counts: &BTreeMap<u32, Count>) -> Result<Missing, Error> {
        let of_processor: Vec<_> = self.seen(counts).filter(|_| self.plan.event.is_hardware()).collect();
        let sampling = self.request.sampling;
        let cpus = self.cpus.all_along(cpus);
        let is_timer = self.plan.event.is_timer();
        Ok(Missing {
            ticks: if is_timer { self.begun.missing(sampling, stopped_ns, &cpus) } else { 0 },
            occurrences: self.missing_occurrences(counts)?,
            overflows: missing_about(&of_processor, sampling),
            counter_share: shared(of_processor.iter().map(|&(count, _)| count)),
        })
    }

    /// Occurrences that never reached the program: for counters from their count, for tracepoints and probes from the
    /// program's own statistics.
    fn missing_occurrences(&self, counts: &BTreeMap<u32, Count>) -> Result<u64, Error> {
        if self.plan.event.opened() == Opened::OnEachCpu {
            let Sampling::Period(period) = self.request.sampling else { return Ok(0) };
            let counted = self.seen(counts).filter(|_| self.plan.event.is_counted());
            return Ok(counted.map(|(count, seen)| missing_exactly(count, period, seen)).sum());
        }
        let failed = Error::system("reading the statistics of the BPF programs");
        Ok(self.programs.statistics().map_err(failed)?.sampler.misses)
    }

    /// The kernel's counts and what the programs saw of them, on CPUs that were online throughout.
    fn seen(&self, counts: &BTreeMap<u32, Count>) -> impl Iterator<Item = (Count, Seen)> {
        let all_along = counts.iter().filter(|(cpu, _)| !self.cpus.joined.contains(cpu));
        all_along.map(|(&cpu, &count)| {
            let counters = self.reader.rings.counters(RingId { cpu, event: 0 });
            let (fired, periods) = (counters.get(counter::COUNT_FIRED), counters.get(counter::COUNT_PERIODS));
            (count, Seen { fired, periods })
        })
    }

    fn ticks(&self, throttled: &Throttled) -> u64 {
        ticks_in(throttled.end_ns.saturating_sub(throttled.start_ns), self.request.sampling)
    }

    fn write_throttled(&mut self, throttled: &Throttled) {
        let lost = self.ticks(throttled);
        let &Throttled { cpu, start_ns, end_ns } = throttled;
        if lost > 0 {
            self.reader.write_gap(&Gap { cpu, event: 0, start_ns, end_ns, lost, cause: LossCause::Throttled });
        }
    }

    fn own_cost(&self, before: &Spent, at_stop: &Rusage, has_statistics: bool) -> Result<OwnCost, Error> {
        let now = rusage();
        let statistics = has_statistics.then(|| self.programs.statistics()).transpose();
        let statistics = statistics.map_err(Error::system("reading the statistics of the BPF programs"))?;
        let waits = statistics.and_then(|found| found.waits);
        let wrote = before.written.zip(written());
        let parser_ns = cpu_ns(self.request).saturating_sub(now.cpu_ns());
        Ok(OwnCost {
            user_ns: now.user_ns.saturating_sub(before.usage.user_ns),
            system_ns: now.system_ns.saturating_sub(before.usage.system_ns),
            parser_ns,
            before_start_ns: self.cpu_ns_at_start.saturating_sub(before.usage.cpu_ns()),
            after_stop_ns: now.cpu_ns().saturating_sub(at_stop.cpu_ns()),
            max_rss_bytes: now.max_rss_bytes,
            map_bytes: self.programs.map_bytes(),
            bpf_run_ns: statistics.map(|found| found.sampler.run_ns + found.followers_ns),
            bpf_runs: statistics.map(|found| found.sampler.runs),
            wait_run_ns: waits.map(|waits| waits.run_ns),
            switches: waits.map(|waits| waits.switches),
            ring_bytes: self.reader.total_of(0, counter::COUNT_BYTES),
            interrupt_ns: before.interrupt_ns,
            written_bytes: wrote.map(|(before, now)| now.bytes.saturating_sub(before.bytes)),
            to_disk_bytes: wrote.map(|(before, now)| now.to_disk_bytes.saturating_sub(before.to_disk_bytes)),
        })
    }

    fn add_notes(&mut self, omitted: Omitted, missing: Missing) {
        let reader = &self.reader;
        let stack_ends_unknown =
            reader.total(counter::COUNT_STACK_END_UNKNOWN).saturating_sub(reader.stack_hints.n_found());
        let n_ring_cpus = self.plan.config.n_ring_cpus;
        let n_joined =
            |is_meant: &dyn Fn(u32) -> bool| self.cpus.joined.iter().filter(|&&cpu| is_meant(cpu)).count() as u64;
        let counted = [
            (reader.total(counter::COUNT_KERNEL_CHAIN_FAILED), Note::KernelStacksMissing as fn(u64) -> Note),
            (stack_ends_unknown, Note::StackEndUnknown),
            (reader.total(counter::COUNT_TRACKED_FULL), Note::ProcessesNotFollowed),
            (missing.ticks, Note::TicksMissing),
            (missing.occurrences, Note::OccurrencesMissing),
            (missing.overflows, Note::OverflowsMissing),
            (self.cpus.unsampled().len() as u64, Note::CpusNotSampled),
            (n_joined(&|cpu| cpu < n_ring_cpus), Note::CpusJoined),
            (n_joined(&|cpu| cpu >= n_ring_cpus), Note::CpusWithoutRing),
            (u64::from(!self.cpus.are_watched()), |_| Note::CpusNotWatched),
            (reader.total(counter::COUNT_SHED), Note::StacksShed),
            (reader.open_waits.map_or(0, |(_, open)| open.recorded), Note::StillBlocked),
            (self.request.parser.n_failed(), Note::ParserFailed),
            (self.request.parser.n_left_out(), Note::FilesNotParsed),
            (reader.tracker.n_left_by_exec(), Note::EventsRemovedByExec),
            (reader.sideband.n_names_left_out(), Note::NamesNotRecorded),
            (reader.writer.gaps_dropped(), Note::GapsDropped),
            (reader.writer.sideband_dropped(), Note::ProcessEventsDropped),
        ];
        self.notes.extend(missing.counter_share.map(Note::CounterShared));
        self.notes.extend(self.existing.note());
        let (mappings, samples) = (reader.sideband.n_not_in_full(), reader.resync.n_unclear());
        // They are counted of all processes of the machine, profiled or not.
        let has_missing = samples > 0 || (mappings > 0 && self.request.target == Target::System);
        self.notes.extend(has_missing.then_some(Note::MappingsNotRecorded { mappings, samples }));
        let counted = counted.into_iter().chain(omitted.counted());
        self.notes.extend(counted.filter(|&(n, _)| n > 0).map(|(n, note)| note(n)));
    }
}
