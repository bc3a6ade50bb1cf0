//! The balance of an interval: the difference between two successive balances of the recorder.

use fpprof_recording::model::CpuCounters;
use fpprof_reports::parquet::counters::Counter;
use std::collections::BTreeMap;

/// The balance of an event over all CPUs, since the recorder started or of one interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ticks {
    pub(super) fired: u64,
    pub(super) recorded: u64,
    /// Lost ticks by cause.
    pub(super) lost: BTreeMap<&'static str, u64>,
    pub(super) skipped: u64,
    pub(super) dropped: u64,
}

/// The last balance of the recorder, by event.
#[derive(Debug, Clone, Default)]
pub(super) struct Balance {
    last: BTreeMap<u16, Ticks>,
}

impl Ticks {
    fn add(&mut self, cpu: &CpuCounters) {
        self.fired = self.fired.saturating_add(cpu.fired);
        self.recorded = self.recorded.saturating_add(cpu.recorded);
        for (cause, &n) in &cpu.lost {
            let lost = self.lost.entry(cause.name()).or_default();
            *lost = lost.saturating_add(n);
        }
        self.skipped = self.skipped.saturating_add(cpu.skipped);
        self.dropped = self.dropped.saturating_add(cpu.dropped);
    }

    fn since(&self, before: &Self) -> Self {
        let lost = self
            .lost
            .iter()
            .map(|(&cause, &n)| (cause, n.saturating_sub(before.lost.get(cause).copied().unwrap_or(0))));
        Self {
            fired: self.fired.saturating_sub(before.fired),
            recorded: self.recorded.saturating_sub(before.recorded),
            lost: lost.filter(|&(_, n)| n > 0).collect(),
            skipped: self.skipped.saturating_sub(before.skipped),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }

    /// Ticks that are in no other count: their samples were not read yet. Negative if samples of an earlier interval
    /// were read in this one.
    pub(super) fn unread(&self) -> i64 {
        let lost = self.lost.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let rest = [self.recorded, lost, self.skipped, self.dropped];
        let rest = rest.iter().fold(0, |sum: i128, &n| sum + i128::from(n));
        i64::try_from(i128::from(self.fired) - rest).unwrap_or(0)
    }

    /// The rows of the counters table for an event.
    pub(super) fn counters(&self, event: &str) -> Vec<Counter> {
        let row = |name, cause: &str, value| Counter { name, event: event.to_owned(), cause: cause.to_owned(), value };
        let int = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut rows = vec![
            row("fired", "", int(self.fired)),
            row("recorded", "", int(self.recorded)),
            row("skipped", "", int(self.skipped)),
            row("dropped", "", int(self.dropped)),
            row("unread", "", self.unread()),
        ];
        rows.extend(self.lost.iter().map(|(&cause, &n)| row("lost", cause, int(n))));
        rows
    }
}

impl Balance {
    /// Records the recorder's counters since its start; returns the difference to the previous call, by event.
    pub(super) fn note(&mut self, cpus: &[CpuCounters]) -> BTreeMap<u16, Ticks> {
        let mut now: BTreeMap<u16, Ticks> = BTreeMap::new();
        for cpu in cpus {
            now.entry(cpu.event).or_default().add(cpu);
        }
        let nothing = Ticks::default();
        let new = now.iter().map(|(event, ticks)| (*event, ticks.since(self.last.get(event).unwrap_or(&nothing))));
        let new = new.collect();
        self.last = now;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::LossCause;

    fn cpu(cpu: u32, fired: u64, recorded: u64, lost: u64) -> CpuCounters {
        let lost = BTreeMap::from([(LossCause::RingFull, lost)]);
        CpuCounters { cpu, fired, recorded, lost, skipped: 1, ..CpuCounters::default() }
    }

    /// Check that intervals add up to the recorder's counters over all CPUs, and that a sample unread at the end of one
    /// interval is in the balances of both.
    #[test]
    fn intervals_add_up() {
        let mut balance = Balance::default();
        let first = balance.note(&[cpu(0, 10, 7, 2), cpu(1, 5, 3, 0)])[&0].clone();
        assert_eq!((first.fired, first.recorded, first.lost["ring_full"], first.unread()), (15, 10, 2, 1));
        let second = balance.note(&[cpu(0, 20, 17, 2), cpu(1, 6, 5, 0)])[&0].clone();
        assert_eq!((second.fired, second.recorded, second.skipped, second.unread()), (11, 12, 0, -1));
        assert!(second.lost.is_empty());
        assert_eq!(first.unread() + second.unread(), 0);
        let rows = first.counters("cpu-clock");
        let sum: i64 = rows.iter().filter(|row| row.name != "fired").map(|row| row.value).sum();
        assert_eq!(sum, rows[0].value);
    }
}
