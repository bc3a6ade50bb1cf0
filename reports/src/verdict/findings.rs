//! The sentences of a verdict.

use super::case::{Case, PERCENTS, smallest, strategy_words};
use super::rule::{MAX_LOST, MIN_GOOD, is_good};
use crate::figures::{byte_count, bytes, chunk_size, count, nanoseconds, number, percent, share};
use crate::finding::{Finding, Judgement};
use fpprof_analysis::accuracy::Relation;

/// The most functions named after which chains break.
const MAX_CULPRITS: usize = 3;
/// The smallest chunk that `record` copies, bytes.
const MIN_CHUNK: u64 = 64;
/// To what a share applies, by the rule.
const EVERYWHERE: &str = "overall and in every process with at least 100 samples and 1 % of all samples";

/// The rule in words.
pub(crate) const RULE: &str = "Stacks are good enough if at least 99 % reach their root, overall and in every \
    process with at least 100 samples and 1 % of all samples. At least 99 % of frame-pointer stacks must also have \
    every frame of the reference, and no wrong one. The verdict is the cheapest choice that is good enough: frame \
    pointers, or else the smallest chunk of copied stack. The reference unwinds whole copied stacks, or walks in \
    the kernel, by call frame information; in JIT-compiled code without that of a jitdump, it follows frame pointers. \
    There is no verdict and no chunk size with fewer than 100 stacks of the reference, if more than 1 % of its stacks do not reach their root, if more than 1 % have a \
    return address that does not follow a call, or if another unwinder finds other frames in more than 1 %.";

/// The sentences, the most important first.
pub(crate) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = vec![headline(case)];
    findings.extend(by_process(case));
    findings.extend(kinds_of_difference(case));
    findings.extend(places_of_difference(case));
    findings.extend(reference_ends(case));
    findings.extend(sizes(case));
    findings.push(cost(case));
    findings.push(losses(case));
    findings
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The verdict in a few sentences.
pub(crate) fn headline(case: &Case<'_>) -> Finding {
    let headline = judgement(case);
    match by_frame_pointers(case) {
        Some(words) => headline.words(words),
        None => headline,
    }
}

/// The share of the reference's stacks with callers found by frame pointers, in words, if it is larger than the errors
/// that a good reference may have.
fn by_frame_pointers(case: &Case<'_>) -> Option<String> {
    let quality = case.analysis.summary.strategies.get(case.reference)?;
    let kinds =
        [(quality.fp_in_jit, "JIT-compiled code"), (quality.fp_fallback, "code without call frame information")];
    let (n, code) = kinds.into_iter().find(|&(n, _)| !is_good(quality.samples.saturating_sub(n), quality.samples))?;
    let share = share(n, quality.samples);
    Some(format!(
        " In {share} of the stacks, callers of {code} were found by frame pointers: they are right if that code keeps them."
    ))
}

/// The sentence of the verdict: frame pointers if they are right, since they cost least, else the smallest chunk.
fn judgement(case: &Case<'_>) -> Finding {
    if case.all.samples == 0 {
        return Finding::new(Judgement::Bad).words("There are no samples.");
    }
    if !case.doubts.is_empty() {
        return unknown(case);
    }
    let other = case.other.map(strategy_words).unwrap_or_default();
    match (case.other_is_good(), case.chunk()) {
        (Some(true), _) => Finding::new(Judgement::Good).words(format!(
            "{} are enough for this workload: {} of their stacks have every frame and no wrong one.",
            capital(other),
            share(case.all.compared().saturating_sub(case.all.worse()), case.all.compared())
        )),
        (Some(false), chunk) => {
            let instead = chunk.map_or_else(
                || format!("With {}, {} do.", strategy_words(case.reference), reaching(case, case.reference)),
                |chunk| {
                    format!(
                        "Copy {} of stack instead: then at least {MIN_GOOD} % reach their root, {EVERYWHERE}.",
                        chunk_size(chunk)
                    )
                },
            );
            Finding::new(Judgement::Good).words(format!(
                "With {other}, {} of the stacks have missing or wrong frames, and {} reach their root. {instead}",
                share(case.all.worse(), case.all.compared()),
                reaching(case, case.other.unwrap_or_default())
            ))
        }
        (None, Some(chunk)) => Finding::new(Judgement::Good).words(format!(
            "Chunks of {} are enough: at least {MIN_GOOD} % of the stacks reach their root, {EVERYWHERE}.",
            chunk_size(chunk)
        )),
        (None, None) => alone(case),
    }
}

/// The finding that there is no verdict: why, and what the tables show nevertheless.
fn unknown(case: &Case<'_>) -> Finding {
    let why = case.doubts.join("; ");
    let words = match case.other {
        Some(other) => format!(
            "No verdict on {} and no chunk size: {why}. With {}, {} of the stacks reach their root; with {}, {}.",
            strategy_words(other),
            strategy_words(other),
            reaching(case, other),
            strategy_words(case.reference),
            reaching(case, case.reference)
        ),
        None => format!("No verdict on the chunk size: {why}."),
    };
    Finding::new(Judgement::Bad).words(words)
}

/// The share of complete stacks in words, the same as in the table of strategies.
fn reaching(case: &Case<'_>, strategy: &str) -> String {
    let ends = case.ends(strategy).cloned().unwrap_or_default();
    share(ends.complete, ends.samples)
}

fn alone(case: &Case<'_>) -> Finding {
    let ends = case.ends(case.reference).cloned().unwrap_or_default();
    let is_good = is_good(ends.complete, ends.samples);
    let finding = Finding::new(if is_good { Judgement::Neutral } else { Judgement::Bad }).words(format!(
        "{} of the stacks reach their root with {}.",
        share(ends.complete, ends.samples),
        strategy_words(case.reference)
    ));
    match case.reference {
        "fp" => finding
            .words(" This recording cannot show whether their frames are right; record with ")
            .name("--call-graph both")
            .words("."),
        _ => finding,
    }
}

fn by_process(case: &Case<'_>) -> Option<Finding> {
    let other = case.other.filter(|_| case.doubts.is_empty())?;
    if case.all.worse() == 0 || case.large().count() < 2 {
        return None;
    }
    let each = case.large().map(|named| (named.name.as_str(), format!(" {}", share(named.worse(), named.compared()))));
    let start = format!("Missing or wrong frames with {}, by process: ", strategy_words(other));
    Some(Finding::new(Judgement::Bad).words(start).list(each).words("."))
}

fn kinds_of_difference(case: &Case<'_>) -> Option<Finding> {
    let kinds = [
        (Relation::LeafCallerMissing, "the caller of the sampled function is missing in"),
        (Relation::WrongFrame, "there is a wrong frame in"),
        (Relation::ExtraFrame, "there is an extra frame in"),
        (Relation::FrameMissing, "frames further out are missing in"),
        (Relation::Prefix, "the chain ends early in"),
    ];
    let mut parts: Vec<(u64, &str)> = kinds.iter().map(|&(relation, words)| (case.all.n(relation), words)).collect();
    parts.retain(|&(n, _)| n > 0);
    parts.sort_by_key(|&(n, _)| std::cmp::Reverse(n));
    let words: Vec<String> =
        parts.iter().map(|(n, words)| format!("{words} {}", share(*n, case.all.compared()))).collect();
    let against = if case.doubts.is_empty() { "Errors" } else { "Compared with that reference" };
    (!words.is_empty()).then(|| Finding::new(Judgement::Bad).words(format!("{against}: {}.", words.join("; "))))
}

fn places_of_difference(case: &Case<'_>) -> Option<Finding> {
    let agreement = case.agreement()?;
    let worst: Vec<_> = agreement.functions.iter().take(MAX_CULPRITS).collect();
    if worst.is_empty() {
        return None;
    }
    let each = worst.into_iter().map(|culprit| {
        let module = if culprit.module.is_empty() { String::new() } else { format!(" in {}", culprit.module) };
        (culprit.name.as_str(), format!("{module} ({})", share(culprit.samples, agreement.samples)))
    });
    Some(Finding::new(Judgement::Neutral).words("Missing first: the caller of ").list(each).words("."))
}

fn reference_ends(case: &Case<'_>) -> Option<Finding> {
    let ends = case.ends(case.reference)?;
    case.other?;
    let good = is_good(ends.complete, ends.samples);
    let finding = Finding::new(if good { Judgement::Good } else { Judgement::Bad }).words(format!(
        "With {} and chunks as recorded, {} of the stacks reach their root",
        strategy_words(case.reference),
        share(ends.complete, ends.samples)
    ));
    let worst = ends.truncated.iter().chain(&ends.broken).max_by_key(|&(_, &n)| n).filter(|&(_, &n)| n > 0);
    Some(match worst {
        Some((reason, &n)) => finding
            .words("; the most common other end is ")
            .name(reason)
            .words(format!(" ({}).", share(n, ends.samples))),
        None => finding.words("."),
    })
}

fn sizes(case: &Case<'_>) -> Option<Finding> {
    if case.all.sizes.samples == 0 || !case.doubts.is_empty() {
        return None;
    }
    let part = |percent: u8| {
        let size = smallest(&case.all.sizes, percent).map_or("more than recorded".to_owned(), chunk_size);
        format!("{percent} % of all stacks: {size}")
    };
    let parts: Vec<String> = PERCENTS.into_iter().map(part).collect();
    let finding = Finding::new(Judgement::Neutral).words(format!("Chunk size to complete {}.", parts.join("; ")));
    let Some(advice) = advice(case) else { return Some(finding) };
    let all = finding.words(" ");
    Some(Finding { pieces: [all.pieces, advice.pieces].concat(), ..all })
}

/// How to request the chunk that is good enough, and its cost.
pub(crate) fn advice(case: &Case<'_>) -> Option<Finding> {
    let chunk = case.chunk().filter(|_| case.other_is_good() != Some(true))?;
    // As it is typed: in whole KiB, and not too small.
    let chunk = if chunk < 1024 { chunk.max(MIN_CHUNK) } else { chunk.next_multiple_of(1024) };
    let (sample, minute) = case.copied(chunk);
    let takes =
        format!(" copies {} per sample, {} per minute at this rate, before compression.", bytes(sample), bytes(minute));
    let size = if chunk < 1024 { chunk.to_string() } else { chunk_size(chunk) };
    let option = format!("--call-graph dwarf,{size}");
    Some(Finding::new(Judgement::Neutral).name(&option).words(takes))
}

fn cost(case: &Case<'_>) -> Finding {
    let summary = &case.analysis.summary;
    let volume = &summary.volume;
    let before = volume.ring_bytes_per_sample;
    let before = before.map_or_else(String::new, |n| format!(" ({} per sample before compression)", bytes(n)));
    let finding = Finding::new(Judgement::Neutral).words(format!(
        "This recording took {} per sample and {} per minute{before}",
        bytes(volume.bytes_per_sample),
        bytes(volume.bytes_per_minute),
    ));
    let Some(cost) = &summary.cost else { return finding.words("; its CPU cost is unknown.") };
    let maps = cost.map_bytes.map_or_else(String::new, |bytes| format!(" and {} of BPF maps", byte_count(bytes)));
    let bpf = cost.bpf_ns_per_tick.map_or_else(String::new, |ns| format!(", {} of BPF per tick", nanoseconds(ns)));
    finding.words(format!(
        ", {} % of one CPU for the collector{bpf}, and at most {} of memory{maps}.",
        number(cost.collector_cpu_percent),
        byte_count(cost.max_rss_bytes)
    ))
}

fn losses(case: &Case<'_>) -> Finding {
    let summary = &case.analysis.summary;
    let (lost, all) = case.lost();
    let balance = match summary.unaccounted {
        0 => "fired = recorded + lost + skipped + dropped holds exactly".to_owned(),
        n => format!("{n} of {} ticks are unaccounted for", count(summary.fired)),
    };
    let is_good = percent(lost, all) <= MAX_LOST && summary.unaccounted == 0 && summary.ended_in_order;
    let finding = Finding::new(if is_good { Judgement::Good } else { Judgement::Bad });
    let causes: Vec<String> = summary.lost.iter().map(|(cause, &n)| format!("{cause} {}", count(n))).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let end = if summary.ended_in_order { String::new() } else { format!(" The recording ended {}.", summary.ended) };
    finding.words(format!("{} of {} samples were lost{causes}; {balance}.{end}", count(lost), count(all)))
}
