//! Counts samples by time slice, and losses between two samples of a CPU.
//!
//! A recording usually has the times and causes of losses. If it does not, or not for all losses of a CPU, each sample
//! still has the number of samples its CPU had lost before: then the losses are between two samples. Slices double
//! their length as the recording turns out longer. So the slices of all analysis threads nest, and their sum does not
//! depend on the order of samples.

use super::model::{Gap, OverTime, Slice};
use super::pairs::PairIndex;
use crate::listed::{Listed, Who};
use crate::replay::{Collect, Seen};
use fpprof_recording::model::{self, LossCause};
use fpprof_unwind::{StackRef, StopReason};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The most slices: about the width of the picture.
const MAX_SLICES: u64 = 512;
/// Initial length of a slice: 2^this nanoseconds, about a millisecond.
const FIRST_SHIFT: u32 = 20;

/// Data about a recording, other than its samples, that the picture over time needs.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    /// The processes whose slices are wanted, and their indices.
    pub(crate) processes: &'a FxHashMap<Who, u32>,
    /// Total losses of each CPU.
    pub(crate) lost: &'a [(u32, u64)],
    /// Recorded gaps, for each CPU and cause in order of time.
    pub(crate) recorded: &'a [model::Gap],
    /// End of the recording, in the recording's clock.
    pub(crate) end_ns: u64,
}

/// Counts samples over time.
#[derive(Debug)]
pub(crate) struct OverTimeCounter<'a> {
    listed: &'a Listed<'a>,
    pair: PairIndex,
    start_ns: u64,
    shift: u32,
    last_ns: u64,
    counts: FxHashMap<(u64, Who), [[u64; 3]; 2]>,
    cpus: FxHashMap<(u64, u32), Counters>,
}

/// The first and the last sample of a CPU in a slice, each with its time and the samples lost before it.
#[derive(Debug, Clone, Copy)]
struct Counters {
    first: (u64, u64),
    last: (u64, u64),
}

impl Counters {
    fn merge(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

impl<'a> OverTimeCounter<'a> {
    /// Creates a counter for a recording that began at `start_ns`.
    pub(crate) fn new(pair: PairIndex, start_ns: u64, listed: &'a Listed<'a>) -> Self {
        Self {
            listed,
            pair,
            start_ns,
            shift: FIRST_SHIFT,
            last_ns: 0,
            counts: FxHashMap::default(),
            cpus: FxHashMap::default(),
        }
    }

    /// The result.
    pub(crate) fn over_time(&self, around: &Around<'_>) -> OverTime {
        let mut counts: BTreeMap<(u32, u32), [[u64; 3]; 2]> = BTreeMap::new();
        for (&(number, who), own) in &self.counts {
            if let Some(&process) = around.processes.get(&who) {
                add(counts.entry((u32::try_from(number).unwrap_or(u32::MAX), process)).or_default(), own);
            }
        }
        let slices = counts
            .into_iter()
            .map(|((number, process), [reference, other])| Slice { number, process, reference, other })
            .collect();
        let duration_ns = around.end_ns.max(self.last_ns).saturating_sub(self.start_ns);
        let slice_ns = 1_u64.checked_shl(self.shift).unwrap_or(u64::MAX);
        let mut gaps = self.recorded_gaps(around.recorded, slice_ns);
        let mut in_gaps: FxHashMap<u32, u64> = FxHashMap::default();
        for gap in &gaps {
            let in_gaps = in_gaps.entry(gap.cpu).or_default();
            *in_gaps = in_gaps.saturating_add(gap.lost);
        }
        let is_complete = |cpu: u32| around.lost.contains(&(cpu, in_gaps.get(&cpu).copied().unwrap_or(0)));
        gaps.retain(|gap| is_complete(gap.cpu));
        gaps.extend(self.counted_gaps(around.lost, duration_ns).into_iter().filter(|gap| !is_complete(gap.cpu)));
        gaps.sort_by_key(|gap| (gap.cpu, gap.from_ns));
        OverTime { duration_ns, slice_ns, slices, gaps }
    }

    /// Recorded gaps, merged if they are too close together to be distinguished in the picture.
    fn recorded_gaps(&self, recorded: &[model::Gap], slice_ns: u64) -> Vec<Gap> {
        let mut together: BTreeMap<(u32, LossCause), Vec<Gap>> = BTreeMap::new();
        for gap in recorded {
            let [from_ns, to_ns] = [gap.start_ns, gap.end_ns].map(|time| time.saturating_sub(self.start_ns));
            let merged = together.entry((gap.cpu, gap.cause)).or_default();
            match merged.last_mut().filter(|last| from_ns.saturating_sub(last.to_ns) < slice_ns) {
                Some(last) => {
                    last.to_ns = last.to_ns.max(to_ns);
                    last.lost = last.lost.saturating_add(gap.lost);
                }
                None => {
                    merged.push(Gap { cpu: gap.cpu, from_ns, to_ns, lost: gap.lost, cause: Some(gap.cause.name()) })
                }
            }
        }
        together.into_values().flatten().collect()
    }

    /// Gaps derived from the samples' counters of previous losses.
    fn counted_gaps(&self, lost: &[(u32, u64)], duration_ns: u64) -> Vec<Gap> {
        let mut by_cpu: BTreeMap<u32, BTreeMap<u64, Counters>> =
            lost.iter().map(|&(cpu, _)| (cpu, BTreeMap::new())).collect();
        for (&(number, cpu), &counters) in &self.cpus {
            by_cpu.entry(cpu).or_default().insert(number, counters);
        }
        let in_the_end: FxHashMap<u32, u64> = lost.iter().copied().collect();
        let mut gaps = Vec::new();
        for (cpu, slices) in by_cpu {
            let mut before = (0, 0);
            let moments = slices.values().flat_map(|counters| [counters.first, counters.last]);
            let moments = moments.map(|(time, lost)| (time.saturating_sub(self.start_ns), lost));
            let end = in_the_end.get(&cpu).map(|&lost| (duration_ns, lost));
            for (time, lost) in moments.chain(end) {
                if lost > before.1 {
                    let lost = lost.saturating_sub(before.1);
                    gaps.push(Gap { cpu, from_ns: before.0, to_ns: time, lost, cause: None });
                }
                before = (time, lost.max(before.1));
            }
        }
        gaps
    }

    fn number(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.start_ns).checked_shr(self.shift).unwrap_or(0)
    }

    /// Doubles the length of slices until this time is within the limit.
    fn reach(&mut self, time_ns: u64) {
        let mut shift = self.shift;
        while time_ns.saturating_sub(self.start_ns).checked_shr(shift).unwrap_or(0) >= MAX_SLICES {
            shift = shift.saturating_add(1);
        }
        self.widen(shift);
    }

    fn widen(&mut self, shift: u32) {
        let by = shift.saturating_sub(self.shift);
        if by == 0 {
            return;
        }
        self.shift = shift;
        let wider = |number: u64| number.checked_shr(by).unwrap_or(0);
        for ((number, who), counts) in std::mem::take(&mut self.counts) {
            add(self.counts.entry((wider(number), who)).or_default(), &counts);
        }
        for ((number, cpu), counters) in std::mem::take(&mut self.cpus) {
            self.cpus.entry((wider(number), cpu)).and_modify(|own| own.merge(counters)).or_insert(counters);
        }
    }
}

impl Collect for OverTimeCounter<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let sample = seen.sample;
        self.last_ns = self.last_ns.max(sample.time_ns);
        self.reach(sample.time_ns);
        let number = self.number(sample.time_ns);
        let end = |stack: Option<StackRef<'_>>| {
            let class = stack.and_then(|stack| class(stack.stop));
            [0, 1, 2].map(|index| u64::from(class == Some(index)))
        };
        let reference = seen.stack(self.pair.reference);
        let other = self.pair.other.filter(|_| reference.is_some()).and_then(|other| seen.stack(other));
        let counts = [end(reference), end(other)];
        add(self.counts.entry((number, self.listed.who(seen))).or_default(), &counts);
        let moment = (sample.time_ns, sample.cpu_lost);
        let counters = Counters { first: moment, last: moment };
        self.cpus.entry((number, sample.cpu)).and_modify(|own| own.merge(counters)).or_insert(counters);
    }

    fn merge(&mut self, mut other: Self) {
        self.last_ns = self.last_ns.max(other.last_ns);
        let shift = self.shift.max(other.shift);
        self.widen(shift);
        other.widen(shift);
        for (key, counts) in other.counts {
            add(self.counts.entry(key).or_default(), &counts);
        }
        for (key, counters) in other.cpus {
            self.cpus.entry(key).and_modify(|own| own.merge(counters)).or_insert(counters);
        }
    }
}

fn class(stop: StopReason) -> Option<usize> {
    match stop {
        StopReason::Complete(_) => Some(0),
        StopReason::Truncated(_) => Some(1),
        StopReason::Broken(_) => Some(2),
        StopReason::NoStack(_) => None,
    }
}

fn add(to: &mut [[u64; 3]; 2], more: &[[u64; 3]; 2]) {
    for (to, more) in to.iter_mut().flatten().zip(more.iter().flatten()) {
        *to = to.saturating_add(*more);
    }
}
