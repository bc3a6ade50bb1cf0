//! The basis of verdicts: its figures, doubts about the reference, and the chunk sizes it names.

use super::names::Named;
use super::rule::{MIN_GOOD, MIN_SAMPLES, is_good, is_judged, is_large};
use crate::figures::{count, percent, plural, share};
use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::{Agreement, ChunkSizes, Relation};
use fpprof_analysis::detail::Details;
use fpprof_analysis::experiment::StackEnds;

/// Shares of stacks, in per cent, for which a chunk size is computed.
pub(crate) const PERCENTS: [u8; 5] = [50, 90, 95, 99, 100];
/// Third-party unwinders, whose stacks of the same samples can contradict ours.
const EXTERNAL_UNWINDERS: [&str; 2] = ["elfutils", "libunwind"];

/// The basis of a verdict.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    pub(crate) analysis: &'a Analysis,
    pub(crate) reference: &'a str,
    pub(crate) other: Option<&'a str>,
    pub(crate) all: &'a Named,
    pub(crate) names: &'a [Named],
    /// Reasons to doubt the reference, in words. If there is any, there is no verdict.
    pub(crate) doubts: Vec<String>,
}

impl<'a> Case<'a> {
    /// Builds the case of an analysis from the detail that a verdict needs, and from the result of
    /// [`names`](super::names).
    pub(crate) fn new(analysis: &'a Analysis, detail: &'a Details, all: &'a Named, names: &'a [Named]) -> Self {
        let (reference, other) = (detail.stacks.reference.as_str(), detail.stacks.other.as_deref());
        let case = Self { analysis, reference, other, all, names, doubts: Vec::new() };
        Self { doubts: doubts(&case), ..case }
    }

    /// The names that must have the required share of good stacks: all samples together, and the large process names.
    pub(super) fn judged(&self) -> impl Iterator<Item = &'a Named> {
        self.names.iter().filter(|named| is_judged(named.samples, self.all.samples)).chain(std::iter::once(self.all))
    }

    /// Whether so many of the samples of a judged name have what is judged that it is judged by that, too: not all have a copied
    /// stack.
    fn has_enough(&self, named: &Named, n: impl Fn(&Named) -> u64) -> bool {
        named.name.is_empty() || is_judged(n(named), n(self.all))
    }

    /// The process names that the verdict mentions.
    pub(crate) fn large(&self) -> impl Iterator<Item = &'a Named> {
        let all = self.all.samples;
        self.names.iter().filter(move |named| is_large(named.samples, all))
    }

    /// How all stacks of a strategy ended.
    pub(crate) fn ends(&self, strategy: &str) -> Option<&'a StackEnds> {
        self.all.ends.get(strategy)
    }

    /// Whether frame pointers are good enough compared with the reference; `None` if they are not compared with it, or
    /// if it is in doubt. Any other strategy needs copied stacks, too, so it is no choice of a mode.
    pub(crate) fn other_is_good(&self) -> Option<bool> {
        let other = self.other.filter(|&other| other == "fp" && self.doubts.is_empty())?;
        let is_right = |named: &Named| {
            let right = named.compared().saturating_sub(named.worse());
            let has_enough = self.has_enough(named, Named::compared);
            (!has_enough || is_good(right, named.compared()))
                && named.ends.get(other).is_some_and(|ends| is_good(ends.complete, ends.samples))
        };
        Some(self.all.compared() > 0 && self.judged().all(is_right))
    }

    /// The smallest chunk that is good enough for all judged names; `None` if the recording does not show one.
    pub(crate) fn chunk(&self) -> Option<u64> {
        if self.all.sizes.samples == 0 || !self.doubts.is_empty() {
            return None;
        }
        let judged = self.judged().filter(|named| self.has_enough(named, |named| named.sizes.samples));
        judged.map(|named| smallest(&named.sizes, MIN_GOOD)).try_fold(0, |most, size| Some(size?.max(most)))
    }

    /// Bytes copied per sample and per minute with chunks of this size.
    pub(crate) fn copied(&self, chunk: u64) -> (f64, f64) {
        let sizes = &self.all.sizes;
        // Perf events copy all of a chunk, even if the stack ends before.
        let is_padded = self.analysis.summary.environment.collector == "perf_event";
        let mean = if is_padded { chunk as f64 } else { sizes.mean_copied_at(chunk) };
        (mean, mean * per_minute(sizes.to_copy, self.analysis.summary.shown_duration_s()))
    }

    /// The number of samples lost or dropped, and of all that should have been recorded.
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

/// A strategy's name in prose.
pub(crate) fn strategy_words(name: &str) -> &str {
    match name {
        "fp" => "frame pointers",
        "dwarf" => "DWARF",
        "sframe" => "SFrame",
        "cfi" => "CFI in the kernel",
        other => other,
    }
}

/// The smallest chunk that completes the given share of the stacks.
pub(crate) fn smallest(sizes: &ChunkSizes, percent: u8) -> Option<u64> {
    sizes.smallest_for(f64::from(percent) / 100.0)
}

/// Samples per minute of a recording of this length.
pub(crate) fn per_minute(samples: u64, duration_s: f64) -> f64 {
    if duration_s > 0.0 { samples as f64 * 60.0 / duration_s } else { 0.0 }
}

/// Reasons in words why the reference cannot decide what is right; empty if there is none.
fn doubts(case: &Case<'_>) -> Vec<String> {
    // Frame pointers alone are no reference: the verdict makes no statement about their frames.
    if case.reference == "fp" {
        return Vec::new();
    }
    [too_few(case), ends_early(case), no_call_before(case)]
        .into_iter()
        .flatten()
        .chain(external_unwinders(case))
        .collect()
}

fn too_few(case: &Case<'_>) -> Option<String> {
    let n = case.ends(case.reference)?.samples;
    (n < MIN_SAMPLES).then(|| {
        format!(
            "only {} stack{} with {}, fewer than {MIN_SAMPLES}: record longer or at a higher rate",
            count(n),
            plural(n),
            strategy_words(case.reference)
        )
    })
}

/// The process name, or all of them, with the smallest share of complete stacks by the reference, if that share is too
/// small.
fn ends_early(case: &Case<'_>) -> Option<String> {
    let n_ends = |named: &Named| named.ends.get(case.reference).map_or(0, |ends| ends.samples);
    let judged = case.judged().filter(|named| case.has_enough(named, n_ends));
    let judged = judged.filter_map(|named| Some((named, named.ends.get(case.reference)?)));
    let (named, ends) = judged
        .filter(|(_, ends)| !is_good(ends.complete, ends.samples))
        .min_by(|(_, a), (_, b)| percent(a.complete, a.samples).total_cmp(&percent(b.complete, b.samples)))?;
    let reason = ends.truncated.iter().chain(&ends.broken).filter(|&(_, &n)| n > 0).max_by_key(|&(_, &n)| n);
    let mostly = match reason {
        Some((reason, _)) => match remedy(reason) {
            Some(remedy) => format!(" (mostly {reason}: {remedy})"),
            None => format!(" (mostly {reason})"),
        },
        None => String::new(),
    };
    Some(format!(
        "with {}, only {} of {} reach their root{mostly}",
        strategy_words(case.reference),
        share(ends.complete, ends.samples),
        owner(named)
    ))
}

/// What lets fewer stacks end for this reason.
pub(crate) fn remedy(reason: &str) -> Option<&'static str> {
    match reason {
        "chunk_end" => Some("record larger chunks"),
        "shed" => Some("the ring buffer was filling up; use a larger -m, a lower -F, or --realtime 1"),
        "max_depth" => Some("use --max-depth N"),
        _ => None,
    }
}

/// The owner of the stacks, in words.
fn owner(named: &Named) -> String {
    if named.name.is_empty() { "the stacks".to_owned() } else { format!("the stacks of {}", named.name) }
}

fn no_call_before(case: &Case<'_>) -> Option<String> {
    let n = *case.analysis.summary.no_call_before.get(case.reference)?;
    let samples = case.ends(case.reference)?.samples;
    (!is_good(samples.saturating_sub(n), samples)).then(|| {
        format!(
            "in {} of the stacks with {}, a return address does not follow a call",
            share(n, samples),
            strategy_words(case.reference)
        )
    })
}

fn external_unwinders<'a>(case: &Case<'a>) -> impl Iterator<Item = String> + use<'a> {
    let reference = case.reference;
    let of_reference =
        move |pair: &&Agreement| pair.reference == reference && EXTERNAL_UNWINDERS.contains(&pair.other.as_str());
    case.analysis.summary.agreements.iter().filter(of_reference).filter_map(|pair| {
        // A stack that merely ends earlier is no contradiction.
        let contradictions =
            [Relation::WrongFrame, Relation::ExtraFrame, Relation::LeafCallerMissing, Relation::FrameMissing];
        let n = contradictions
            .iter()
            .fold(0_u64, |sum, relation| sum.saturating_add(pair.relations.get(relation).copied().unwrap_or(0)));
        (!is_good(pair.samples.saturating_sub(n), pair.samples))
            .then(|| format!("{} finds other frames in {} of the stacks", pair.other, share(n, pair.samples)))
    })
}
