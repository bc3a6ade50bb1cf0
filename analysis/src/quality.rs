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
use std::collections::BTreeMap;

/// Counts ends of stacks.
#[derive(Debug, Default)]
pub struct QualityCounter {
    /// By process and number of the strategy. Samples of threads that no event named are told apart by pid.
    counts: FxHashMap<(Who, u32), Counts>,
    /// By process, whatever the strategies.
    samples: FxHashMap<Who, u64>,
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

impl Counts {
    fn add(&mut self, sample: &Sample, stack: &StackRef<'_>) {
        *self.stops.entry(stack.stop).or_default() += 1;
        if matches!(stack.stop, StopReason::NoStack(_)) {
            return;
        }
        count(&mut self.depths, stack.frames.len() as u64);
        if let Some(needed) = needed_bytes(sample, *stack).filter(|_| !stack.frames.is_empty()) {
            count(&mut self.needed_bytes, needed);
        }
        self.frames = self.frames.saturating_add(stack.frames.len() as u64);
        let is_suspect = stack.frames.iter().any(|frame| frame.flags.leaf_skip_suspect);
        self.leaf_skip_suspects += u64::from(is_suspect);
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
        let who = who(seen.place, seen.sample.pid);
        *self.samples.entry(who).or_default() += 1;
        for (strategy, stack) in (0..).zip(seen.stacks) {
            self.counts.entry((who, strategy)).or_default().add(seen.sample, stack);
        }
    }

    fn merge(&mut self, other: Self) {
        for (who, n) in other.samples {
            *self.samples.entry(who).or_default() += n;
        }
        for (key, counts) in other.counts {
            self.counts.entry(key).or_default().merge(&counts);
        }
    }
}

impl QualityCounter {
    /// Quality over all processes, by the names of the strategies in their order.
    #[must_use]
    pub fn total(&self, strategies: &[String]) -> BTreeMap<String, Quality> {
        let mut totals: Vec<Counts> = strategies.iter().map(|_| Counts::default()).collect();
        for (&(_, strategy), counts) in &self.counts {
            if let Some(total) = totals.get_mut(strategy as usize) {
                total.merge(counts);
            }
        }
        strategies.iter().cloned().zip(totals.iter().map(Counts::quality)).collect()
    }

    /// Quality of each process, most samples first.
    #[must_use]
    pub fn processes(&self, strategies: &[String], timeline: &Timeline) -> Vec<ProcessSummary> {
        let mut all: Vec<(Who, u64)> = self.samples.iter().map(|(&who, &samples)| (who, samples)).collect();
        all.sort_unstable_by_key(|&(who, samples)| (std::cmp::Reverse(samples), who));
        let summary = |(who, samples): (Who, u64)| {
            let (pid, comm) = match who {
                Who::Process(process) => (timeline.pid(process), timeline.last_comm(process)),
                Who::Unnamed(pid) => (pid, timeline.place(pid, pid, u64::MAX).comm),
            };
            let comm = shown_comm(comm.map_or(&[], |comm| timeline.comm(comm)), pid);
            let quality = |strategy| self.counts.get(&(who, strategy)).map(Counts::quality).unwrap_or_default();
            let strategies = strategies.iter().cloned().zip((0..).map(quality)).collect();
            ProcessSummary { pid, comm, samples, strategies }
        };
        all.into_iter().map(summary).collect()
    }
}

fn who(place: Place, pid: u32) -> Who {
    place.process.map_or(Who::Unnamed(pid), Who::Process)
}
