//! What verdicts are made from, and the sizes they speak of.

use super::doubts::doubts;
use super::names::Named;
use super::rule::{MIN_GOOD, is_good, is_judged, is_large};
use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::{Agreement, ChunkSizes};
use fpprof_analysis::detail::Detail;
use fpprof_analysis::experiment::StackEnds;

/// Per cent of the stacks that a size is looked for.
pub(crate) const PERCENTS: [u8; 5] = [50, 90, 95, 99, 100];

/// What verdicts are made from.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    pub(crate) analysis: &'a Analysis,
    pub(crate) reference: &'a str,
    pub(crate) other: Option<&'a str>,
    pub(crate) all: &'a Named,
    pub(crate) names: &'a [Named],
    /// What speaks against the reference, in words. Where anything does, there is no verdict.
    pub(crate) doubts: Vec<String>,
}

impl<'a> Case<'a> {
    /// Of an analysis with the detail that its verdict needs, and what [`names`](super::names) makes of them.
    pub(crate) fn new(analysis: &'a Analysis, detail: &'a Detail, all: &'a Named, names: &'a [Named]) -> Self {
        let (reference, other) = (detail.stacks.reference.as_str(), detail.stacks.other.as_deref());
        let case = Self { analysis, reference, other, all, names, doubts: Vec::new() };
        Self { doubts: doubts(&case), ..case }
    }

    /// What is asked for a share of good stacks: all samples together, and the large process names.
    pub(super) fn judged(&self) -> impl Iterator<Item = &'a Named> {
        self.names.iter().filter(|named| is_judged(named.samples, self.all.samples)).chain(std::iter::once(self.all))
    }

    /// The process names that are spoken of.
    pub(crate) fn large(&self) -> impl Iterator<Item = &'a Named> {
        let all = self.all.samples;
        self.names.iter().filter(move |named| is_large(named.samples, all))
    }

    /// How all stacks of a strategy ended.
    pub(crate) fn ends(&self, strategy: &str) -> Option<&'a StackEnds> {
        self.all.ends.get(strategy)
    }

    /// Whether the other is as good as the reference asks for; `None` where there is no other, or no telling.
    pub(crate) fn other_is_right(&self) -> Option<bool> {
        let other = self.other.filter(|_| self.doubts.is_empty())?;
        let is_right = |named: &Named| {
            let right = named.compared().saturating_sub(named.worse());
            is_good(right, named.compared())
                && named.ends.get(other).is_some_and(|ends| is_good(ends.complete, ends.samples))
        };
        Some(self.all.compared() > 0 && self.judged().all(is_right))
    }

    /// The smallest chunk that is good enough for all that is judged; `None` where the recording does not tell.
    pub(crate) fn chunk(&self) -> Option<u64> {
        if self.all.sizes.samples == 0 || !self.doubts.is_empty() {
            return None;
        }
        let judged = self.judged().filter(|named| named.sizes.samples > 0);
        judged.map(|named| smallest(&named.sizes, MIN_GOOD)).try_fold(0, |most, size| Some(size?.max(most)))
    }

    /// Bytes copied a sample and a minute with chunks of this size.
    pub(crate) fn copied(&self, chunk: u64) -> (f64, f64) {
        let summary = &self.analysis.summary;
        let mean = self.all.sizes.mean_copied_at(chunk);
        (mean, mean * per_minute(summary.n_shown(), summary.shown_duration_s()))
    }

    /// Samples lost or dropped, and all that should be there.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let summary = &self.analysis.summary;
        let lost = summary.lost.values().fold(summary.dropped, |sum, &n| sum.saturating_add(n));
        (lost, summary.recorded.saturating_add(lost))
    }

    pub(super) fn agreement(&self) -> Option<&'a Agreement> {
        let other = self.other?;
        self.analysis.summary.agreements.iter().find(|pair| pair.reference == self.reference && pair.other == other)
    }
}

/// A strategy in words.
pub(crate) fn strategy_words(name: &str) -> &str {
    match name {
        "fp" => "frame pointers",
        "dwarf" => "DWARF",
        other => other,
    }
}

/// The smallest chunk that completes so many per cent of the stacks.
pub(crate) fn smallest(sizes: &ChunkSizes, percent: u8) -> Option<u64> {
    sizes.smallest_for(f64::from(percent) / 100.0)
}

/// Samples a minute of a recording of this length.
pub(crate) fn per_minute(samples: u64, duration_s: f64) -> f64 {
    if duration_s > 0.0 { samples as f64 * 60.0 / duration_s } else { 0.0 }
}
