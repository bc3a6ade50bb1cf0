//! How often two strategies agree, and at which functions they first differ.

use super::{Comparison, Difference, Relation};
use crate::fold::{Labels, Where, locate};
use crate::replay::{Collect, Seen};
use crate::strategy::Strategy;
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most functions and files listed for each pair of strategies.
const MAX_FUNCTIONS: usize = 50;

/// How two strategies compare over all samples with a user stack under either.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Agreement {
    /// The reference strategy.
    pub reference: String,
    /// The strategy compared with it.
    pub other: String,
    /// Samples compared.
    pub samples: u64,
    /// Samples whose frames are the same, however the stacks ended.
    pub same: u64,
    /// Samples where both stacks reached their root.
    pub both_complete: u64,
    /// Samples where both stacks reached their root over the same frames.
    pub both_complete_same: u64,
    /// Samples by relation.
    pub relations: BTreeMap<Relation, u64>,
    /// The same by frame over all samples, not counting leaves.
    pub frames: Difference,
    /// Functions at which they first differ: those whose caller they disagree on. Most samples first. Leaves out
    /// samples in which the other strategy merely continues where the reference ended.
    pub functions: Vec<DisputedFunction>,
    /// The same by file; names are empty.
    pub modules: Vec<DisputedFunction>,
}

/// A function whose caller two strategies disagree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisputedFunction {
    /// Its name; `[no symbol]` for all code of a file without names.
    pub name: String,
    /// Base name of its file.
    pub module: String,
    /// Samples that first differ after a frame of this function.
    pub samples: u64,
    /// The same by relation.
    pub relations: BTreeMap<Relation, u64>,
}

/// Counts disagreements by function and file.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    functions: BTreeMap<(String, String), DisputedFunction>,
    modules: BTreeMap<(String, String), DisputedFunction>,
}

impl Blame {
    /// Counts `n` samples for a function and its file, unless the other stack merely goes further than the reference.
    pub(crate) fn add(&mut self, name: String, module: String, relation: Relation, n: u64) {
        if !relation.is_worse() {
            return;
        }
        blame(&mut self.modules, String::new(), module.clone(), relation, n);
        blame(&mut self.functions, name, module, relation, n);
    }

    /// Functions and files, most samples first, then by name.
    pub(crate) fn ranked(self) -> (Vec<DisputedFunction>, Vec<DisputedFunction>) {
        let ranked = |functions: BTreeMap<_, DisputedFunction>| {
            let mut ranked: Vec<DisputedFunction> = functions.into_values().collect();
            ranked.sort_by_key(|function| std::cmp::Reverse(function.samples));
            ranked.truncate(MAX_FUNCTIONS);
            ranked
        };
        (ranked(self.functions), ranked(self.modules))
    }
}

fn blame(
    functions: &mut BTreeMap<(String, String), DisputedFunction>,
    name: String,
    module: String,
    relation: Relation,
    n: u64,
) {
    let function = functions.entry((name, module)).or_insert_with_key(|(name, module)| DisputedFunction {
        name: name.clone(),
        module: module.clone(),
        samples: 0,
        relations: BTreeMap::new(),
    });
    function.samples = function.samples.saturating_add(n);
    let of_relation = function.relations.entry(relation).or_default();
    *of_relation = of_relation.saturating_add(n);
}

/// Compares every pair of strategies, sample by sample.
#[derive(Debug, Default)]
pub struct AgreementCounter {
    /// Indices of the reference and the other strategy.
    pairs: Vec<(usize, usize)>,
    counts: Vec<Counts>,
}

#[derive(Debug, Clone, Default)]
struct Counts {
    samples: u64,
    both_complete: u64,
    both_complete_same: u64,
    relations: BTreeMap<Relation, u64>,
    frames: Difference,
    /// The frames after which they first differ.
    places: FxHashMap<(Where, Relation), u64>,
}

impl AgreementCounter {
    /// Creates a counter for these strategies. The reference of each pair is the one with more information: call frame
    /// information before frame pointers, all bytes before some, our unwinder before others.
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

    /// The result, with names.
    #[must_use]
    pub fn agreements(&self, names: &[String], labels: &Labels) -> Vec<Agreement> {
        let name = |index: usize| names.get(index).cloned().unwrap_or_default();
        let agreement = |(&(reference, other), counts): (&(usize, usize), &Counts)| {
            let (functions, modules) = blamed(&counts.places, labels);
            Agreement {
                reference: name(reference),
                other: name(other),
                samples: counts.samples,
                same: counts.relations.get(&Relation::Same).copied().unwrap_or(0),
                both_complete: counts.both_complete,
                both_complete_same: counts.both_complete_same,
                relations: counts.relations.clone(),
                frames: counts.frames,
                functions,
                modules,
            }
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
        Strategy::Cfi | Strategy::Sframe => (4, std::cmp::Reverse(0)),
        Strategy::Fp => (5, std::cmp::Reverse(0)),
    }
}

fn blamed(
    places: &FxHashMap<(Where, Relation), u64>,
    labels: &Labels,
) -> (Vec<DisputedFunction>, Vec<DisputedFunction>) {
    let mut blame = Blame::default();
    for (&(place, relation), &n) in places {
        let (name, module) = labels.function(place);
        // All unnamed code of one file shares a row of the table.
        let is_unnamed = name.starts_with('[') && name.contains("+0x");
        let name = if is_unnamed { "[no symbol]".to_owned() } else { name };
        blame.add(name, module, relation, n);
    }
    blame.ranked()
}

impl Collect for AgreementCounter {
    fn add(&mut self, seen: &Seen<'_>) {
        for (&(reference, other), counts) in self.pairs.iter().zip(&mut self.counts) {
            let (Some(reference), Some(other)) = (seen.stack(reference), seen.stack(other)) else { continue };
            if reference.frames.is_empty() && other.frames.is_empty() {
                continue;
            }
            let comparison = Comparison::new(reference, other);
            let is_complete = [reference, other].iter().all(|stack| matches!(stack.stop, StopReason::Complete(_)));
            let is_same = comparison.relation == Relation::Same;
            counts.samples += 1;
            counts.both_complete += u64::from(is_complete);
            counts.both_complete_same += u64::from(is_complete && is_same);
            *counts.relations.entry(comparison.relation).or_default() += 1;
            counts.frames.add(&comparison.difference);
            if let Some(frame) = comparison.differs_after.and_then(|index| reference.frames.get(index)) {
                *counts
                    .places
                    .entry((locate(frame, seen.space, seen.modules, seen.sample.time_ns), comparison.relation))
                    .or_default() += 1;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (own, theirs) in self.counts.iter_mut().zip(other.counts) {
            own.samples += theirs.samples;
            own.both_complete += theirs.both_complete;
            own.both_complete_same += theirs.both_complete_same;
            own.frames.add(&theirs.frames);
            for (relation, n) in theirs.relations {
                *own.relations.entry(relation).or_default() += n;
            }
            for (place, n) in theirs.places {
                *own.places.entry(place).or_default() += n;
            }
        }
    }
}
