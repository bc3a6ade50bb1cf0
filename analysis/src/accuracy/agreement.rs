//! How often two strategies agree, and after which functions they differ.

use super::{Comparison, Difference, Relation};
use crate::fold::{Labels, Where, locate};
use crate::replay::{Collect, Seen};
use crate::strategy::Strategy;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Functions named for each pair of strategies.
const MAX_CULPRITS: usize = 20;

/// How two strategies compare over all samples with a user stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Agreement {
    /// The strategy taken for the reference.
    pub reference: String,
    /// The strategy compared with it.
    pub other: String,
    /// Samples compared.
    pub samples: u64,
    /// Samples by relation.
    pub relations: BTreeMap<Relation, u64>,
    /// The same by frames, over all samples.
    pub frames: Difference,
    /// Functions after which they differ first, most samples first.
    pub culprits: Vec<Culprit>,
}

/// A function whose caller a strategy missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its name.
    pub name: String,
    /// Its module.
    pub module: String,
    /// Samples that differ after it first.
    pub samples: u64,
}

/// Compares every pair of strategies, sample by sample.
#[derive(Debug, Default)]
pub struct AgreementCounter {
    /// Indices of the reference and of the other.
    pairs: Vec<(usize, usize)>,
    counts: Vec<Counts>,
}

#[derive(Debug, Clone, Default)]
struct Counts {
    samples: u64,
    relations: BTreeMap<Relation, u64>,
    frames: Difference,
    culprits: FxHashMap<Where, u64>,
}

impl AgreementCounter {
    /// A counter for these strategies. The reference of a pair is the one that can know more: call frame information
    /// before frame pointers, all bytes before some, ours before others'.
    #[must_use]
    pub fn new(strategies: &[Strategy]) -> Self {
        let mut ranked: Vec<usize> = (0..strategies.len()).collect();
        ranked.sort_by_key(|&index| strategies.get(index).map(rank));
        let mut pairs = Vec::new();
        for (n, &reference) in ranked.iter().enumerate() {
            pairs.extend(ranked.iter().skip(n.saturating_add(1)).map(|&other| (reference, other)));
        }
        let counts = vec![Counts::default(); pairs.len()];
        Self { pairs, counts }
    }

    /// What was counted, with names.
    #[must_use]
    pub fn agreements(&self, names: &[String], labels: &Labels) -> Vec<Agreement> {
        let name = |index: usize| names.get(index).cloned().unwrap_or_default();
        let agreement = |(&(reference, other), counts): (&(usize, usize), &Counts)| Agreement {
            reference: name(reference),
            other: name(other),
            samples: counts.samples,
            relations: counts.relations.clone(),
            frames: counts.frames,
            culprits: culprits(&counts.culprits, labels),
        };
        self.pairs.iter().zip(&self.counts).map(agreement).collect()
    }
}

fn rank(strategy: &Strategy) -> (u8, std::cmp::Reverse<u32>) {
    match *strategy {
        Strategy::Dwarf => (0, std::cmp::Reverse(0)),
        Strategy::Elfutils => (1, std::cmp::Reverse(0)),
        Strategy::Libunwind => (2, std::cmp::Reverse(0)),
        Strategy::DwarfAt(bytes) => (3, std::cmp::Reverse(bytes)),
        Strategy::Fp => (4, std::cmp::Reverse(0)),
    }
}

fn culprits(places: &FxHashMap<Where, u64>, labels: &Labels) -> Vec<Culprit> {
    let mut by_name: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (&place, &samples) in places {
        let total = by_name.entry(labels.function(place)).or_default();
        *total = total.saturating_add(samples);
    }
    let culprit = |((name, module), samples)| Culprit { name, module, samples };
    let mut culprits: Vec<Culprit> = by_name.into_iter().map(culprit).collect();
    culprits.sort_by_key(|culprit| std::cmp::Reverse(culprit.samples));
    culprits.truncate(MAX_CULPRITS);
    culprits
}

impl Collect for AgreementCounter {
    fn add(&mut self, seen: &Seen<'_>) {
        for (&(reference, other), counts) in self.pairs.iter().zip(&mut self.counts) {
            let (Some(&reference), Some(&other)) = (seen.stacks.get(reference), seen.stacks.get(other)) else {
                continue;
            };
            if reference.frames.is_empty() && other.frames.is_empty() {
                continue;
            }
            let comparison = Comparison::new(reference, other);
            counts.samples += 1;
            *counts.relations.entry(comparison.relation).or_default() += 1;
            counts.frames.add(&comparison.difference);
            if let Some(frame) = comparison.differs_after.and_then(|index| reference.frames.get(index)) {
                *counts.culprits.entry(locate(frame, seen.space)).or_default() += 1;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (own, theirs) in self.counts.iter_mut().zip(other.counts) {
            own.samples += theirs.samples;
            own.frames.add(&theirs.frames);
            for (relation, n) in theirs.relations {
                *own.relations.entry(relation).or_default() += n;
            }
            for (place, n) in theirs.culprits {
                *own.culprits.entry(place).or_default() += n;
            }
        }
    }
}

impl Difference {
    fn add(&mut self, other: &Self) {
        self.n_same += other.n_same;
        self.n_missing += other.n_missing;
        self.n_not_reached += other.n_not_reached;
        self.n_wrong += other.n_wrong;
        self.n_beyond += other.n_beyond;
    }
}
