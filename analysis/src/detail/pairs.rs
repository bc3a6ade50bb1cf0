//! Counts samples by thread and both of their stacks.

use super::Mark;
use crate::accuracy::{Comparison, Relation, same_frames};
use crate::address_space::CommIx;
use crate::fold::{Interned, Where, for_lookup, locate, origin};
use crate::folded::Origin;
use crate::listed::{Listed, Who};
use crate::replay::{Collect, Seen};
use crate::strategy::Strategy;
use fpprof_unwind::{Frame, StackRef, StopReason};
use rustc_hash::FxHashMap;

/// Which two replayed strategies are shown side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PairIndex {
    pub(crate) reference: usize,
    pub(crate) other: Option<usize>,
}

/// Chooses the pair to show: the strategy with the most information, and frame pointers, or else the next one
/// requested.
pub(crate) fn pair_of(strategies: &[Strategy]) -> PairIndex {
    let find = |wanted: Strategy| strategies.iter().position(|&strategy| strategy == wanted);
    let largest = || {
        let sizes = strategies.iter().enumerate().filter_map(|(index, &strategy)| match strategy {
            Strategy::DwarfAt(bytes) => Some((bytes, index)),
            _ => None,
        });
        sizes.max().map(|(_, index)| index)
    };
    let reference = find(Strategy::Dwarf)
        .or_else(|| find(Strategy::Elfutils))
        .or_else(|| find(Strategy::Libunwind))
        .or_else(largest)
        .or_else(|| find(Strategy::Cfi))
        .or_else(|| find(Strategy::Sframe))
        .unwrap_or(0);
    let next = || (0..strategies.len()).find(|&index| index != reference);
    let other = find(Strategy::Fp).filter(|&fp| fp != reference).or_else(next);
    PairIndex { reference, other }
}

/// A frame, and whether the other strategy has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Marked {
    pub(super) place: Where,
    pub(super) origin: Origin,
    pub(super) mark: Mark,
}

/// The key of counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PairKey {
    pub(super) who: Who,
    pub(super) tid: u32,
    pub(super) comm: Option<CommIx>,
    pub(super) reference: Side,
    pub(super) other: Option<Side>,
    pub(super) relation: Option<Relation>,
}

/// One of the two stacks: the number of its list of frames, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) stack: u32,
    pub(super) end: StopReason,
}

/// Counts equal pairs of stacks.
#[derive(Debug)]
pub(crate) struct PairCounter<'a> {
    listed: &'a Listed<'a>,
    pair: PairIndex,
    pub(super) frames: Interned<Marked>,
    pub(super) stacks: FxHashMap<Box<[u32]>, u32>,
    pub(super) counts: FxHashMap<PairKey, u64>,
}

impl<'a> PairCounter<'a> {
    /// Creates a counter for two of the replayed strategies.
    pub(crate) fn new(pair: PairIndex, listed: &'a Listed<'a>) -> Self {
        Self { listed, pair, frames: Interned::default(), stacks: FxHashMap::default(), counts: FxHashMap::default() }
    }

    fn push_kernel(&mut self, frames: &mut Vec<u32>, chain: &[u64]) {
        for (depth, &address) in chain.iter().enumerate() {
            // The first is the sampled instruction, the others are return addresses.
            let lookup = if depth == 0 { address } else { address.wrapping_sub(1) };
            let frame = Marked { place: Where::Kernel(lookup), origin: Origin::Kernel, mark: Mark::Same };
            frames.push(self.frames.number(frame));
        }
    }

    fn push_user(&mut self, list: &mut Vec<u32>, frames: &[Frame], marks: &[Mark], seen: &Seen<'_>) {
        // As in the folded stacks, whose names these have.
        for (index, frame) in for_lookup(frames).enumerate() {
            let mark = marks.get(index).copied().unwrap_or(Mark::Same);
            let frame = Marked {
                place: locate(&frame, seen.space, seen.modules, seen.sample.time_ns),
                origin: origin(&frame),
                mark,
            };
            list.push(self.frames.number(frame));
        }
    }

    fn side(&mut self, seen: &Seen<'_>, stack: StackRef<'_>, marks: &[Mark]) -> Side {
        let mut list = Vec::new();
        self.push_kernel(&mut list, &seen.sample.kernel);
        self.push_user(&mut list, stack.frames, marks, seen);
        Side { stack: self.stack_number(list), end: stack.stop }
    }

    fn stack_number(&mut self, frames: Vec<u32>) -> u32 {
        let next = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        *self.stacks.entry(frames.into_boxed_slice()).or_insert(next)
    }
}

impl Collect for PairCounter<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let Some(reference) = seen.stack(self.pair.reference) else { return };
        let other = self.pair.other.and_then(|other| seen.stack(other));
        let (relation, marks) = other.map_or_else(Default::default, |other| compare(reference, other));
        let who = self.listed.who(seen);
        let key = PairKey {
            who,
            // Threads of processes that are listed together are not distinguished.
            tid: if matches!(who, Who::Others(_)) { 0 } else { seen.sample.tid },
            comm: seen.place.comm,
            reference: self.side(seen, reference, &marks.reference),
            other: other.map(|other| self.side(seen, other, &marks.other)),
            relation,
        };
        let count = self.counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: Self) {
        let numbers: Vec<u32> = other.frames.values().iter().map(|&frame| self.frames.number(frame)).collect();
        let mut stacks = vec![0; other.stacks.len()];
        for (frames, number) in other.stacks {
            let list = frames.iter().filter_map(|&frame| numbers.get(frame as usize).copied()).collect();
            let own = self.stack_number(list);
            if let Some(slot) = stacks.get_mut(number as usize) {
                *slot = own;
            }
        }
        let own = |side: Side| Side { stack: stacks.get(side.stack as usize).copied().unwrap_or(0), ..side };
        for (key, n) in other.counts {
            let key = PairKey { reference: own(key.reference), other: key.other.map(own), ..key };
            let count = self.counts.entry(key).or_default();
            *count = count.saturating_add(n);
        }
    }
}

/// The marks of the frames of both stacks, leaf first; empty if all are the same.
#[derive(Debug, Default)]
struct Marks {
    reference: Vec<Mark>,
    other: Vec<Mark>,
}

fn compare(reference: StackRef<'_>, other: StackRef<'_>) -> (Option<Relation>, Marks) {
    if reference.frames.is_empty() && other.frames.is_empty() {
        return (None, Marks::default());
    }
    let comparison = Comparison::new(reference, other);
    if comparison.relation == Relation::Same {
        return (Some(Relation::Same), Marks::default());
    }
    let found = same_frames(reference.frames, other.frames);
    let mut marks = vec![Mark::Missing; reference.frames.len()];
    for &index in found.iter().flatten() {
        if let Some(mark) = marks.get_mut(index) {
            *mark = Mark::Same;
        }
    }
    let n_beyond = usize::try_from(comparison.difference.n_beyond).unwrap_or(usize::MAX);
    let beyond = found.len().saturating_sub(n_beyond);
    let mark = |(index, found): (usize, &Option<usize>)| match found {
        Some(_) => Mark::Same,
        None if index >= beyond => Mark::Beyond,
        None => Mark::Wrong,
    };
    let other = found.iter().enumerate().map(mark).collect();
    (Some(comparison.relation), Marks { reference: marks, other })
}
