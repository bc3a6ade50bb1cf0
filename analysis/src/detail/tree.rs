//! Builds the displayed tree from counted pairs.

use super::Mark;
use super::model::{Node, NodeKind, PairRow, PairedStacks, Process, Thread};
use super::pairs::{PairCounter, PairIndex, PairKey, Side};
use crate::accuracy::Relation;
use crate::address_space::Timeline;
use crate::fold::{Labels, is_unnamed, root_name, shown_comm};
use crate::folded::{Origin, marker};
use crate::listed::{Listed, Who};
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A frame as displayed. Sorted by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Cell {
    /// Rank of its label.
    rank: u32,
    /// Its name from the end of the stack, if its label has none.
    renamed: Option<&'static str>,
    origin: Origin,
    mark: Mark,
}

/// The key and sort order of displayed rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    process: u32,
    tid: u32,
    comm: String,
    reference: (Rc<[Cell]>, StopReason),
    other: Option<(Rc<[Cell]>, StopReason)>,
    relation: Option<Relation>,
}

/// The counted stacks, with names, and the indices of their processes in [`PairedStacks::processes`].
///
/// Stacks that differ only in addresses of the same functions are merged. They are sorted by name, so that the order
/// does not depend on how the samples were read.
pub(crate) fn paired_stacks(
    counter: &PairCounter<'_>,
    labels: &Labels,
    listed: &Listed<'_>,
    names: &[String],
    pair: PairIndex,
) -> (PairedStacks, FxHashMap<Who, u32>) {
    let (numbers, processes) = processes(counter, listed);
    let mut cells = Cells::new(counter, labels);
    let mut shown: BTreeMap<Shown, u64> = BTreeMap::new();
    for (key, &n) in &counter.counts {
        let process = numbers.get(&key.who).copied().unwrap_or(0);
        let row = Shown {
            process,
            tid: key.tid,
            comm: thread_comm(key, listed.timeline()),
            reference: (cells.of(key.reference), key.reference.end),
            other: key.other.map(|side| (cells.of(side), side.end)),
            relation: key.relation,
        };
        let total = shown.entry(row).or_default();
        *total = total.saturating_add(n);
    }
    let name = |index: usize| names.get(index).cloned().unwrap_or_default();
    let stacks = PairedStacks {
        reference: name(pair.reference),
        other: pair.other.map(name),
        processes,
        ..PairedStacks::default()
    };
    let mut tree = Tree { stacks, labels, label_numbers: FxHashMap::default(), children: FxHashMap::default() };
    for (row, samples) in shown {
        tree.push(row, samples);
    }
    (tree.stacks, numbers)
}

fn thread_comm(key: &PairKey, timeline: &Timeline) -> String {
    shown_comm(key.comm.map_or(&[], |comm| timeline.comm(comm)), key.tid)
}

/// Processes, most samples first, followed by the unlisted ones by name.
fn processes(counter: &PairCounter<'_>, listed: &Listed<'_>) -> (FxHashMap<Who, u32>, Vec<Process>) {
    let mut samples: BTreeMap<Who, u64> = BTreeMap::new();
    for (key, &n) in &counter.counts {
        let total = samples.entry(key.who).or_default();
        *total = total.saturating_add(n);
    }
    let mut all: Vec<(Who, u64)> = samples.into_iter().collect();
    all.sort_by_key(|&(who, samples)| (matches!(who, Who::Others(_)), std::cmp::Reverse(samples)));
    let mut numbers: FxHashMap<Who, u32> = FxHashMap::default();
    let mut processes: Vec<Process> = Vec::new();
    for (number, (who, samples)) in (0..).zip(all) {
        let (pid, comm) = listed.name(who);
        processes.push(Process { pid, comm, samples });
        numbers.insert(who, number);
    }
    (numbers, processes)
}

/// Lists of frames as displayed, root first, each made once.
struct Cells<'a> {
    counter: &'a PairCounter<'a>,
    labels: &'a Labels,
    lists: Vec<&'a [u32]>,
    made: FxHashMap<(u32, Option<&'static str>), Rc<[Cell]>>,
}

impl<'a> Cells<'a> {
    fn new(counter: &'a PairCounter<'a>, labels: &'a Labels) -> Self {
        let mut lists: Vec<&[u32]> = vec![&[]; counter.stacks.len()];
        for (frames, &number) in &counter.stacks {
            if let Some(slot) = lists.get_mut(number as usize) {
                *slot = frames;
            }
        }
        Self { counter, labels, lists, made: FxHashMap::default() }
    }

    fn of(&mut self, side: Side) -> Rc<[Cell]> {
        let root = root_name(side.end);
        if let Some(made) = self.made.get(&(side.stack, root)) {
            return Rc::clone(made);
        }
        let made: Rc<[Cell]> = self.make(side.stack, root).into();
        self.made.insert((side.stack, root), Rc::clone(&made));
        made
    }

    fn make(&self, stack: u32, root: Option<&'static str>) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &frame in self.lists.get(stack as usize).copied().unwrap_or_default().iter().rev() {
            let Some(marked) = self.counter.frames.values().get(frame as usize) else { continue };
            let origins = std::iter::once(marked.origin).chain(std::iter::repeat(Origin::Inlined));
            for (&rank, origin) in self.labels.at(marked.place).iter().zip(origins) {
                cells.push(Cell { rank, renamed: None, origin, mark: marked.mark });
            }
        }
        let outermost = cells.first_mut().filter(|cell| is_unnamed(&self.labels.label(cell.rank)));
        if let Some(outermost) = outermost {
            outermost.renamed = root;
        }
        cells
    }
}

struct Tree<'a> {
    stacks: PairedStacks,
    labels: &'a Labels,
    label_numbers: FxHashMap<(String, String), u32>,
    children: FxHashMap<(Option<u32>, Step), u32>,
}

/// The edge from a node to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Frame(Cell),
    End(StopReason),
}

impl Tree<'_> {
    fn push(&mut self, row: Shown, samples: u64) {
        let thread = Thread { process: row.process, tid: row.tid, comm: row.comm };
        if self.stacks.threads.last() != Some(&thread) {
            self.stacks.threads.push(thread);
        }
        let row = PairRow {
            thread: index_of_last(self.stacks.threads.len()),
            reference: self.leaf(&row.reference),
            other: row.other.as_ref().and_then(|stack| self.leaf(stack)),
            reference_end: row.reference.1,
            other_end: row.other.map(|(_, end)| end),
            relation: row.relation,
            samples,
        };
        self.stacks.rows.push(row);
    }

    /// The node of a stack's leaf. A stack that does not reach its root is below a node with the reason, since its
    /// outermost frame is not the program's.
    fn leaf(&mut self, (cells, end): &(Rc<[Cell]>, StopReason)) -> Option<u32> {
        let mut at = marker(*end).map(|name| self.node(None, Step::End(*end), |_| (name, String::new())));
        for &cell in cells.iter() {
            let label = |labels: &Labels| {
                let label = labels.label(cell.rank);
                (cell.renamed.map_or(label.name, str::to_owned), label.module)
            };
            at = Some(self.node(at, Step::Frame(cell), label));
        }
        at
    }

    /// The child node of `parent` for `step`; created, with its name and module, if there is none yet.
    fn node(&mut self, parent: Option<u32>, step: Step, label: impl FnOnce(&Labels) -> (String, String)) -> u32 {
        if let Some(&node) = self.children.get(&(parent, step)) {
            return node;
        }
        let label = *self.label_numbers.entry(label(self.labels)).or_insert_with_key(|label| {
            self.stacks.labels.push(label.clone());
            index_of_last(self.stacks.labels.len())
        });
        let kind = match step {
            Step::Frame(cell) => NodeKind::Frame { origin: cell.origin, mark: cell.mark },
            Step::End(end) => NodeKind::End(end),
        };
        self.stacks.nodes.push(Node { parent, label, kind });
        let node = index_of_last(self.stacks.nodes.len());
        self.children.insert((parent, step), node);
        node
    }
}

fn index_of_last(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX).saturating_sub(1)
}
