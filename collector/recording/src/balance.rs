//! The balance of a recording: where every tick went.

use crate::model::{Checkpoint, CpuCounters, End, LossCause, Sample};
use std::collections::BTreeMap;

/// Counters in the samples of one CPU and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CpuSeen {
    /// Samples read.
    pub samples: u64,
    /// Highest [`Sample::cpu_fired`].
    pub last_fired: u64,
    /// Highest [`Sample::cpu_lost`].
    pub last_lost: u64,
}

/// Counters in the samples, by event and CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Indexed by event and CPU.
    pub cpus: BTreeMap<(u16, u32), CpuSeen>,
}

impl Tally {
    /// Counts a sample.
    pub fn observe(&mut self, sample: &Sample) {
        let seen = self.cpus.entry((sample.event, sample.cpu)).or_default();
        seen.samples += 1;
        seen.last_fired = seen.last_fired.max(sample.cpu_fired);
        seen.last_lost = seen.last_lost.max(sample.cpu_lost);
    }

    /// Adds the counts of another reader, for other blocks.
    pub fn merge(&mut self, other: &Self) {
        for (&key, theirs) in &other.cpus {
            let ours = self.cpus.entry(key).or_default();
            ours.samples += theirs.samples;
            ours.last_fired = ours.last_fired.max(theirs.last_fired);
            ours.last_lost = ours.last_lost.max(theirs.last_lost);
        }
    }
}

/// The balance of a recording as far as it can be read: `fired = recorded + Σ lost + skipped + dropped` for each event
/// and CPU, ascending.
///
/// `recorded` is the number of samples read. With an end, its counters are used, and samples it counts that could not
/// be read (damaged blocks) become [`LossCause::Unwritten`]. Without one, the last checkpoint and the counters in the
/// samples show how far each CPU had come: losses since the checkpoint are [`LossCause::Unattributed`], and ticks
/// without any record are [`LossCause::Unwritten`]. That is an upper bound, since some may have been skipped by a
/// filter.
///
/// Contradictory counters are kept as they are, so that they are visible in the balance.
#[must_use]
pub fn balance(end: Option<&End>, checkpoint: Option<&Checkpoint>, tally: &Tally) -> Vec<CpuCounters> {
    let reported = end.map(|end| &end.cpus).or(checkpoint.map(|checkpoint| &checkpoint.cpus));
    let mut cpus: BTreeMap<(u16, u32), CpuCounters> = tally
        .cpus
        .keys()
        .map(|&(event, cpu)| ((event, cpu), CpuCounters { cpu, event, ..CpuCounters::default() }))
        .chain(reported.into_iter().flatten().map(|counters| ((counters.event, counters.cpu), counters.clone())))
        .collect();
    for counters in cpus.values_mut() {
        let seen = tally.cpus.get(&(counters.event, counters.cpu)).copied().unwrap_or_default();
        if end.is_some() {
            add_loss(counters, LossCause::Unwritten, counters.recorded.saturating_sub(seen.samples));
            counters.recorded = counters.recorded.min(seen.samples);
        } else {
            counters.fired = counters.fired.max(seen.last_fired);
            counters.recorded = seen.samples;
            let lost = sum_lost(counters);
            add_loss(counters, LossCause::Unattributed, seen.last_lost.saturating_sub(lost));
            let accounted = [counters.recorded, sum_lost(counters), counters.skipped, counters.dropped];
            let accounted = accounted.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
            add_loss(counters, LossCause::Unwritten, counters.fired.saturating_sub(accounted));
        }
    }
    cpus.into_values().collect()
}

fn sum_lost(counters: &CpuCounters) -> u64 {
    counters.lost.values().fold(0, |sum, &n| sum.saturating_add(n))
}

fn add_loss(counters: &mut CpuCounters, cause: LossCause, samples: u64) {
    if samples > 0 {
        let lost = counters.lost.entry(cause).or_default();
        *lost = lost.saturating_add(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndReason, OwnCost, SidebandLoss, Uncounted};

    fn tally() -> Tally {
        let mut tally = Tally::default();
        for fired in [1, 2, 5, 9] {
            tally.observe(&Sample { cpu: 3, cpu_fired: fired, cpu_lost: fired / 4, ..Sample::default() });
        }
        tally
    }

    fn sum(counters: &CpuCounters) -> u64 {
        counters.recorded + sum_lost(counters) + counters.skipped + counters.dropped
    }

    fn counters(fired: u64, recorded: u64, lost: u64, skipped: u64) -> CpuCounters {
        let lost = BTreeMap::from([(LossCause::RingFull, lost)]);
        CpuCounters { cpu: 3, fired, recorded, lost, skipped, ..CpuCounters::default() }
    }

    fn end(cpus: Vec<CpuCounters>) -> End {
        End {
            time_ns: 0,
            reason: EndReason::Duration,
            cpus,
            sideband_lost: SidebandLoss::default(),
            own_cost: OwnCost::default(),
            uncounted: Uncounted::default(),
            notes: Vec::new(),
        }
    }

    /// Check that an undamaged recording is balanced by its end alone.
    #[test]
    fn end_holds_when_everything_is_there() {
        let reported = vec![counters(12, 4, 3, 5)];
        assert_eq!(balance(Some(&end(reported.clone())), None, &tally()), reported);
    }

    /// Check that samples counted in the end that cannot be read are lost, and that a CPU without samples is kept.
    #[test]
    fn damaged_samples_are_lost() {
        let other = CpuCounters { cpu: 9, fired: 1, skipped: 1, ..CpuCounters::default() };
        let balanced = balance(Some(&end(vec![counters(14, 6, 3, 5), other.clone()])), None, &tally());
        assert_eq!(balanced[0].recorded, 4);
        assert_eq!(balanced[0].lost[&LossCause::Unwritten], 2);
        assert_eq!(sum(&balanced[0]), 14);
        assert_eq!(balanced[1], other);
    }

    /// Check that a recording that broke off is balanced by its samples, and by the last checkpoint if it has one.
    #[test]
    fn broken_off_recordings_balance() {
        let balanced = balance(None, None, &tally());
        assert_eq!((balanced[0].fired, balanced[0].recorded), (9, 4));
        assert_eq!(balanced[0].lost, BTreeMap::from([(LossCause::Unattributed, 2), (LossCause::Unwritten, 3)]));
        let checkpoint =
            Checkpoint { time_ns: 1, cpus: vec![counters(8, 3, 1, 3)], sideband_lost: SidebandLoss::default() };
        let balanced = balance(None, Some(&checkpoint), &tally());
        assert_eq!(balanced[0].lost, BTreeMap::from([(LossCause::RingFull, 1), (LossCause::Unattributed, 1)]));
        assert_eq!((balanced[0].fired, balanced[0].skipped, sum(&balanced[0])), (9, 3, 9));
    }

    /// Check that each event of a CPU is balanced separately, whether the recording ended or broke off.
    #[test]
    fn events_balance_apart() {
        let mut tally = tally();
        tally.observe(&Sample { cpu: 3, event: 1, cpu_fired: 7, cpu_lost: 2, ..Sample::default() });
        let both = vec![counters(12, 4, 3, 5), CpuCounters { event: 1, ..counters(9, 1, 2, 6) }];
        assert_eq!(balance(Some(&end(both.clone())), None, &tally), both);
        let cut = balance(None, None, &tally);
        assert_eq!(
            cut.iter().map(|cpu| (cpu.event, cpu.recorded, cpu.fired)).collect::<Vec<_>>(),
            [(0, 4, 9), (1, 1, 7)]
        );
        assert!(cut.iter().all(|cpu| sum(cpu) == cpu.fired));
    }

    /// Check that merging tallies is the same as counting together.
    #[test]
    fn tallies_merge() {
        let mut merged = tally();
        merged.merge(&tally());
        assert_eq!(merged.cpus[&(0, 3)], CpuSeen { samples: 8, last_fired: 9, last_lost: 2 });
    }
}
