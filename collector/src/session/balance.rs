//! Accounting for every tick of a CPU.

use super::waits::WAITS;
use crate::bpf::types::counter;
use crate::ring::{Counters, RingId};
use fpprof_recording::model::{CpuCounters, LossCause, SkippedWaits};

/// All samples a CPU lost; throttled ticks are not among them, since they never reached the program.
pub(super) const LOST: [counter; 4] = [
    counter::COUNT_LOST_RING_FULL,
    counter::COUNT_LOST_TABLE_FULL,
    counter::COUNT_LOST_NO_RING,
    counter::COUNT_LOST_NESTED,
];
/// All ticks that were not to be sampled.
pub(super) const SKIPPED: [counter; 5] = [
    counter::COUNT_SKIPPED_IDLE,
    counter::COUNT_SKIPPED_SELF,
    counter::COUNT_SKIPPED_UNTRACKED,
    counter::COUNT_SKIPPED_SHORT,
    counter::COUNT_SKIPPED_PREEMPTED,
];

/// What became of the samples that were read, for one CPU and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// In the recording.
    pub(super) recorded: u64,
    /// Read but not written.
    pub(super) dropped: u64,
    /// Lost because the thread had continued.
    pub(super) woken: u64,
}

/// What became of the waits that were still open at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OpenWaits {
    /// Written to the recording.
    pub(super) recorded: u64,
    /// Shorter than the threshold.
    pub(super) short: u64,
    /// Total time of those, nanoseconds.
    pub(super) short_ns: u64,
    /// The thread had continued.
    pub(super) woken: u64,
}

/// The balance of one CPU and event. It is exact while the CPU takes no sample and its ring is empty.
///
/// `throttled` is the number of ticks that the kernel suppressed, estimated from the duration: they count as fired and
/// lost.
pub(super) fn cpu_counters(ring_id: RingId, counters: &Counters, written: Written, throttled: u64) -> CpuCounters {
    let causes = [
        (LossCause::RingFull, counters.get(counter::COUNT_LOST_RING_FULL)),
        (LossCause::TableFull, counters.get(counter::COUNT_LOST_TABLE_FULL)),
        (LossCause::NoRing, counters.get(counter::COUNT_LOST_NO_RING)),
        (LossCause::Nested, counters.get(counter::COUNT_LOST_NESTED)),
        (LossCause::Throttled, throttled),
        (LossCause::Woken, written.woken),
    ];
    let waits = SkippedWaits {
        short: counters.get(counter::COUNT_SKIPPED_SHORT),
        short_ns: counters.get(counter::COUNT_SHORT_NS),
        preempted: counters.get(counter::COUNT_SKIPPED_PREEMPTED),
    };
    CpuCounters {
        cpu: ring_id.cpu,
        event: ring_id.event,
        fired: counters.sum(&[counter::COUNT_FIRED, counter::COUNT_LOST_NESTED]) + throttled,
        recorded: written.recorded,
        lost: causes.into_iter().filter(|&(_, n)| n > 0).collect(),
        skipped: counters.sum(&SKIPPED),
        dropped: written.dropped,
        waits: (ring_id.event == WAITS).then_some(waits),
    }
}

/// Adds waits that were open at the end. `written` already includes those recorded.
pub(super) fn with_open(mut counters: CpuCounters, open: OpenWaits) -> CpuCounters {
    counters.fired += open.recorded + open.short + open.woken;
    counters.skipped += open.short;
    if let Some(waits) = &mut counters.waits {
        waits.short += open.short;
        waits.short_ns += open.short_ns;
    }
    if open.woken > 0 {
        *counters.lost.entry(LossCause::Woken).or_default() += open.woken;
    }
    counters
}
