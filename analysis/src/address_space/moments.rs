//! A cache of what belongs to an address space at a moment.

use super::timeline::SpaceKey;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The most mappings cached, about 60 bytes each. Then all are dropped: exited processes have no other end here.
const MAX_MAPPINGS: usize = 200_000;

/// Overhead of an entry, in mappings.
const ENTRY_MAPPINGS: usize = 8;

/// The most moments of a log: one for each thread that is analysing samples, as a rule. While a program maps its modules, nearly
/// every sample is of another moment, and none comes back.
const MAX_MOMENTS: usize = 8;

/// Values for address spaces at moments.
#[derive(Debug)]
pub(crate) struct MomentCache<T> {
    /// By log: the moments, oldest entry first.
    logs: FxHashMap<u32, VecDeque<Entry<T>>>,
    n_mappings: usize,
}

#[derive(Debug)]
struct Entry<T> {
    edits: u32,
    value: T,
    n_mappings: usize,
}

impl<T> Default for MomentCache<T> {
    fn default() -> Self {
        Self { logs: FxHashMap::default(), n_mappings: 0 }
    }
}

impl<T: Clone> MomentCache<T> {
    /// The value of a moment.
    pub(crate) fn get(&self, key: SpaceKey) -> Option<T> {
        self.logs.get(&key.log)?.iter().find(|entry| entry.edits == key.edits).map(|entry| entry.value.clone())
    }

    /// The value of the same moment of the log or the nearest earlier one, and the number of its edits.
    pub(super) fn nearest(&self, key: SpaceKey) -> Option<(u32, T)> {
        let earlier = self.logs.get(&key.log)?.iter().filter(|entry| entry.edits <= key.edits);
        earlier.max_by_key(|entry| entry.edits).map(|entry| (entry.edits, entry.value.clone()))
    }

    /// Adds the value of a moment, with this many mappings.
    pub(crate) fn insert(&mut self, key: SpaceKey, value: T, n_mappings: usize) {
        // Another thread may have been faster.
        if self.get(key).is_some() {
            return;
        }
        let n_mappings = n_mappings.saturating_add(ENTRY_MAPPINGS);
        if self.n_mappings.saturating_add(n_mappings) > MAX_MAPPINGS {
            *self = Self::default();
        }
        let moments = self.logs.entry(key.log).or_default();
        if moments.len() >= MAX_MOMENTS {
            self.n_mappings -= moments.pop_front().map_or(0, |oldest| oldest.n_mappings);
        }
        moments.push_back(Entry { edits: key.edits, value, n_mappings });
        self.n_mappings = self.n_mappings.saturating_add(n_mappings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(log: u32, edits: u32) -> SpaceKey {
        SpaceKey { log, edits }
    }

    /// Check that of each log the moments that were added last are there, and that the nearest is not a later one.
    #[test]
    fn the_last_moments_of_each_log_are_cached() {
        let mut cache = MomentCache::default();
        let n = u32::try_from(MAX_MOMENTS).unwrap();
        for edits in 0..2 * n {
            cache.insert(key(1, edits), edits, 10);
        }
        cache.insert(key(2, 0), 100, 10);
        assert_eq!(cache.get(key(1, n - 1)), None);
        assert!((n..2 * n).all(|edits| cache.get(key(1, edits)) == Some(edits)));
        assert_eq!(cache.nearest(key(1, 3 * n)), Some((2 * n - 1, 2 * n - 1)));
        assert_eq!(cache.nearest(key(1, n + 1)), Some((n + 1, n + 1)));
        assert_eq!((cache.nearest(key(1, n - 1)), cache.nearest(key(2, 7))), (None, Some((0, 100))));
        assert_eq!(cache.n_mappings, (MAX_MOMENTS + 1) * (10 + ENTRY_MAPPINGS));
        // What is there already is not counted again.
        cache.insert(key(2, 0), 101, 10);
        assert_eq!((cache.get(key(2, 0)), cache.n_mappings), (Some(100), (MAX_MOMENTS + 1) * (10 + ENTRY_MAPPINGS)));
    }

    /// Check that the number of mappings is bounded, however many logs there are, and that what is added last is cached.
    #[test]
    fn mappings_are_bounded() {
        let mut cache = MomentCache::default();
        for log in 0..1000 {
            cache.insert(key(log, 0), log, 1000);
            let of_all = cache.logs.values().flatten().map(|entry| entry.n_mappings).sum::<usize>();
            assert!(cache.n_mappings == of_all && of_all <= MAX_MAPPINGS, "{of_all} mappings");
            assert_eq!(cache.get(key(log, 0)), Some(log));
        }
        assert_eq!(cache.get(key(0, 0)), None);
    }
}
