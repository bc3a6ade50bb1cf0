//! What speaks against the reference of a verdict.

use super::case::{Case, strategy_words};
use super::names::Named;
use super::rule::is_good;
use crate::figures::{percent, share};
use fpprof_analysis::accuracy::{Agreement, Relation};

/// Unwinders of others, whose stacks of the same samples can speak against ours.
const EXTERNAL_UNWINDERS: [&str; 2] = ["elfutils", "libunwind"];

/// Why one cannot tell by the reference what is right, in words; empty where nothing speaks against it.
pub(super) fn doubts(case: &Case<'_>) -> Vec<String> {
    // Frame pointers alone are no reference: nothing is said of their frames.
    if case.reference == "fp" {
        return Vec::new();
    }
    [ends_early(case), no_call_before(case)].into_iter().flatten().chain(external_unwinders(case)).collect()
}

/// The process name, or all of them, with the smallest share of complete stacks by the reference, if that is too small.
fn ends_early(case: &Case<'_>) -> Option<String> {
    let judged = case.judged().filter_map(|named| Some((named, named.ends.get(case.reference)?)));
    let (named, ends) = judged
        .filter(|(_, ends)| !is_good(ends.complete, ends.samples))
        .min_by(|(_, a), (_, b)| percent(a.complete, a.samples).total_cmp(&percent(b.complete, b.samples)))?;
    let reason = ends.truncated.iter().chain(&ends.broken).filter(|&(_, &n)| n > 0).max_by_key(|&(_, &n)| n);
    let mostly = match reason {
        Some((reason, _)) if reason == "chunk_end" => " (mostly chunk_end: record larger chunks)".to_owned(),
        Some((reason, _)) => format!(" (mostly {reason})"),
        None => String::new(),
    };
    Some(format!(
        "with {}, only {} of {} reach their root{mostly}",
        strategy_words(case.reference),
        share(ends.complete, ends.samples),
        whose(named)
    ))
}

/// Whose stacks they are.
fn whose(named: &Named) -> String {
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
        // A stack that merely ends earlier does not contradict it.
        let contradictions =
            [Relation::WrongFrame, Relation::ExtraFrame, Relation::LeafCallerMissing, Relation::FrameMissing];
        let n = contradictions
            .iter()
            .fold(0_u64, |sum, relation| sum.saturating_add(pair.relations.get(relation).copied().unwrap_or(0)));
        (!is_good(pair.samples.saturating_sub(n), pair.samples))
            .then(|| format!("{} finds other frames in {} of the stacks", pair.other, share(n, pair.samples)))
    })
}
