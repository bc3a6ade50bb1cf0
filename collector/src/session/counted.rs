//! The kernel's own count of the sampled event compared to what the sampling program saw.

use crate::sys::Count;
use fpprof_recording::model::Sampling;

/// One in this many firings may be missing before that is reported: the first and the last periods, and adjusted ones,
/// do not add up exactly.
const TOLERANCE: u64 = 100;
/// Likewise for a shared counter: the percentage of the time below which sharing is reported.
const LEAST_SHARE: u64 = 99;

/// What the program on a CPU saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// How often it ran.
    pub(super) fired: u64,
    /// Sum of the periods of those overflows.
    pub(super) periods: u64,
}

/// How often the program should have run but did not, for an event whose occurrences the kernel counts one by one.
pub(super) fn missing_exactly(count: Count, period: u64, seen: Seen) -> u64 {
    count.value.checked_div(period).unwrap_or(0).saturating_sub(seen.fired)
}

/// Likewise for a hardware counter on all CPUs, estimated: what was counted beyond the periods that the program saw,
/// divided by the average period.
pub(super) fn missing_about(counts: &[(Count, Seen)], sampling: Sampling) -> u64 {
    let fired: u64 = counts.iter().map(|(_, seen)| seen.fired).sum();
    let periods: u64 = counts.iter().map(|(_, seen)| seen.periods).sum();
    let missing_of = |&(count, seen): &(Count, Seen)| match sampling {
        Sampling::Period(period) => missing_exactly(count, period, seen),
        Sampling::FrequencyHz(_) => {
            // For a CPU on which the program never ran, use the average period of the others.
            let of = if seen.fired > 0 { seen } else { Seen { fired, periods } };
            let unseen = u128::from(count.value.saturating_sub(seen.periods)) * u128::from(of.fired);
            u64::try_from(unseen.checked_div(u128::from(of.periods)).unwrap_or(0)).unwrap_or(u64::MAX)
        }
    };
    let missing: u64 = counts.iter().map(missing_of).sum();
    if missing > fired / TOLERANCE + counts.len() as u64 { missing } else { 0 }
}

/// The percentage of the time that the counters were counting; `None` if that is all of it. The processor has a limited
/// number of counters, which the kernel multiplexes.
pub(crate) fn shared(counts: impl Iterator<Item = Count>) -> Option<u64> {
    let times = |(enabled, running): (u64, u64), count: Count| (enabled + count.enabled_ns, running + count.running_ns);
    let (enabled, running) = counts.fold((0, 0), times);
    let share = running.saturating_mul(100).checked_div(enabled)?;
    (share < LEAST_SHARE).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: u64) -> Count {
        Count { value, enabled_ns: 1_000, running_ns: 1_000 }
    }

    /// Check that overflows which the program did not see are derived from the count, with a period and with a rate, on
    /// the CPU where they happened, and that a few are attributed to inexact sums.
    #[test]
    fn unseen_overflows_are_estimated() {
        let seen = |fired, periods| Seen { fired, periods };
        let rate = Sampling::FrequencyHz(999);
        let full = (count(10_005_000), seen(1_000, 10_000_000));
        assert_eq!(missing_about(&[full], rate), 0);
        assert_eq!(missing_about(&[full, (count(10_000_000), seen(800, 8_000_000))], rate), 200);
        assert_eq!(missing_about(&[full, (count(10_000_000), seen(0, 0))], rate), 1_000);
        assert_eq!(missing_about(&[(count(10_000_000), seen(0, 0))], rate), 0, "the length of a period is not known");
        let of_period = [(count(1_000_000), seen(900, 0))];
        assert_eq!(missing_about(&of_period, Sampling::Period(1_000)), 100);
        assert_eq!(missing_exactly(count(1_000_000), 1_000, seen(995, 0)), 5);
        assert_eq!(missing_about(&[(count(1_000_000), seen(995, 0))], Sampling::Period(1_000)), 0);
    }

    /// Check that a multiplexed counter is reported with its share of the time.
    #[test]
    fn shared_counters_are_reported() {
        let half = Count { value: 1, enabled_ns: 1_000, running_ns: 400 };
        assert_eq!(shared([count(1)].into_iter()), None);
        assert_eq!(shared([half, count(1)].into_iter()), Some(70));
        assert_eq!(shared([].into_iter()), None);
    }
}
