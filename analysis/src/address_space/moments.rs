//! A cache of what belongs to an address space at a moment.

use super::timeline::SpaceKey;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The most mappings cached, each 60 bytes at most: the memory of exited processes is freed in the end.
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
        let n_mappings = n_mappings.saturating_add(ENTRY_MAPPINGS);
        if self.n_mappings.saturating_add(n_mappings) > MAX_MAPPINGS {
            *self = Self::default();
        }
        let moments = self.logs.entry(key.log).or_default();
        // Another thread may have been faster.
        if moments.iter().any(|entry| entry.edits == key.edits) {
            return;
        }
        if moments.len() >= MAX_MOMENTS {
            self.n_mappings -= moments.pop_front().map_or(0, |oldest| oldest.n_mappings);
        }
        moments.push_back(Entry { edits: key.edits, value, n_mappings });
        self.n_mappings = self.n_mappings.saturating_add(n_mappings);
    }
}
