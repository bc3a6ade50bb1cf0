//! Samples by function, and a function's callers and callees.

use super::labels::{Kind, Labels};
use super::tree::Sides;
use crate::escape::shown;
use rustc_hash::FxHashMap;

/// A function by name and, optionally, by file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name.
    pub name: String,
    /// Base name of its file; `None` for any.
    pub module: Option<String>,
}

impl Chosen {
    /// Whether a label is this function's. Its name is as it is shown: long ones are cut.
    pub(super) fn is(&self, label: u32, labels: &Labels) -> bool {
        labels.get(label).is_some_and(|it| {
            let is_named = |number, name: &str| shown(labels.text(number)) == name;
            is_named(it.name, &self.name) && self.module.as_deref().is_none_or(|module| is_named(it.module, module))
        })
    }
}

/// Counts samples by label.
#[derive(Debug, Default)]
pub(super) struct Counts {
    by_label: Vec<Count>,
    chosen: Option<Chosen>,
    /// By label, whether it is the chosen function's; `None` if that was not looked at yet.
    is_chosen: Vec<Option<bool>>,
    pub(super) callers: FxHashMap<Option<u32>, u64>,
    pub(super) callees: FxHashMap<Option<u32>, u64>,
    n_stacks: u64,
    beside: Vec<Option<u32>>,
}

/// Samples of a function: as a leaf, and anywhere on the stack.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Count {
    pub(super) own: Sides,
    pub(super) total: Sides,
    /// Number of the last stack counted in `total`: a recursive function counts once per stack.
    last: u64,
}

impl Counts {
    pub(super) fn new(chosen: Option<Chosen>) -> Self {
        Self { chosen, ..Self::default() }
    }

    /// Adds a stack; frames start at the root.
    pub(super) fn add(&mut self, side: usize, frames: &[u32], labels: &Labels, samples: u64) {
        self.n_stacks += 1;
        for (at, &label) in frames.iter().enumerate() {
            let index = label as usize;
            if self.by_label.len() <= index {
                self.by_label.resize(index + 1, Count::default());
            }
            let Some(count) = self.by_label.get_mut(index) else { continue };
            if count.last != self.n_stacks {
                count.last = self.n_stacks;
                count.total = more(count.total, side, samples);
            }
            if at + 1 == frames.len() {
                count.own = more(count.own, side, samples);
            }
        }
        self.add_neighbours(frames, labels, samples);
    }

    /// Counts the callers and callees of the chosen function, each once per stack; `None` is the end of the stack.
    fn add_neighbours(&mut self, frames: &[u32], labels: &Labels, samples: u64) {
        let Self { chosen, is_chosen, callers, callees, beside, .. } = self;
        let Some(chosen) = chosen else { return };
        let mut is_chosen = |label: u32| {
            let index = label as usize;
            if is_chosen.len() <= index {
                is_chosen.resize(index + 1, None);
            }
            let known = is_chosen.get_mut(index);
            known.is_some_and(|known| *known.get_or_insert_with(|| chosen.is(label, labels)))
        };
        for (of, step) in [(callers, -1), (callees, 1)] {
            beside.clear();
            for (at, _) in frames.iter().enumerate().filter(|&(_, &label)| is_chosen(label)) {
                let neighbour = at.checked_add_signed(step).and_then(|at| frames.get(at).copied());
                if !beside.contains(&neighbour) {
                    beside.push(neighbour);
                }
            }
            for &neighbour in beside.iter() {
                let n: &mut u64 = of.entry(neighbour).or_default();
                *n = n.saturating_add(samples);
            }
        }
    }

    /// Whether a label is the chosen function's.
    pub(super) fn has_chosen(&self, label: u32, labels: &Labels) -> bool {
        self.chosen.as_ref().is_some_and(|chosen| chosen.is(label, labels))
    }

    /// The label and samples of each function.
    pub(super) fn by_label<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = (u32, Count)> + 'a {
        let is_frame = |label: u32| labels.get(label).is_some_and(|label| label.kind == Kind::Frame);
        (0..).zip(self.by_label.iter().copied()).filter(move |&(label, count)| is_frame(label) && count.last > 0)
    }
}

fn more(mut sides: Sides, side: usize, samples: u64) -> Sides {
    if let Some(n) = sides.get_mut(side) {
        *n = n.saturating_add(samples);
    }
    sides
}
