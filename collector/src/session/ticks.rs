//! The expected number of ticks of a timer.

use crate::proc::idle_times_ns;
use fpprof_recording::model::{CpuCounters, Sampling};
use std::collections::BTreeMap;

/// `/proc/stat` counts in hundredths of a second; twice that, since both readings are rounded.
const IDLE_ERROR_NS: u64 = 20_000_000;

/// When ticks began, and each CPU's idle time at that moment.
#[derive(Debug, Default)]
pub(crate) struct TicksBegun {
    pub(crate) time_ns: u64,
    idle_ns: BTreeMap<u32, u64>,
}

impl TicksBegun {
    /// Begins now, which is `time_ns`.
    pub(crate) fn at(time_ns: u64) -> Self {
        Self { time_ns, idle_ns: idle_times_ns() }
    }

    /// Number of ticks that never reached the sampling code, for use after the last has fired. Nothing counts them, but
    /// rate and time determine how many there should have been on CPUs that were not idle.
    pub(crate) fn missing(&self, sampling: Sampling, end_ns: u64, cpus: &[CpuCounters]) -> u64 {
        self.missing_by(sampling, end_ns, &idle_times_ns(), cpus)
    }

    fn missing_by(&self, sampling: Sampling, end_ns: u64, idle_ns: &BTreeMap<u32, u64>, cpus: &[CpuCounters]) -> u64 {
        let sampled_ns = end_ns.saturating_sub(self.time_ns);
        let idle = |cpu: u32| Some(idle_ns.get(&cpu)?.saturating_sub(*self.idle_ns.get(&cpu)?));
        let missing_of = |cpu: &CpuCounters| {
            // No ticks are expected on a CPU that the kernel reports nothing about.
            let idle_ns = idle(cpu.cpu).map_or(sampled_ns, |idle| idle.saturating_add(IDLE_ERROR_NS));
            ticks_in(sampled_ns.saturating_sub(idle_ns), sampling).saturating_sub(cpu.fired)
        };
        let missing: u64 = cpus.iter().map(missing_of).sum();
        let fired: u64 = cpus.iter().map(|cpu| cpu.fired).sum();
        // One in a hundred is within the error of the rate.
        if missing > fired / 100 + cpus.len() as u64 { missing } else { 0 }
    }
}

/// Expected ticks in that time, taking a period as nanoseconds. (A period in cycles has no known duration.)
pub(crate) fn ticks_in(time_ns: u64, sampling: Sampling) -> u64 {
    let ticks = match sampling {
        Sampling::FrequencyHz(hz) => u128::from(time_ns) * u128::from(hz) / 1_000_000_000,
        Sampling::Period(period_ns) => u128::from(time_ns / period_ns.max(1)),
    };
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that missing ticks are found on a busy CPU, not on an idle or unknown one, and that a few are attributed
    /// to rounding.
    #[test]
    fn only_busy_cpus_are_missed_ticks() {
        let second = 1_000_000_000;
        let begun = TicksBegun { time_ns: 5 * second, idle_ns: [(0, 7 * second), (1, 7 * second)].into() };
        let idle_ns = [(0, 7 * second), (1, 9 * second)].into();
        let missing = |fired: [u64; 3]| {
            let cpus = [0, 1, 2].map(|cpu| CpuCounters { cpu, fired: fired[cpu as usize], ..CpuCounters::default() });
            begun.missing_by(Sampling::FrequencyHz(1000), 7 * second, &idle_ns, &cpus)
        };
        assert_eq!(missing([2000, 0, 0]), 0);
        assert_eq!(missing([1970, 0, 0]), 0);
        assert_eq!(missing([1480, 10, 0]), 500);
    }
}
