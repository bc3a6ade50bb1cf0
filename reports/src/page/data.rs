//! The input of the script: columns of numbers, and names that are already escaped.

use super::curves::{Curve, curve};
use super::prune::{MAX_NODES, prune};
use crate::escape::shown;
use crate::verdict::{Named, per_minute};
use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::Relation;
use fpprof_analysis::detail::{Details, Gap, Mark, Node, NodeKind, PairedStacks};
use fpprof_analysis::folded::Origin;
use fpprof_unwind::StopReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// The most process names with a curve; those with the fewest samples have none.
const MAX_CURVES: usize = 40;

/// The data of a page.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    reference: String,
    other: Option<String>,
    processes: Vec<Process>,
    /// (index of the process, tid, name).
    threads: Vec<(u32, u32, String)>,
    names: Vec<String>,
    modules: Vec<String>,
    labels: Labels,
    nodes: Nodes,
    rows: Rows,
    relations: Vec<Relation>,
    slices: Slices,
    /// (CPU, start and end in milliseconds, number of losses, cause if known).
    gaps: Vec<(u32, f64, f64, u64, Option<&'static str>)>,
    curves: Vec<Curve>,
    /// The largest chunk of the recording in bytes.
    chunk_bytes: Option<u64>,
    samples_per_minute: f64,
    /// Frames in fewer samples than this were left out; 0 if none was.
    pub(super) left_out_below: u64,
    /// Number of nodes included.
    #[serde(skip)]
    pub(super) n_nodes: usize,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    name: String,
    samples: u64,
}

/// Labels as indices into the names and the modules.
#[derive(Debug, Default, Serialize)]
struct Labels {
    name: Vec<u32>,
    module: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
struct Nodes {
    /// Index of the caller's node, -1 for none.
    parent: Vec<i64>,
    label: Vec<u32>,
    /// Origin + 16 × mark; 7 for the end of truncated stacks, 8 for that of broken ones.
    kind: Vec<u8>,
}

#[derive(Debug, Default, Serialize)]
struct Rows {
    thread: Vec<u32>,
    reference: Vec<i64>,
    other: Vec<i64>,
    /// Index into the relations, -1 for none.
    relation: Vec<i64>,
    samples: Vec<u64>,
}

#[derive(Debug, Default, Serialize)]
struct Slices {
    slice_ms: f64,
    duration_ms: f64,
    number: Vec<u32>,
    process: Vec<u32>,
    /// Six values per entry: complete, truncated, broken of the reference, then of the other strategy.
    counts: Vec<u64>,
}

/// The data of an analysis.
pub(super) fn data(analysis: &Analysis, detail: &Details, all: &Named, names: &[Named]) -> Data {
    let stacks = &detail.stacks;
    let kept = prune(stacks, MAX_NODES);
    let mut table = Table::default();
    let (labels, nodes) = table.nodes(stacks, &kept.nodes, &kept.number);
    let leaf = |node: Option<u32>| node.and_then(|node| kept.number.get(node as usize).copied()).unwrap_or(-1);
    let mut rows = Rows::default();
    for row in &stacks.rows {
        rows.thread.push(row.thread);
        rows.reference.push(leaf(row.reference));
        rows.other.push(leaf(row.other));
        let relation = row.relation.and_then(|relation| RELATIONS.iter().position(|&known| known == relation));
        rows.relation.push(relation.and_then(|relation| i64::try_from(relation).ok()).unwrap_or(-1));
        rows.samples.push(row.samples);
    }
    let named = names.iter().take(MAX_CURVES).map(|named| curve(named, shown(&named.name).into_owned()));
    let summary = &analysis.summary;
    Data {
        reference: stacks.reference.clone(),
        other: stacks.other.clone(),
        processes: processes(stacks),
        threads: threads(stacks),
        names: table.names.list,
        modules: table.modules.list,
        labels,
        n_nodes: nodes.parent.len(),
        nodes,
        rows,
        relations: RELATIONS.to_vec(),
        slices: slices(detail),
        gaps: detail.over_time.gaps.iter().map(lost).collect(),
        curves: std::iter::once(curve(all, String::new())).chain(named).collect(),
        chunk_bytes: chunk_bytes(&summary.environment.mode),
        samples_per_minute: per_minute(summary.n_shown(), summary.shown_duration_s()),
        left_out_below: kept.below,
    }
}

const RELATIONS: [Relation; 7] = [
    Relation::WrongFrame,
    Relation::ExtraFrame,
    Relation::LeafCallerMissing,
    Relation::FrameMissing,
    Relation::Prefix,
    Relation::Longer,
    Relation::Same,
];

/// A gap in the form of [`Data::gaps`].
fn lost(gap: &Gap) -> (u32, f64, f64, u64, Option<&'static str>) {
    (gap.cpu, ms(gap.from_ns), ms(gap.to_ns), gap.lost, gap.cause)
}

/// The chunk size in bytes of a mode such as `both,65536,1/20`.
fn chunk_bytes(mode: &str) -> Option<u64> {
    mode.split(',').nth(1)?.parse().ok()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn processes(stacks: &PairedStacks) -> Vec<Process> {
    let process = |process: &fpprof_analysis::detail::Process| Process {
        pid: process.pid,
        name: shown(&process.comm).into_owned(),
        samples: process.samples,
    };
    stacks.processes.iter().map(process).collect()
}

fn threads(stacks: &PairedStacks) -> Vec<(u32, u32, String)> {
    stacks.threads.iter().map(|thread| (thread.process, thread.tid, shown(&thread.comm).into_owned())).collect()
}

fn slices(detail: &Details) -> Slices {
    let time = &detail.over_time;
    Slices {
        slice_ms: ms(time.slice_ns),
        duration_ms: ms(time.duration_ns),
        number: time.slices.iter().map(|slice| slice.number).collect(),
        process: time.slices.iter().map(|slice| slice.process).collect(),
        counts: time.slices.iter().flat_map(|slice| [slice.reference, slice.other]).flatten().collect(),
    }
}

/// A table of names without duplicates.
#[derive(Debug, Default)]
struct Table {
    names: Words,
    modules: Words,
}

#[derive(Debug, Default)]
struct Words {
    list: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Words {
    fn number(&mut self, word: &str) -> u32 {
        let word = shown(word);
        if let Some(&number) = self.numbers.get(word.as_ref()) {
            return number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(word.as_ref().to_owned());
        self.numbers.insert(word.into_owned(), number);
        number
    }
}

impl Table {
    fn nodes(&mut self, stacks: &PairedStacks, kept: &[usize], number: &[i64]) -> (Labels, Nodes) {
        let (mut labels, mut nodes) = (Labels::default(), Nodes::default());
        let mut label_numbers: BTreeMap<u32, u32> = BTreeMap::new();
        for node in kept.iter().filter_map(|&index| stacks.nodes.get(index)) {
            let next = u32::try_from(label_numbers.len()).unwrap_or(u32::MAX);
            let label = *label_numbers.entry(node.label).or_insert(next);
            if label == next {
                let (name, module) = stacks.labels.get(node.label as usize).cloned().unwrap_or_default();
                labels.name.push(self.names.number(&name));
                labels.module.push(self.modules.number(&module));
            }
            let parent = node.parent.and_then(|parent| number.get(parent as usize).copied());
            nodes.parent.push(parent.unwrap_or(-1));
            nodes.label.push(label);
            nodes.kind.push(kind(node));
        }
        (labels, nodes)
    }
}

fn kind(node: &Node) -> u8 {
    let (origin, mark) = match node.kind {
        NodeKind::Frame { origin, mark } => (origin, mark),
        NodeKind::End(StopReason::Broken(_)) => return 8,
        NodeKind::End(_) => return 7,
    };
    let origin = match origin {
        Origin::Leaf => 0,
        Origin::Cfi => 1,
        Origin::FramePointer => 2,
        Origin::Kernel => 3,
        Origin::Heuristic => 4,
        Origin::WithoutCall => 5,
        Origin::Inlined => 6,
    };
    let mark = match mark {
        Mark::Same => 0,
        Mark::Missing => 1,
        Mark::Wrong => 2,
        Mark::Beyond => 3,
    };
    origin + 16 * mark
}
