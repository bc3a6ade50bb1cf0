//! The words of a block: each distinct one is spelt out once.
//!
//! A word that points into its own sample's chunk is identified by its distance from its own address (a saved frame
//! pointer, the address of a local), which stays the same when a function is called at another depth; all others are
//! identified by value. On cc1 this saves 8 % of a recording, on nbdkit and fio 3 %.

use super::state::MAX_WORDS;
use super::varint::{Cursor, put, put_delta};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

const NEW_VALUE: u64 = 0;
const NEW_DISTANCE: u64 = 1;
const FIRST_NUMBER: u64 = 2;

/// The address of a word, and its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address of the word.
    pub(crate) address: u64,
    /// Start and end of the chunk; words that point into it are identified by distance.
    pub(crate) chunk: (u64, u64),
}

impl Place {
    /// No place: the word is identified by value.
    pub(crate) const NOWHERE: Self = Self { address: 0, chunk: (0, 0) };
}

/// Numbers words in order of first appearance. The value 0 is known from the start.
#[derive(Debug)]
pub(crate) struct WordNumbers {
    values: FxHashMap<u64, u32>,
    distances: FxHashMap<u64, u32>,
    next: u32,
    last_value: u64,
}

impl WordNumbers {
    pub(crate) fn new() -> Self {
        let mut words = Self { values: FxHashMap::default(), distances: FxHashMap::default(), next: 0, last_value: 0 };
        words.clear();
        words
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.distances.clear();
        self.values.insert(0, 0);
        self.next = 1;
        self.last_value = 0;
    }

    /// Appends the word's number to `numbers`; a new word is spelt out in `literals`.
    pub(crate) fn put(&mut self, numbers: &mut Vec<u8>, literals: &mut Vec<u8>, word: u64, place: Place) {
        let by_distance = place.chunk.0 <= word && word < place.chunk.1;
        let distance = word.wrapping_sub(place.address);
        let entry = if by_distance { self.distances.entry(distance) } else { self.values.entry(word) };
        match entry {
            Entry::Occupied(known) => put(numbers, u64::from(*known.get()) + FIRST_NUMBER),
            Entry::Vacant(new) => {
                new.insert(self.next);
                self.next += 1;
                if by_distance {
                    put(numbers, NEW_DISTANCE);
                    put_delta(literals, distance, 0);
                } else {
                    put(numbers, NEW_VALUE);
                    put_delta(literals, word, self.last_value);
                    self.last_value = word;
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Word {
    Value(u64),
    Distance(u64),
}

/// The reader's counterpart of [`WordNumbers`].
#[derive(Debug)]
pub(crate) struct Words {
    known: Vec<Word>,
    last_value: u64,
}

impl Words {
    pub(crate) fn new() -> Self {
        Self { known: vec![Word::Value(0)], last_value: 0 }
    }

    /// The word at `address`.
    pub(crate) fn get(&mut self, numbers: &mut Cursor<'_>, literals: &mut Cursor<'_>, address: u64) -> Option<u64> {
        let word = match numbers.varint()? {
            NEW_VALUE => {
                self.last_value = literals.delta(self.last_value)?;
                self.remember(Word::Value(self.last_value))?
            }
            NEW_DISTANCE => {
                let distance = literals.delta(0)?;
                self.remember(Word::Distance(distance))?
            }
            number => *self.known.get(usize::try_from(number - FIRST_NUMBER).ok()?)?,
        };
        Some(match word {
            Word::Value(value) => value,
            Word::Distance(distance) => address.wrapping_add(distance),
        })
    }

    fn remember(&mut self, word: Word) -> Option<Word> {
        self.known.push(word);
        (self.known.len() <= MAX_WORDS).then_some(word)
    }
}
