//! The chains of a block: each distinct one is spelt out once.

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
use std::ops::Range;

/// Numbers chains in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct ChainNumbers {
    by_hash: FxHashMap<u64, usize>,
    chains: Chains,
}

impl ChainNumbers {
    pub(crate) fn clear(&mut self) {
        self.by_hash.clear();
        self.chains.clear();
    }

    /// The number of a chain. Of two chains with the same hash only the later has one; the other is spelt out again.
    pub(crate) fn number(&self, chain: &[u64]) -> Option<u64> {
        let number = *self.by_hash.get(&FxBuildHasher.hash_one(chain))?;
        (self.chains.get(number)? == chain).then_some(number as u64)
    }

    /// How many frames at the end of `chain` are those of the last inserted chain.
    pub(crate) fn shared_with_last(&self, chain: &[u64]) -> usize {
        chain.iter().rev().zip(self.chains.last().iter().rev()).take_while(|(a, b)| a == b).count()
    }

    /// Number of words of all chains.
    pub(crate) fn n_words(&self) -> usize {
        self.chains.addresses.len()
    }

    pub(crate) fn insert(&mut self, chain: &[u64]) {
        self.by_hash.insert(FxBuildHasher.hash_one(chain), self.chains.ranges.len());
        self.chains.push(chain.iter().copied());
    }
}

/// Chains by number.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    ranges: Vec<Range<usize>>,
    addresses: Vec<u64>,
}

impl Chains {
    fn clear(&mut self) {
        self.ranges.clear();
        self.addresses.clear();
    }

    pub(crate) fn get(&self, number: usize) -> Option<&[u64]> {
        self.addresses.get(self.ranges.get(number)?.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn last(&self) -> &[u64] {
        self.ranges.len().checked_sub(1).and_then(|number| self.get(number)).unwrap_or(&[])
    }

    pub(crate) fn push(&mut self, chain: impl Iterator<Item = u64>) {
        let start = self.addresses.len();
        self.addresses.extend(chain);
        self.ranges.push(start..self.addresses.len());
    }
}
