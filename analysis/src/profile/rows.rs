//! Counts stacks by thread, and by time if asked for.

use super::Grouping;
use crate::address_space::{CgroupIx, CommIx};
use crate::fold::Amount;
use crate::listed::Who;
use crate::replay::Seen;
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;

/// The key of counts. Two samples of one CPU with equal times are of two events, or of two recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) event: u16,
    pub(super) who: Who,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: Option<CommIx>,
    pub(super) cgroup: Option<CgroupIx>,
    pub(super) stop: StopReason,
    /// Number of the list of frames in the folder.
    pub(super) stack: u32,
}

/// The samples of one strategy.
#[derive(Debug)]
pub(crate) struct Rows {
    grouping: Grouping,
    /// Index of the strategy among the replayed ones.
    strategy: usize,
    counts: FxHashMap<RowKey, Amount>,
    first_ns: u64,
    last_ns: u64,
}

impl Rows {
    pub(crate) fn new(grouping: Grouping, strategy: usize) -> Self {
        Self { grouping, strategy, counts: FxHashMap::default(), first_ns: u64::MAX, last_ns: 0 }
    }

    /// Index of the strategy among the replayed ones.
    pub(crate) fn strategy(&self) -> usize {
        self.strategy
    }

    pub(super) fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// Adds a sample; `stacks` has the number of its list of frames under each strategy that it has a stack under.
    pub(crate) fn add(&mut self, seen: &Seen<'_>, stacks: &[Option<u32>]) {
        let stack = stacks.get(self.strategy).copied().flatten();
        let Some((stack, unwound)) = stack.zip(seen.stack(self.strategy)) else { return };
        self.first_ns = self.first_ns.min(seen.sample.time_ns);
        self.last_ns = self.last_ns.max(seen.sample.time_ns);
        let (time_ns, cpu) = match self.grouping {
            Grouping::Each => (seen.sample.time_ns, seen.sample.cpu),
            Grouping::Summed => (0, 0),
        };
        let key = RowKey {
            time_ns,
            cpu,
            event: seen.sample.event,
            who: Who::of(seen),
            pid: seen.sample.pid,
            tid: seen.sample.tid,
            comm: seen.place.comm,
            cgroup: seen.place.cgroup,
            stop: unwound.stop,
            stack,
        };
        self.counts.entry(key).or_default().add(Amount { samples: 1, weight: seen.sample.weight });
    }

    /// Adds the counts of another; `stacks` has the numbers here of its lists of frames.
    pub(crate) fn merge(&mut self, other: Self, stacks: &[u32]) {
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        for (key, amount) in other.counts {
            let Some(&stack) = stacks.get(key.stack as usize) else { continue };
            self.counts.entry(RowKey { stack, ..key }).or_default().add(amount);
        }
    }

    /// Times of the first and the last sample.
    pub(super) fn times_ns(&self) -> (u64, u64) {
        (self.first_ns, self.last_ns)
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&RowKey, &Amount)> {
        self.counts.iter()
    }
}
