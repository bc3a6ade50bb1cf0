//! How the stacks of each strategy ended, by process.

use crate::accuracy::needed_bytes;
use crate::address_space::{Place, ProcessIx, Timeline};
use crate::fold::shown_comm;
use crate::replay::{Collect, Seen};
use crate::spread::{Histogram, Spread, count, merge};
use crate::summary::{ProcessSummary, Quality};
use fpprof_recording::model::Sample;
use fpprof_unwind::{StackRef, StopReason};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Processes listed one by one; the others of a name are one. The same of names.
const MAX_LISTED: usize = 1000;

/// Name of all whose names are not listed.
const OTHERS: &str = "[others]";

/// Stacks of a process that are kept as they ended, before they are counted: most processes of a machine that starts many
/// have a few, which take less so than the counts.
const MAX_ENDS: usize = 64;

/// Counts ends of stacks.
#[derive(Debug)]
pub struct QualityCounter {
    n_strategies: usize,
    /// Samples of threads that no event named are told apart by pid.
    processes: FxHashMap<Who, Process>,
}

/// Stacks of a process.
#[derive(Debug, Default)]
struct Process {
    samples: u64,
    ends: Vec<StackEnd>,
    /// By number of the strategy, without those above.
    counts: Vec<Counts>,
}

/// How a stack ended.
#[derive(Debug, Clone, Copy)]
struct StackEnd {
    strategy: u32,
    stop: StopReason,
    is_suspect: bool,
    n_frames: u32,
    needed_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Who {
    Process(ProcessIx),
    Unnamed(u32),
}

#[derive(Debug, Default)]
struct Counts {
    stops: BTreeMap<StopReason, u64>,
    frames: u64,
    leaf_skip_suspects: u64,
    /// Stacks by their frames.
    depths: Histogram,
    /// Complete stacks by the bytes they needed.
    needed_bytes: Histogram,
}

impl StackEnd {
    fn new(strategy: u32, sample: &Sample, stack: &StackRef<'_>) -> Self {
        Self {
            strategy,
            stop: stack.stop,
            is_suspect: stack.frames.iter().any(|frame| frame.flags.leaf_skip_suspect),
            n_frames: u32::try_from(stack.frames.len()).unwrap_or(u32::MAX),
            needed_bytes: needed_bytes(sample, *stack).filter(|_| !stack.frames.is_empty()),
        }
    }
}

impl Process {
    fn add(&mut self, end: StackEnd, n_strategies: usize) {
        self.ends.push(end);
        if self.ends.len() >= MAX_ENDS {
            self.counts.resize_with(n_strategies, Counts::default);
            self.ends.drain(..).for_each(|end| add(&mut self.counts, &end));
        }
    }

    fn merge(&mut self, other: Self, n_strategies: usize) {
        self.samples = self.samples.saturating_add(other.samples);
        if !other.counts.is_empty() {
            self.counts.resize_with(n_strategies, Counts::default);
            self.counts.iter_mut().zip(&other.counts).for_each(|(counts, other)| counts.merge(other));
        }
        other.ends.into_iter().for_each(|end| self.add(end, n_strategies));
    }

    /// Adds its stacks to those counted by number of the strategy.
    fn add_to(&self, counts: &mut [Counts]) {
        counts.iter_mut().zip(&self.counts).for_each(|(counts, own)| counts.merge(own));
        self.ends.iter().for_each(|end| add(counts, end));
    }
}

fn add(counts: &mut [Counts], end: &StackEnd) {
    if let Some(counts) = counts.get_mut(end.strategy as usize) {
        counts.add(end);
    }
}

impl Counts {
    fn add(&mut self, end: &StackEnd) {
        *self.stops.entry(end.stop).or_default() += 1;
        if matches!(end.stop, StopReason::NoStack(_)) {
            return;
        }
        count(&mut self.depths, end.n_frames.into());
        if let Some(needed) = end.needed_bytes {
            count(&mut self.needed_bytes, needed);
        }
        self.frames = self.frames.saturating_add(end.n_frames.into());
        self.leaf_skip_suspects += u64::from(end.is_suspect);
    }

    fn merge(&mut self, other: &Self) {
        for (&stop, n) in &other.stops {
            *self.stops.entry(stop).or_default() += n;
        }
        self.frames = self.frames.saturating_add(other.frames);
        self.leaf_skip_suspects += other.leaf_skip_suspects;
        merge(&mut self.depths, &other.depths);
        merge(&mut self.needed_bytes, &other.needed_bytes);
    }

    fn quality(&self) -> Quality {
        let mut quality = Quality {
            frames: self.frames,
            leaf_skip_suspects: self.leaf_skip_suspects,
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

impl Collect for QualityCounter {
    fn add(&mut self, seen: &Seen<'_>) {
        let process = self.processes.entry(who(seen.place, seen.sample.pid)).or_default();
        process.samples = process.samples.saturating_add(1);
        for (strategy, stack) in (0..).zip(seen.stacks) {
            process.add(StackEnd::new(strategy, seen.sample, stack), self.n_strategies);
        }
    }

    fn merge(&mut self, other: Self) {
        for (who, process) in other.processes {
            self.processes.entry(who).or_default().merge(process, self.n_strategies);
        }
    }
}

impl QualityCounter {
    /// Of so many strategies.
    #[must_use]
    pub fn new(n_strategies: usize) -> Self {
        Self { n_strategies, processes: FxHashMap::default() }
    }

    /// Quality over all processes, by the names of the strategies in their order.
    #[must_use]
    pub fn total(&self, strategies: &[String]) -> BTreeMap<String, Quality> {
        self.quality(self.processes.values(), strategies)
    }

    /// Quality of each process, most samples first, and behind them of all others by name.
    #[must_use]
    pub fn processes(&self, strategies: &[String], timeline: &Timeline) -> Vec<ProcessSummary> {
        let mut all: Vec<(Who, &Process)> = self.processes.iter().map(|(&who, process)| (who, process)).collect();
        all.sort_unstable_by_key(|&(who, process)| (Reverse(process.samples), who));
        let (listed, others) = all.split_at(all.len().min(MAX_LISTED));
        let summary = |(pid, comm), processes: &[&Process], n| ProcessSummary {
            pid,
            comm,
            processes: n,
            samples: samples(processes),
            strategies: self.quality(processes.iter().copied(), strategies),
        };
        let listed = listed.iter().map(|&(who, process)| summary(name(who, timeline), &[process], None));
        let others = by_name(others, |who| name(who, timeline).1);
        let others = others
            .into_iter()
            .map(|(comm, processes)| summary((0, comm), &processes, u64::try_from(processes.len()).ok()));
        listed.chain(others).collect()
    }

    fn quality<'a>(
        &self,
        processes: impl Iterator<Item = &'a Process>,
        strategies: &[String],
    ) -> BTreeMap<String, Quality> {
        let mut counts: Vec<Counts> = Vec::new();
        counts.resize_with(self.n_strategies, Counts::default);
        processes.for_each(|process| process.add_to(&mut counts));
        strategies.iter().cloned().zip(counts.iter().map(Counts::quality)).collect()
    }
}

/// Processes together that have one name, most samples first; those of the last names are one.
fn by_name<'a>(processes: &[(Who, &'a Process)], name: impl Fn(Who) -> String) -> Vec<(String, Vec<&'a Process>)> {
    let mut by_name: BTreeMap<String, Vec<&Process>> = BTreeMap::new();
    for &(who, process) in processes {
        by_name.entry(name(who)).or_default().push(process);
    }
    let mut names: Vec<(String, Vec<&Process>)> = by_name.into_iter().collect();
    names.sort_by_key(|(_, processes)| Reverse(samples(processes)));
    let rest: Vec<&Process> = names.drain(names.len().min(MAX_LISTED)..).flat_map(|(_, processes)| processes).collect();
    if !rest.is_empty() {
        names.push((OTHERS.to_owned(), rest));
    }
    names
}

fn samples(processes: &[&Process]) -> u64 {
    processes.iter().fold(0, |sum, process| process.samples.saturating_add(sum))
}

/// Number and name of a process.
fn name(who: Who, timeline: &Timeline) -> (u32, String) {
    let (pid, comm) = match who {
        Who::Process(process) => (timeline.pid(process), timeline.last_comm(process)),
        Who::Unnamed(pid) => (pid, timeline.place(pid, pid, u64::MAX).comm),
    };
    (pid, shown_comm(comm.map_or(&[], |comm| timeline.comm(comm)), pid))
}

fn who(place: Place, pid: u32) -> Who {
    place.process.map_or(Who::Unnamed(pid), Who::Process)
}

#[cfg(test)]
mod tests;
