//! Exact distributions of counts, in five figures.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A distribution. The value at a percentile is the smallest that this share of values does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// Number of occurrences of each value.
pub(crate) type Histogram = BTreeMap<u64, u64>;

impl Spread {
    /// The distribution of a histogram; `None` if it is empty.
    #[must_use]
    pub fn of(histogram: &BTreeMap<u64, u64>) -> Option<Self> {
        let all: u128 = histogram.values().map(|&n| u128::from(n)).sum();
        let at = |percent: u128| {
            let mut seen = 0_u128;
            let reaches = |(&value, &n): (&u64, &u64)| {
                seen += u128::from(n);
                (seen * 100 >= all * percent).then_some(value)
            };
            histogram.iter().filter(|&(_, &n)| n > 0).find_map(reaches)
        };
        let largest = histogram.iter().rev().find(|&(_, &n)| n > 0).map(|(&value, _)| value);
        Some(Self { min: at(0)?, p50: at(50)?, p90: at(90)?, p99: at(99)?, max: largest? })
    }
}

/// Counts one value.
pub(crate) fn count(histogram: &mut Histogram, value: u64) {
    let n = histogram.entry(value).or_default();
    *n = n.saturating_add(1);
}

/// Adds another histogram.
pub(crate) fn merge(into: &mut Histogram, from: &Histogram) {
    for (&value, &more) in from {
        let n = into.entry(value).or_default();
        *n = n.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that percentiles are exact at their edges, that absent values do not count, and that an empty histogram
    /// has none.
    #[test]
    fn shares_are_exact() {
        let hundred: Histogram = (1..=100).map(|value| (value, 1)).collect();
        assert_eq!(Spread::of(&hundred), Some(Spread { min: 1, p50: 50, p90: 90, p99: 99, max: 100 }));
        let skewed = Histogram::from([(3, 0), (7, 89), (1000, 10), (5000, 1), (9000, 0)]);
        assert_eq!(Spread::of(&skewed), Some(Spread { min: 7, p50: 7, p90: 1000, p99: 1000, max: 5000 }));
        assert_eq!(Spread::of(&Histogram::new()), None);
        assert_eq!(Spread::of(&Histogram::from([(3, 0)])), None);
        let huge = Histogram::from([(1, u64::MAX), (2, u64::MAX)]);
        assert_eq!(Spread::of(&huge).map(|spread| (spread.p50, spread.max)), Some((1, 2)));
    }
}
