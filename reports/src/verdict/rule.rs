//! The requirements that all verdicts have for a way to take stacks.

/// Minimum share of good stacks, per cent.
pub(crate) const MIN_GOOD: u8 = 99;
/// Maximum share of lost samples, per cent.
pub(crate) const MAX_LOST: f64 = 0.1;
/// Minimum number of stacks to judge anything by [`MIN_GOOD`]: a process name, or all of them.
pub(crate) const MIN_SAMPLES: u64 = 100;

/// Whether `part` of `whole` is at least [`MIN_GOOD`] per cent.
pub(crate) fn is_good(part: u64, whole: u64) -> bool {
    whole == 0 || u128::from(part) * 100 >= u128::from(whole) * u128::from(MIN_GOOD)
}

/// Whether a process name is mentioned separately: it has at least 1 % of the samples.
pub(crate) fn is_large(samples: u64, of: u64) -> bool {
    samples > 0 && u128::from(samples) * 100 >= u128::from(of)
}

/// Whether [`is_good`] is required of a process name separately, in addition to all of them together.
pub(crate) fn is_judged(samples: u64, of: u64) -> bool {
    is_large(samples, of) && samples >= MIN_SAMPLES
}

#[cfg(test)]
mod tests {
    use super::{is_good, is_judged, is_large};

    /// Check the boundaries of the rule's shares, and that a process name with few samples is mentioned but not judged.
    #[test]
    fn shares_begin_where_the_rule_says() {
        assert!(is_good(99, 100) && is_good(0, 0) && is_good(u64::MAX, u64::MAX));
        assert!(!is_good(98, 100) && !is_good(9899, 10_000));
        assert!(is_large(1, 100) && !is_large(1, 101) && !is_large(0, 0));
        assert!(is_judged(100, 10_000) && !is_judged(100, 10_001) && !is_judged(99, 100));
    }
}
