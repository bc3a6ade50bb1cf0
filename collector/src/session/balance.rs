//! Where every tick of a CPU went.

use crate::bpf::types::counter;
use crate::ring::Counters;
use fpprof_recording::model::{CpuCounters, LossCause};

/// All samples a CPU lost; throttled ticks are not among them, since they never reached the program.
pub(super) const LOST: [counter; 2] = [counter::COUNT_LOST_RING_FULL, counter::COUNT_LOST_EXEC_WINDOW];
/// All ticks that were not to be sampled.
pub(super) const SKIPPED: [counter; 3] =
    [counter::COUNT_SKIPPED_IDLE, counter::COUNT_SKIPPED_SELF, counter::COUNT_SKIPPED_UNTRACKED];

/// The balance of one CPU whose ring is empty: what it handed over was `written`, or was dropped.
///
/// `throttled` are ticks the kernel suppressed, estimated from the time it did: they count as fired and lost.
pub(super) fn cpu_counters(cpu: u32, counters: &Counters, written: u64, throttled: u64) -> CpuCounters {
    let causes = [
        (LossCause::RingFull, counters.get(counter::COUNT_LOST_RING_FULL)),
        (LossCause::ExecWindow, counters.get(counter::COUNT_LOST_EXEC_WINDOW)),
        (LossCause::Throttled, throttled),
    ];
    CpuCounters {
        cpu,
        fired: counters.get(counter::COUNT_FIRED) + throttled,
        recorded: written,
        lost: causes.into_iter().filter(|&(_, n)| n > 0).collect(),
        skipped: counters.sum(&SKIPPED),
        dropped: counters.get(counter::COUNT_RECORDED).saturating_sub(written),
    }
}
