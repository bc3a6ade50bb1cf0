//! Counts verdicts: in total, by instruction, and by what broke the stack.

use super::model::LeafSkips;
use super::shadow::Unknown;
use super::verdict::{Verdict, is_caller_of_leaf_missing};
use super::{Match, TrueFrame, verdict};
use crate::address_space::FileIx;
use crate::kernel_walks::KernelWalks;
use crate::strategy::Strategy;
use fpprof_unwind::{Frame, StackRef, StopReason};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// The most distinct instructions counted. Generated code may have more; they are counted in the totals only.
const MAX_SITES: usize = 8 << 20;

/// An instruction, independent of where its file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Its file; `None` for generated code.
    pub file: Option<FileIx>,
    /// SVMA in the file; AVMA without one.
    pub svma: u64,
}

/// Counts by class: exact, truncated, flagged, wrong.
pub(super) type Classes = [u64; 4];

/// A frame for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) address: u64,
    pub(super) cfa: Option<u64>,
    /// The site to symbolise.
    pub(super) site: Site,
}

/// A disagreement kept for display.
#[derive(Debug, Clone)]
pub(super) struct StoredDisagreement {
    pub(super) strategy: usize,
    pub(super) instruction: u64,
    pub(super) site: Site,
    /// The frame whose row was wrong or ended the walk.
    pub(super) culprit: Site,
    pub(super) row: String,
    pub(super) truth: Vec<Shown>,
    /// The stack of every strategy.
    pub(super) stacks: Vec<(Verdict, Vec<Shown>)>,
}

/// The unwind information at a site.
#[derive(Debug, Clone)]
pub(super) struct RowThere {
    /// The row, as text, or why there is none.
    pub(super) words: String,
    /// Start of its FDE: a faulty function is shown once.
    pub(super) entry: Site,
}

/// Which disagreements to keep for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The most that are kept.
    pub max: usize,
    /// The strategy that must disagree.
    pub strategy: Strategy,
}

/// All counts of a run.
#[derive(Debug)]
pub struct Tally {
    pub(super) strategies: Vec<Strategy>,
    pub(super) checked: u64,
    /// Checked instructions whose stacks were judged only up to a root of the program's own.
    pub(super) partly_judged: u64,
    pub(super) walks: KernelWalks,
    pub(super) unknown: BTreeMap<Unknown, u64>,
    pub(super) totals: Vec<BTreeMap<Verdict, u64>>,
    pub(super) leaf_skips: Vec<LeafSkips>,
    /// Exact stacks that are not complete.
    pub(super) roots_missed: Vec<u64>,
    pub(super) sites: FxHashMap<Site, Box<[Classes]>>,
    pub(super) culprits: FxHashMap<Site, Box<[Classes]>>,
    pub(super) n_over_limit: u64,
    pub(super) wanted: Wanted,
    pub(super) kept: Vec<StoredDisagreement>,
    kept_sites: FxHashSet<(Site, Verdict)>,
}

impl Tally {
    /// A tally without counts.
    #[must_use]
    pub fn new(strategies: &[Strategy], wanted: Wanted) -> Self {
        Self {
            strategies: strategies.to_vec(),
            checked: 0,
            partly_judged: 0,
            walks: KernelWalks::default(),
            unknown: BTreeMap::new(),
            totals: strategies.iter().map(|_| BTreeMap::new()).collect(),
            roots_missed: vec![0; strategies.len()],
            leaf_skips: vec![LeafSkips::default(); strategies.len()],
            sites: FxHashMap::default(),
            culprits: FxHashMap::default(),
            n_over_limit: 0,
            wanted,
            kept: Vec::new(),
            kept_sites: FxHashSet::default(),
        }
    }

    /// The strategies, in the order of all counts.
    #[must_use]
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// Adds kernel walks that a checker has judged.
    pub fn add_walks(&mut self, walks: KernelWalks) {
        self.walks.merge(walks);
    }

    /// Counts an instruction whose true stack is not known.
    pub(super) fn count_unknown(&mut self, why: Unknown) {
        let n = self.unknown.entry(why).or_default();
        *n = n.saturating_add(1);
    }

    /// Counts an instruction whose stacks are judged only up to a root of the program's own.
    pub(super) fn count_partly_judged(&mut self) {
        self.partly_judged = self.partly_judged.saturating_add(1);
    }

    /// Counts every strategy's stack at an instruction. `place` returns the site of a look-up address.
    pub(super) fn count(
        &mut self,
        instruction: u64,
        truth: &[TrueFrame],
        stacks: &[StackRef<'_>],
        place: impl Fn(u64) -> Site,
        row: impl Fn(Site) -> RowThere,
    ) {
        self.checked = self.checked.saturating_add(1);
        let Some(leaf) = truth.first() else { return };
        let site = place(leaf.address);
        let mut shown = None;
        let n = self.strategies.len();
        for (index, &stack) in stacks.iter().enumerate() {
            let verdict = self.judge(index, stack, truth);
            bump(&mut self.sites, &mut self.n_over_limit, site, n, index, verdict);
            if verdict == Verdict::Exact {
                continue;
            }
            let culprit = culprit(stack, truth, self.by(index));
            let culprit = culprit.map_or(site, |frame| place(frame.lookup()));
            bump(&mut self.culprits, &mut self.n_over_limit, culprit, n, index, verdict);
            let is_wanted = self.strategies.get(index) == Some(&self.wanted.strategy);
            if is_wanted && self.kept.len() < self.wanted.max {
                let row = row(culprit);
                if self.kept_sites.insert((row.entry, verdict)) {
                    shown = Some((index, culprit, row.words));
                }
            }
        }
        if let Some((strategy, culprit, row)) = shown {
            let kept = self.keep(strategy, instruction, [site, culprit], row, truth, stacks, place);
            self.kept.push(kept);
        }
    }

    fn by(&self, index: usize) -> Match {
        match self.strategies.get(index) {
            Some(Strategy::Fp) => Match::Address,
            _ => Match::AddressAndCfa,
        }
    }

    fn judge(&mut self, index: usize, stack: StackRef<'_>, truth: &[TrueFrame]) -> Verdict {
        let verdict = verdict(stack, truth, self.by(index));
        if let Some(totals) = self.totals.get_mut(index) {
            let n = totals.entry(verdict).or_default();
            *n = n.saturating_add(1);
        }
        let is_root_missed = verdict == Verdict::Exact && !matches!(stack.stop, StopReason::Complete(_));
        if let Some(n) = self.roots_missed.get_mut(index) {
            *n = n.saturating_add(u64::from(is_root_missed));
        }
        if let Some(skips) = self.leaf_skips.get_mut(index) {
            let is_real = is_caller_of_leaf_missing(stack, truth);
            let is_flagged = stack.frames.iter().any(|frame| frame.flags.leaf_skip_suspect);
            skips.real = skips.real.saturating_add(u64::from(is_real));
            skips.flagged = skips.flagged.saturating_add(u64::from(is_flagged));
            skips.both = skips.both.saturating_add(u64::from(is_real && is_flagged));
        }
        verdict
    }

    /// Makes an example of a disagreement that outlives the sample, with the site of each frame and the verdict on each
    /// strategy's stack.
    #[expect(clippy::too_many_arguments, reason = "all that is known of one instruction")]
    fn keep(
        &self,
        strategy: usize,
        instruction: u64,
        [site, culprit]: [Site; 2],
        row: String,
        truth: &[TrueFrame],
        stacks: &[StackRef<'_>],
        place: impl Fn(u64) -> Site,
    ) -> StoredDisagreement {
        let lookup = |index: usize, address: u64| if index == 0 { address } else { address.wrapping_sub(1) };
        let truth = truth.iter().enumerate().map(|(index, frame)| Shown {
            address: frame.address,
            cfa: frame.cfa,
            site: place(lookup(index, frame.address)),
        });
        let truth: Vec<Shown> = truth.collect();
        let true_frames: Vec<TrueFrame> =
            truth.iter().map(|shown| TrueFrame { address: shown.address, cfa: shown.cfa }).collect();
        let stacks = stacks.iter().enumerate().map(|(index, &stack)| {
            let frames = stack.frames.iter().map(|frame| Shown {
                address: frame.address,
                cfa: (frame.cfa != 0).then_some(frame.cfa),
                site: place(frame.lookup()),
            });
            (verdict(stack, &true_frames, self.by(index)), frames.collect())
        });
        let stacks = stacks.collect();
        StoredDisagreement { strategy, instruction, site, culprit, row, truth, stacks }
    }
}

fn bump(
    counts: &mut FxHashMap<Site, Box<[Classes]>>,
    n_over_limit: &mut u64,
    site: Site,
    n_strategies: usize,
    strategy: usize,
    verdict: Verdict,
) {
    if counts.len() >= MAX_SITES && !counts.contains_key(&site) {
        *n_over_limit = n_over_limit.saturating_add(1);
        return;
    }
    let classes = counts.entry(site).or_insert_with(|| vec![Classes::default(); n_strategies].into());
    let class = match verdict {
        Verdict::Exact => 0,
        Verdict::Truncated(_) => 1,
        Verdict::Flagged(_) => 2,
        Verdict::Wrong(_) => 3,
    };
    if let Some(n) = classes.get_mut(strategy).and_then(|classes| classes.get_mut(class)) {
        *n = n.saturating_add(1);
    }
}

/// The frame whose row, or frame pointer, gave the first wrong frame or ended the walk.
fn culprit<'a>(stack: StackRef<'a>, truth: &[TrueFrame], by: Match) -> Option<&'a Frame> {
    let pairs = stack.frames.iter().zip(truth);
    let right = pairs.clone().take_while(|(frame, truth)| {
        let has_same_cfa = by == Match::Address || frame.cfa == 0 || truth.cfa.is_none_or(|cfa| cfa == frame.cfa);
        frame.address == truth.address && has_same_cfa
    });
    let n_right = right.count();
    let is_wrong_cfa = stack.frames.get(n_right).zip(truth.get(n_right)).is_some_and(|(f, t)| f.address == t.address);
    let index = if is_wrong_cfa { n_right } else { n_right.saturating_sub(1) };
    // A premature end is due to the last frame.
    let is_end = n_right == stack.frames.len() && !matches!(stack.stop, StopReason::Complete(_));
    if is_end { stack.frames.last() } else { stack.frames.get(index) }
}
