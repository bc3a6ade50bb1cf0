//! Ends of stacks, and sums of counts by cause.

use crate::summary::Quality;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Result of comparing stacks with those of a better strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Right {
    /// Stacks compared.
    pub compared: u64,
    /// Stacks with every frame of the better strategy, and no wrong one.
    pub right: u64,
}

/// How stacks ended. `samples = complete + Σ truncated + Σ broken`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StackEnds {
    /// Samples unwound.
    pub samples: u64,
    /// Stacks that reached their root.
    pub complete: u64,
    /// Stacks that end early, by reason.
    pub truncated: BTreeMap<String, u64>,
    /// Stacks that went wrong, by reason.
    pub broken: BTreeMap<String, u64>,
}

impl StackEnds {
    /// Adds `other`, reason by reason.
    pub fn add(&mut self, other: &Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.complete = self.complete.saturating_add(other.complete);
        add_counts(&mut self.truncated, &other.truncated);
        add_counts(&mut self.broken, &other.broken);
    }

    /// Number of truncated stacks.
    #[must_use]
    pub fn n_truncated(&self) -> u64 {
        sum(&self.truncated)
    }

    /// Number of broken stacks.
    #[must_use]
    pub fn n_broken(&self) -> u64 {
        sum(&self.broken)
    }

    /// Whether every sample is counted exactly once.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let parts = u128::from(self.complete)
            + self.truncated.values().chain(self.broken.values()).map(|&n| u128::from(n)).sum::<u128>();
        parts == u128::from(self.samples)
    }
}

impl From<&Quality> for StackEnds {
    fn from(quality: &Quality) -> Self {
        Self {
            samples: quality.samples,
            complete: quality.complete,
            truncated: quality.truncated.clone(),
            broken: quality.broken.clone(),
        }
    }
}

/// Sum of counts, saturating.
pub(super) fn sum(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().fold(0, |sum, &n| sum.saturating_add(n))
}

/// Adds counts by cause.
pub(super) fn add_counts(into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (cause, &n) in from {
        let count = into.entry(cause.clone()).or_default();
        *count = count.saturating_add(n);
    }
}
