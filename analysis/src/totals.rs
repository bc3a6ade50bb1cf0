//! Totals over all samples, for the balance.

use crate::replay::{Collect, Seen};
use fpprof_recording::Tally;
use fpprof_recording::model::{Event, Measure, Meta, Sample};
use rustc_hash::FxHashSet;

/// Counts samples, bytes and gaps.
#[derive(Debug, Default)]
pub struct Totals {
    /// Samples by event and CPU, with their counters; of all events, as the balance requires.
    pub tally: Tally,
    /// Weights of the samples that are waits, nanoseconds; of all events.
    pub blocked_ns: u64,
    /// The event of the waits.
    waits: Option<u16>,
    /// Bytes of stack copied, from the stack pointers up.
    pub stack_bytes: u64,
    /// Samples whose chunk was shortened because the collector's ring buffer was filling up.
    pub shed: u64,
    /// Samples whose stack must not be copied.
    pub withheld: u64,
    /// Time of the last sample.
    pub last_ns: u64,
    /// Samples that match the filter.
    pub shown: u64,
    /// Their weights if they are waits, nanoseconds.
    pub shown_blocked_ns: u64,
    /// Every value of [`fpprof_recording::model::Sample::cpu_lost`] by event and CPU. It only grows, so each value but
    /// 0 is a run of losses that ended with a recorded sample.
    losses_seen: FxHashSet<((u16, u32), u64)>,
}

impl Totals {
    /// Creates totals for a recording with this metadata.
    #[must_use]
    pub fn new(meta: &Meta) -> Self {
        let is_blocked = |event: &Event| matches!(event.measure, Measure::Blocked { .. });
        let waits = (0..).zip(&meta.events).find(|(_, event)| is_blocked(event)).map(|(number, _)| number);
        Self { waits, ..Self::default() }
    }

    /// Runs of consecutive lost samples. `lost` is the total of each CPU: if it exceeds the value in its last sample,
    /// that is one more run.
    #[must_use]
    pub fn lost_gaps(&self, lost: impl IntoIterator<Item = ((u16, u32), u64)>) -> u64 {
        let ended = self.losses_seen.iter().filter(|&&(_, lost)| lost > 0).count() as u64;
        let is_open =
            |&(key, lost): &((u16, u32), u64)| lost > self.tally.cpus.get(&key).map_or(0, |seen| seen.last_lost);
        ended.saturating_add(lost.into_iter().filter(is_open).count() as u64)
    }
}

impl Collect for Totals {
    fn add(&mut self, seen: &Seen<'_>) {
        self.leave(seen.sample);
        self.shown = self.shown.saturating_add(1);
        if Some(seen.sample.event) == self.waits {
            self.shown_blocked_ns = self.shown_blocked_ns.saturating_add(seen.sample.weight);
        }
    }

    // Samples excluded by a filter were still recorded.
    fn leave(&mut self, sample: &Sample) {
        self.pass(sample);
        self.stack_bytes = self.stack_bytes.saturating_add(sample.copied_bytes());
        self.shed += u64::from(sample.shed_from.is_some());
        self.withheld += u64::from(sample.withheld);
        self.last_ns = self.last_ns.max(sample.time_ns);
        self.losses_seen.insert(((sample.event, sample.cpu), sample.cpu_lost));
    }

    fn pass(&mut self, sample: &Sample) {
        self.tally.observe(sample);
        if Some(sample.event) == self.waits {
            self.blocked_ns = self.blocked_ns.saturating_add(sample.weight);
        }
    }

    fn merge(&mut self, other: Self) {
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        self.waits = self.waits.or(other.waits);
        self.tally.merge(&other.tally);
        self.stack_bytes = self.stack_bytes.saturating_add(other.stack_bytes);
        self.shed = self.shed.saturating_add(other.shed);
        self.withheld = self.withheld.saturating_add(other.withheld);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.shown = self.shown.saturating_add(other.shown);
        self.shown_blocked_ns = self.shown_blocked_ns.saturating_add(other.shown_blocked_ns);
        self.losses_seen.extend(other.losses_seen);
    }
}
