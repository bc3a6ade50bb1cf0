//! Assigns small numbers to recurring values.

use rustc_hash::FxHashMap;

/// Values and their numbers, in order of first appearance.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    values: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Interned<T> {
    /// The number of a value, which is added if necessary.
    pub(crate) fn number(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            u32::try_from(self.values.len()).unwrap_or(u32::MAX).saturating_sub(1)
        })
    }

    /// All values, indexed by their number.
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }
}

/// Inverts an order: the rank of each number.
pub(crate) fn ranks(order: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    for (rank, &number) in (0..).zip(order) {
        if let Some(slot) = ranks.get_mut(number as usize) {
            *slot = rank;
        }
    }
    ranks
}
