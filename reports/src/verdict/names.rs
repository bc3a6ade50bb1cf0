//! Figures for each process name: processes with the same name count as one here, as in all verdicts.

use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::{ChunkSizes, Relation};
use fpprof_analysis::detail::{Details, PairedStacks};
use fpprof_analysis::experiment::StackEnds;
use std::collections::BTreeMap;

/// All processes with the same name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    /// The name; empty for all processes.
    pub(crate) name: String,
    /// Index of the first of these processes in the detail's list.
    pub(crate) first: usize,
    /// Number of processes.
    pub(crate) processes: u64,
    /// Number of samples.
    pub(crate) samples: u64,
    /// How their stacks ended, by strategy.
    pub(crate) ends: BTreeMap<String, StackEnds>,
    /// Samples by the relation of the other strategy's stack to the reference's.
    pub(crate) relations: BTreeMap<Relation, u64>,
    /// The chunk sizes that their stacks need.
    pub(crate) sizes: ChunkSizes,
}

impl Named {
    /// Samples whose two stacks were compared.
    pub(crate) fn compared(&self) -> u64 {
        self.relations.values().fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// The number of samples with the given relation.
    pub(crate) fn n(&self, relation: Relation) -> u64 {
        self.relations.get(&relation).copied().unwrap_or(0)
    }

    /// The number of samples in which the other strategy misses frames of the reference, or has wrong ones.
    pub(crate) fn worse(&self) -> u64 {
        let worse = self.relations.iter().filter(|(relation, _)| relation.is_worse());
        worse.fold(0, |sum, (_, &n)| sum.saturating_add(n))
    }

    fn add(&mut self, other: &Self) {
        self.processes = self.processes.saturating_add(other.processes);
        self.samples = self.samples.saturating_add(other.samples);
        for (strategy, ends) in &other.ends {
            self.ends.entry(strategy.clone()).or_default().add(ends);
        }
        for (&relation, &n) in &other.relations {
            let total = self.relations.entry(relation).or_default();
            *total = total.saturating_add(n);
        }
        self.sizes.merge(&other.sizes);
    }
}

/// All processes together, and each process name, most samples first.
pub(crate) fn names(analysis: &Analysis, detail: &Details) -> (Named, Vec<Named>) {
    let mut by_name: BTreeMap<String, Named> = BTreeMap::new();
    for process in &analysis.summary.processes {
        let ends = process.strategies.iter().map(|(strategy, quality)| (strategy.clone(), quality.into())).collect();
        let more = Named { processes: process.n_processes(), samples: process.samples, ends, ..Named::default() };
        by_name.entry(process.comm.clone()).or_default().add(&more);
    }
    for (name, relations) in relations(&detail.stacks) {
        by_name.entry(name).or_default().add(&Named { relations, ..Named::default() });
    }
    for named in analysis.chunk_sizes.iter().flat_map(|(_, each)| each) {
        let more = Named { sizes: named.sizes.clone(), ..Named::default() };
        by_name.entry(named.comm.clone()).or_default().add(&more);
    }
    let mut all = Named::default();
    let first = |name: &str| detail.stacks.processes.iter().position(|process| process.comm == name).unwrap_or(0);
    let mut names: Vec<Named> = by_name
        .into_iter()
        .map(|(name, named)| {
            all.add(&named);
            Named { first: first(&name), name, ..named }
        })
        .collect();
    names.sort_by_key(|named| std::cmp::Reverse(named.samples));
    // Also those of names of which no stack was copied.
    if let Some((sizes, _)) = &analysis.chunk_sizes {
        all.sizes.to_copy = sizes.to_copy;
    }
    (all, names)
}

fn relations(stacks: &PairedStacks) -> BTreeMap<String, BTreeMap<Relation, u64>> {
    let mut by_name: BTreeMap<String, BTreeMap<Relation, u64>> = BTreeMap::new();
    for row in &stacks.rows {
        let process = stacks.threads.get(row.thread as usize).map(|thread| thread.process);
        let process = process.and_then(|process| stacks.processes.get(process as usize));
        let (Some(process), Some(relation)) = (process, row.relation) else { continue };
        let relations = by_name.entry(process.comm.clone()).or_default();
        let total = relations.entry(relation).or_default();
        *total = total.saturating_add(row.samples);
    }
    by_name
}
