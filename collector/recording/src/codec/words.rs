//! Words of a block: each distinct one is spelt once.

use super::varint::{Cursor, put, put_delta};
use rustc_hash::FxHashMap;

/// Numbers words in the order they first come. 0 is known from the start.
#[derive(Debug)]
pub(crate) struct WordNumbers {
    numbers: FxHashMap<u64, u32>,
    last_literal: u64,
}

impl WordNumbers {
    pub(crate) fn new() -> Self {
        let mut words = Self { numbers: FxHashMap::default(), last_literal: 0 };
        words.clear();
        words
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.numbers.insert(0, 1);
        self.last_literal = 0;
    }

    /// Appends the word's number to `numbers`, or 0 there and the word itself to `literals`.
    pub(crate) fn put(&mut self, numbers: &mut Vec<u8>, literals: &mut Vec<u8>, word: u64) {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
        match self.numbers.entry(word) {
            std::collections::hash_map::Entry::Occupied(known) => put(numbers, u64::from(*known.get())),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(next);
                put(numbers, 0);
                put_delta(literals, word, self.last_literal);
                self.last_literal = word;
            }
        }
    }
}

/// The reader's side of [`WordNumbers`].
#[derive(Debug)]
pub(crate) struct Words(Vec<u64>);

impl Words {
    pub(crate) fn new() -> Self {
        Self(vec![0])
    }

    pub(crate) fn get(&mut self, numbers: &mut Cursor<'_>, literals: &mut Cursor<'_>) -> Option<u64> {
        match numbers.len()?.checked_sub(1) {
            Some(known) => self.0.get(known).copied(),
            None => {
                let last = if self.0.len() == 1 { 0 } else { *self.0.last()? };
                let word = literals.delta(last)?;
                self.0.push(word);
                Some(word)
            }
        }
    }
}
