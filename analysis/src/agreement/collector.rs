//! Counts how two stacks of each sample differ.

use crate::accuracy::{Comparison, Difference, Relation};
use crate::fold::{Where, locate};
use crate::replay::{Collect, Seen};
use fpprof_unwind::{Frame, StackRef, StopReason};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The most frames kept of an example beyond the first difference.
const MAX_FRAMES_BEYOND: usize = 4;
/// The most frames kept of an example.
const MAX_FRAMES: usize = 24;

/// The key of counts: the relation, and how the reference and the other stack ended.
pub(super) type ReasonKey = (Relation, StopReason, StopReason);

/// Where two stacks first differ, and the caller each has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Split {
    /// The last frame both have.
    pub(super) after: Where,
    /// Its caller according to the reference.
    pub(super) reference: Option<Caller>,
    /// Its caller according to the other strategy.
    pub(super) other: Option<Caller>,
}

/// A caller's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Caller {
    /// Its place, as looked up: one byte lower for a return address.
    pub(super) place: Where,
    /// It was interrupted instead of calling.
    pub(super) is_instruction: bool,
}

/// Identifies a sample: time, CPU, thread.
pub(super) type SampleName = (u64, u32, u32);

/// An example: a sample whose stacks differ.
#[derive(Debug, Clone)]
pub(super) struct StoredExample {
    pub(super) name: SampleName,
    pub(super) pid: u32,
    /// Index of the last frame both have.
    pub(super) frame: usize,
    pub(super) split: Split,
    pub(super) reference: ExampleStack,
    pub(super) other: ExampleStack,
}

/// The kept frames of an example, leaf first.
#[derive(Debug, Clone)]
pub(super) struct ExampleStack {
    pub(super) n_before: usize,
    pub(super) frames: Vec<(Frame, Where)>,
    pub(super) n_more: usize,
    pub(super) stop: StopReason,
}

/// Counts how two strategies differ in each sample; the first replayed one is the reference.
#[derive(Debug)]
pub(super) struct Collector {
    /// The most examples per reason, each at a different place.
    max_examples: usize,
    /// All selected samples.
    pub(super) shown: u64,
    /// Samples that were compared.
    pub(super) samples: u64,
    pub(super) frames: Difference,
    pub(super) reasons: FxHashMap<ReasonKey, u64>,
    pub(super) splits: FxHashMap<(ReasonKey, Split), u64>,
    pub(super) kept: FxHashMap<ReasonKey, BTreeMap<SampleName, StoredExample>>,
}

impl Collector {
    /// Creates a collector that keeps up to `max_examples` examples per reason.
    pub(super) fn new(max_examples: usize) -> Self {
        Self {
            max_examples,
            shown: 0,
            samples: 0,
            frames: Difference::default(),
            reasons: FxHashMap::default(),
            splits: FxHashMap::default(),
            kept: FxHashMap::default(),
        }
    }

    fn compare(&mut self, seen: &Seen<'_>, reference: StackRef<'_>, other: StackRef<'_>) {
        let comparison = Comparison::new(reference, other);
        let reason = (comparison.relation, reference.stop, other.stop);
        self.samples = self.samples.saturating_add(1);
        self.frames.add(&comparison.difference);
        count(&mut self.reasons, reason, 1);
        let Some(frame) = comparison.differs_after else { return };
        let Some(after) = reference.frames.get(frame) else { return };
        let place = |frame: &Frame| locate(frame, seen.space, seen.modules, seen.sample.time_ns);
        let caller = |stack: StackRef<'_>| {
            let frame = stack.frames.get(frame.saturating_add(1))?;
            Some(Caller { place: place(frame), is_instruction: frame.flags.is_instruction })
        };
        let split = Split { after: place(after), reference: caller(reference), other: caller(other) };
        count(&mut self.splits, (reason, split), 1);
        let name = (seen.sample.time_ns, seen.sample.cpu, seen.sample.tid);
        if self.is_wanted(reason, name, split.after) {
            let stack = |stack: StackRef<'_>| kept_stack(stack, frame, place);
            let (reference, other) = (stack(reference), stack(other));
            self.keep(reason, StoredExample { name, pid: seen.sample.pid, frame, split, reference, other });
        }
    }

    /// Whether a sample is the earliest at its place, and its place is among the first of its reason.
    fn is_wanted(&self, reason: ReasonKey, name: SampleName, after: Where) -> bool {
        let Some(kept) = self.kept.get(&reason) else { return self.max_examples > 0 };
        if let Some(earlier) = kept.values().find(|kept| kept.split.after == after) {
            return name < earlier.name;
        }
        kept.len() < self.max_examples || kept.last_key_value().is_some_and(|(&last, _)| name < last)
    }

    /// Keeps the earliest sample of each place, and the places with the earliest samples. A dropped place returns with
    /// an earlier sample, so that the order of samples does not matter.
    fn keep(&mut self, reason: ReasonKey, new: StoredExample) {
        if !self.is_wanted(reason, new.name, new.split.after) {
            return;
        }
        let kept = self.kept.entry(reason).or_default();
        kept.retain(|_, kept| kept.split.after != new.split.after);
        kept.insert(new.name, new);
        if kept.len() > self.max_examples {
            kept.pop_last();
        }
    }
}

impl Collect for Collector {
    fn add(&mut self, seen: &Seen<'_>) {
        self.shown = self.shown.saturating_add(1);
        let &[Some(reference), Some(other)] = seen.stacks else { return };
        if !reference.frames.is_empty() || !other.frames.is_empty() {
            self.compare(seen, reference, other);
        }
    }

    fn merge(&mut self, other: Self) {
        self.shown = self.shown.saturating_add(other.shown);
        self.samples = self.samples.saturating_add(other.samples);
        self.frames.add(&other.frames);
        other.reasons.into_iter().for_each(|(reason, n)| count(&mut self.reasons, reason, n));
        other.splits.into_iter().for_each(|(split, n)| count(&mut self.splits, split, n));
        for (reason, kept) in other.kept {
            kept.into_values().for_each(|kept| self.keep(reason, kept));
        }
    }
}

fn kept_stack(stack: StackRef<'_>, frame: usize, place: impl Fn(&Frame) -> Where) -> ExampleStack {
    let wanted = frame.saturating_add(1).saturating_add(MAX_FRAMES_BEYOND);
    // A difference deep in a stack is shown with the frames around it, not from the leaf on.
    let n_before = wanted.saturating_sub(MAX_FRAMES).min(stack.frames.len());
    let shown = stack.frames.iter().skip(n_before).take(MAX_FRAMES);
    let frames = shown.map(|frame| (*frame, place(frame))).collect();
    ExampleStack {
        n_before,
        frames,
        n_more: stack.frames.len().saturating_sub(n_before.saturating_add(MAX_FRAMES)),
        stop: stack.stop,
    }
}

fn count<K: Eq + std::hash::Hash>(counts: &mut FxHashMap<K, u64>, key: K, n: u64) {
    let total = counts.entry(key).or_default();
    *total = total.saturating_add(n);
}
