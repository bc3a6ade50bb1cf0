//! Samples by slice of time, and losses between two samples of a CPU.
//!
//! Every sample says how many samples its CPU had lost before it. So the losses between two samples of a CPU are known
//! and lie between their times. Slices widen by doubling as the recording turns out longer: the slices of all threads
//! of the analysis nest, and their sum does not depend on the order of samples.

use super::model::{OverTime, Slice};
use super::pairs::{PairIndex, Who};
use crate::replay::{Collect, Seen};
use fpprof_unwind::{StackRef, StopReason};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Most slices: a picture of them is about as wide.
const MAX_SLICES: u64 = 512;
/// Slices begin at 2^this nanoseconds, some millisecond.
const FIRST_SHIFT: u32 = 20;

/// Samples that a CPU lost between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u32,
    /// After this, nanoseconds since the start.
    pub from_ns: u64,
    /// Before this.
    pub to_ns: u64,
    /// How many.
    pub lost: u64,
}

/// Counts samples by time.
#[derive(Debug)]
pub(crate) struct OverTimeCounter {
    pair: PairIndex,
    start_ns: u64,
    shift: u32,
    last_ns: u64,
    counts: FxHashMap<(u64, Who), [[u64; 3]; 2]>,
    cpus: FxHashMap<(u64, u32), Counters>,
}

/// The first and the last sample of a CPU in a slice, each by time and what had been lost before.
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

impl OverTimeCounter {
    /// A counter for a recording that began then.
    pub(crate) fn new(pair: PairIndex, start_ns: u64) -> Self {
        Self {
            pair,
            start_ns,
            shift: FIRST_SHIFT,
            last_ns: 0,
            counts: FxHashMap::default(),
            cpus: FxHashMap::default(),
        }
    }

    /// What was counted. `lost` is what each CPU lost in the end, `end_ns` when the recording ended.
    pub(crate) fn over_time(&self, processes: &[Who], lost: &[(u32, u64)], end_ns: u64) -> OverTime {
        let numbers: FxHashMap<Who, u32> = processes.iter().copied().zip(0..).collect();
        let slice = |(&(number, who), &[reference, other]): (&(u64, Who), &[[u64; 3]; 2])| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            Some(Slice { number, process: *numbers.get(&who)?, reference, other })
        };
        let mut slices: Vec<Slice> = self.counts.iter().filter_map(slice).collect();
        slices.sort_unstable_by_key(|slice| (slice.number, slice.process));
        let duration_ns = end_ns.max(self.last_ns).saturating_sub(self.start_ns);
        let gaps = self.gaps(lost, duration_ns);
        OverTime { duration_ns, slice_ns: 1_u64.checked_shl(self.shift).unwrap_or(u64::MAX), slices, gaps }
    }

    fn gaps(&self, lost: &[(u32, u64)], duration_ns: u64) -> Vec<Gap> {
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
                    gaps.push(Gap { cpu, from_ns: before.0, to_ns: time, lost: lost.saturating_sub(before.1) });
                }
                before = (time, lost.max(before.1));
            }
        }
        gaps
    }

    fn number(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.start_ns).checked_shr(self.shift).unwrap_or(0)
    }

    /// Widens the slices until there is one of the few for this time.
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

impl Collect for OverTimeCounter {
    fn add(&mut self, seen: &Seen<'_>) {
        let sample = seen.sample;
        self.last_ns = self.last_ns.max(sample.time_ns);
        self.reach(sample.time_ns);
        let number = self.number(sample.time_ns);
        let end = |stack: Option<&StackRef<'_>>| {
            let class = stack.map(|stack| class(stack.stop));
            [0, 1, 2].map(|index| u64::from(class == Some(index)))
        };
        let other = self.pair.other.and_then(|other| seen.stacks.get(other));
        let counts = [end(seen.stacks.get(self.pair.reference)), end(other)];
        add(self.counts.entry((number, Who::of(seen))).or_default(), &counts);
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

fn class(stop: StopReason) -> usize {
    match stop {
        StopReason::Complete(_) => 0,
        StopReason::Truncated(_) => 1,
        StopReason::Broken(_) => 2,
    }
}

fn add(to: &mut [[u64; 3]; 2], more: &[[u64; 3]; 2]) {
    for (to, more) in to.iter_mut().flatten().zip(more.iter().flatten()) {
        *to = to.saturating_add(*more);
    }
}
