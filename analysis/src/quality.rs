//! Counts how the stacks of each strategy ended, by process.

use crate::accuracy::needed_bytes;
use crate::listed::{Listed, MAX_LISTED, OTHERS, Who};
use crate::replay::{Collect, Seen};
use crate::spread::{Histogram, Spread, count, merge};
use crate::summary::{ProcessSummary, Quality};
use fpprof_recording::model::Sample;
use fpprof_unwind::{FrameFlags, StackRef, StopReason};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Counts ends of stacks.
#[derive(Debug)]
pub(crate) struct QualityCounter<'a> {
    n_strategies: usize,
    listed: &'a Listed<'a>,
    processes: FxHashMap<Who, Processes>,
}

/// Stacks of a process, or of all unlisted processes with a common name.
#[derive(Debug, Default)]
struct Processes {
    samples: u64,
    /// Indexed by strategy.
    counts: Vec<Counts>,
    /// The processes, if they are merged by name.
    members: FxHashSet<Who>,
}

#[derive(Debug, Default)]
struct Counts {
    stops: BTreeMap<StopReason, u64>,
    frames: u64,
    leaf_skip_suspects: u64,
    fp_in_jit: u64,
    fp_fallback: u64,
    /// Stacks by number of frames.
    depths: Histogram,
    /// Complete stacks by the bytes they needed.
    needed_bytes: Histogram,
}

impl Processes {
    fn merge(&mut self, other: &Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.counts.resize_with(other.counts.len(), Counts::default);
        self.counts.iter_mut().zip(&other.counts).for_each(|(counts, other)| counts.merge(other));
        self.members.extend(&other.members);
    }
}

impl Counts {
    fn add(&mut self, sample: &Sample, stack: StackRef<'_>) {
        *self.stops.entry(stack.stop).or_default() += 1;
        if matches!(stack.stop, StopReason::NoStack(_)) {
            return;
        }
        let n_frames = stack.frames.len() as u64;
        count(&mut self.depths, n_frames);
        if let Some(needed) = needed_bytes(sample, stack).filter(|_| n_frames > 0) {
            count(&mut self.needed_bytes, needed);
        }
        self.frames = self.frames.saturating_add(n_frames);
        let has = |flag: fn(&FrameFlags) -> bool| u64::from(stack.frames.iter().any(|frame| flag(&frame.flags)));
        self.leaf_skip_suspects += has(|flags| flags.leaf_skip_suspect);
        self.fp_in_jit += has(|flags| flags.fp_in_jit);
        self.fp_fallback += has(|flags| flags.fp_fallback);
    }

    fn merge(&mut self, other: &Self) {
        for (&stop, n) in &other.stops {
            *self.stops.entry(stop).or_default() += n;
        }
        self.frames = self.frames.saturating_add(other.frames);
        self.leaf_skip_suspects += other.leaf_skip_suspects;
        self.fp_in_jit += other.fp_in_jit;
        self.fp_fallback += other.fp_fallback;
        merge(&mut self.depths, &other.depths);
        merge(&mut self.needed_bytes, &other.needed_bytes);
    }

    fn quality(&self) -> Quality {
        let mut quality = Quality {
            frames: self.frames,
            leaf_skip_suspects: self.leaf_skip_suspects,
            fp_in_jit: self.fp_in_jit,
            fp_fallback: self.fp_fallback,
            frames_per_stack: Spread::of(&self.depths),
            needed_bytes: Spread::of(&self.needed_bytes),
            ..Quality::default()
        };
        for (stop, n) in &self.stops {
            let by_name = match stop {
                StopReason::Complete(_) => {
                    quality.complete += n;
                    &mut quality.roots
                }
                StopReason::Truncated(_) => &mut quality.truncated,
                StopReason::Broken(_) => &mut quality.broken,
                StopReason::NoStack(_) => &mut quality.no_stack,
            };
            quality.samples += if matches!(stop, StopReason::NoStack(_)) { 0 } else { *n };
            *by_name.entry(stop.name().to_string()).or_default() += n;
        }
        quality
    }
}

impl Collect for QualityCounter<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let who = self.listed.who(seen);
        let processes = self.processes.entry(who).or_default();
        processes.samples = processes.samples.saturating_add(1);
        processes.counts.resize_with(self.n_strategies, Counts::default);
        for (counts, stack) in processes.counts.iter_mut().zip(seen.stacks) {
            stack.iter().for_each(|stack| counts.add(seen.sample, *stack));
        }
        if let Who::Others(_) = who {
            processes.members.insert(Who::of(seen));
        }
    }

    fn merge(&mut self, other: Self) {
        for (who, processes) in other.processes {
            self.processes.entry(who).or_default().merge(&processes);
        }
    }
}

impl<'a> QualityCounter<'a> {
    /// Creates a counter for this many strategies.
    #[must_use]
    pub(crate) fn new(n_strategies: usize, listed: &'a Listed<'a>) -> Self {
        Self { n_strategies, listed, processes: FxHashMap::default() }
    }

    /// Quality over all processes, by the names of the strategies, which must be in their order.
    #[must_use]
    pub(crate) fn total(&self, strategies: &[String]) -> BTreeMap<String, Quality> {
        let mut total = Processes::default();
        self.processes.values().for_each(|processes| total.merge(processes));
        self.quality(&total, strategies)
    }

    /// Quality of each process, most samples first, followed by unlisted processes by name, the last names merged.
    #[must_use]
    pub(crate) fn processes(&self, strategies: &[String]) -> Vec<ProcessSummary> {
        let mut listed: Vec<(Who, &Processes)> = Vec::new();
        let mut by_name: BTreeMap<String, Processes> = BTreeMap::new();
        for (&who, processes) in &self.processes {
            match who {
                // Names with different bytes may be displayed alike.
                Who::Others(_) => by_name.entry(self.listed.name(who).1).or_default().merge(processes),
                _ => listed.push((who, processes)),
            }
        }
        listed.sort_unstable_by_key(|&(who, process)| (Reverse(process.samples), who));
        let mut rest = by_name.remove(OTHERS).unwrap_or_default();
        let mut names: Vec<(String, Processes)> = by_name.into_iter().collect();
        names.sort_by_key(|(_, processes)| Reverse(processes.samples));
        names.drain(names.len().min(MAX_LISTED)..).for_each(|(_, processes)| rest.merge(&processes));
        if rest.samples > 0 {
            names.push((OTHERS.to_owned(), rest));
        }
        let summary = |(pid, comm), own: &Processes, n| ProcessSummary {
            pid,
            comm,
            processes: n,
            samples: own.samples,
            strategies: self.quality(own, strategies),
        };
        let listed = listed.iter().map(|&(who, process)| summary(self.listed.name(who), process, None));
        let others =
            names.into_iter().map(|(comm, own)| summary((0, comm), &own, u64::try_from(own.members.len()).ok()));
        listed.chain(others).collect()
    }

    fn quality(&self, own: &Processes, strategies: &[String]) -> BTreeMap<String, Quality> {
        let none = Counts::default();
        let counts = own.counts.iter().chain(std::iter::repeat(&none)).take(self.n_strategies);
        strategies.iter().cloned().zip(counts.map(Counts::quality)).collect()
    }
}

#[cfg(test)]
mod tests;
