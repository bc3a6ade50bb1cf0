//! Sums over time.

use super::error::StoreError;
use std::collections::BTreeMap;

/// The most buckets of a series.
const MAX_BUCKETS: i64 = 120;
/// The most values of a series.
const MAX: usize = 2_000_000;
/// Usual widths of buckets, seconds.
const WIDTHS: [i64; 16] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400];

const DAY_US: i64 = 86_400_000_000;

/// Values by start of interval and by key.
#[derive(Debug)]
pub(super) struct Series<K, V> {
    values: BTreeMap<(i64, K), V>,
    longest_us: i64,
    last_end_us: i64,
}

impl<K, V> Default for Series<K, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), longest_us: 0, last_end_us: i64::MIN }
    }
}

impl<K: Ord + Clone, V: Default> Series<K, V> {
    /// Returns the value of an interval and key, to add to.
    ///
    /// # Errors
    /// If there are too many values.
    pub(super) fn at(&mut self, begin_us: i64, duration_us: i64, of: K) -> Result<&mut V, StoreError> {
        let key = (begin_us, of);
        if self.values.len() >= MAX && !self.values.contains_key(&key) {
            return Err(StoreError::TooMany(MAX));
        }
        self.longest_us = self.longest_us.max(duration_us);
        self.last_end_us = self.last_end_us.max(begin_us.saturating_add(duration_us));
        Ok(self.values.entry(key).or_default())
    }

    /// Width of the buckets in microseconds: the smallest usual one that gives at most [`MAX_BUCKETS`] and is not
    /// shorter than the longest interval (minus a second of tolerance), so that no bucket is empty between intervals.
    pub(super) fn width_us(&self) -> i64 {
        let first = self.values.keys().next().map_or(0, |&(begin, _)| begin);
        let least = (self.last_end_us.saturating_sub(first).max(0) / MAX_BUCKETS)
            .max(self.longest_us.saturating_sub(1_000_000));
        let widths = WIDTHS.iter().map(|width| width * 1_000_000);
        // Times in a damaged table may be any.
        let days = (1 + least / DAY_US).saturating_mul(DAY_US);
        widths.filter(|&width| width >= least).min().unwrap_or(days)
    }

    /// Sums the values by bucket and key.
    pub(super) fn buckets(&self, add: impl Fn(&mut V, &V)) -> BTreeMap<(i64, K), V> {
        let width = self.width_us();
        let mut buckets: BTreeMap<(i64, K), V> = BTreeMap::new();
        for ((begin, of), value) in &self.values {
            let bucket = begin.div_euclid(width).saturating_mul(width);
            add(buckets.entry((bucket, of.clone())).or_default(), value);
        }
        buckets
    }
}
