//! Tables that need no script: strategies, chunk sizes, and what broke the chain.

use crate::escape::shown;
use crate::figures::{self, chunk_size, count, number, share};
use crate::finding::text;
use crate::kernel_walks;
use crate::shell::bar;
use crate::verdict::{Case, Named, PERCENTS, smallest};
use fpprof_analysis::accuracy::{Agreement, Relation};
use fpprof_analysis::experiment::StackEnds;
use maud::{Markup, html};

/// The most process names with rows of their own.
pub(super) const MAX_NAMES: usize = 12;
/// The most functions in the table of the hottest.
const MAX_FUNCTIONS: usize = 16;
/// The most functions listed after which chains break.
const MAX_CULPRITS: usize = 15;

/// The hottest functions.
pub(super) fn functions(case: &Case<'_>) -> Markup {
    let summary = &case.analysis.summary;
    let all = summary.shown_amount();
    html! {
        section.card.functions aria-labelledby="functions" {
            h2 #functions {
                "Hottest functions"
                @if summary.strategies.len() > 1 { " (" (shown(&summary.hottest_strategy)) " stacks)" }
            }
            div.wrap { table {
                thead { tr { th.n { "self" } th.n { "total" } th { "function" } } }
                tbody {
                    @for function in summary.hottest.iter().take(MAX_FUNCTIONS) {
                        tr title={ (shown(&function.name)) " in " (shown(&function.module)) } {
                            td.n { (text(&share(function.self_samples, all))) }
                            td.n { (text(&share(function.total_samples, all))) }
                            td.cut { (shown(&function.name)) }
                        }
                    }
                }
            } }
        }
    }
}

/// Every strategy over all processes, and over each of the larger process names.
pub(super) fn strategies(case: &Case<'_>) -> Markup {
    html! {
        div.wrap {
            table {
                thead { tr {
                    th { "strategy" } th { "process" } th.n { "samples" } th { "stacks" } th.n { "complete" }
                    th.n { "truncated" } th.n { "broken" } th.n { "frames/stack" } th.n { "same as reference" }
                    th { "reasons" }
                } }
                @for strategy in case.all.ends.keys() {
                    tbody {
                        (row(case, strategy, case.all, true))
                        @if case.names.len() > 1 {
                            @for named in case.large().take(MAX_NAMES) { (row(case, strategy, named, false)) }
                        }
                    }
                }
            }
        }
        @if let Some(walks) = &case.analysis.summary.kernel_walks {
            p.lead { (text(&format!("cfi: {}.", kernel_walks::lines(walks, kernel_walks::IN_KERNEL).join("; ")))) }
        }
        @for (strategy, &n) in &case.analysis.summary.no_call_before {
            @let samples = case.all.ends.get(strategy).map_or(0, |ends| ends.samples);
            p.lead { (text(&format!("{strategy}: {}.", figures::no_call_before(n, samples)))) }
        }
        (key())
    }
}

fn row(case: &Case<'_>, strategy: &str, named: &Named, is_all: bool) -> Markup {
    let ends = named.ends.get(strategy).cloned().unwrap_or_default();
    let quality = case.analysis.summary.strategies.get(strategy).filter(|_| is_all);
    let frames = quality.map(|quality| number(quality.frames as f64 / quality.samples.max(1) as f64));
    html! {
        tr {
            td.name { @if is_all { (shown(strategy)) } }
            td { @if is_all { "all" } @else { code { (shown(&named.name)) } } }
            td.n { (count(ends.samples)) }
            td.bar { (bar(&ends)) }
            td.n { (text(&share(ends.complete, ends.samples))) }
            td.n { (text(&share(ends.n_truncated(), ends.samples))) }
            td.n { (text(&share(ends.n_broken(), ends.samples))) }
            td.n { (frames.unwrap_or_default()) }
            td.n { (same(case, strategy, named, is_all)) }
            td.words { (text(&reasons(&ends))) }
        }
    }
}

/// The share of samples with the same frames as the reference.
fn same(case: &Case<'_>, strategy: &str, named: &Named, is_all: bool) -> String {
    if strategy == case.reference {
        return "reference".to_owned();
    }
    let is_pair = |pair: &&Agreement| pair.reference == case.reference && pair.other == strategy;
    let agreement = case.analysis.summary.agreements.iter().find(is_pair).filter(|_| is_all);
    if let Some(agreement) = agreement {
        let same = agreement.relations.get(&Relation::Same).copied().unwrap_or(0);
        return text(&share(same, agreement.samples));
    }
    if case.other == Some(strategy) {
        return text(&share(named.n(Relation::Same), named.compared()));
    }
    String::new()
}

/// The most frequent reasons for stacks that did not reach their root.
pub(super) fn reasons(ends: &StackEnds) -> String {
    let mut all: Vec<(&String, u64)> = ends.truncated.iter().chain(&ends.broken).map(|(name, &n)| (name, n)).collect();
    all.retain(|&(_, n)| n > 0);
    all.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    let words: Vec<String> =
        all.iter().take(4).map(|(name, n)| format!("{name} {}", share(*n, ends.samples))).collect();
    words.join(", ")
}

fn key() -> Markup {
    html! {
        div.key {
            @for (class, words) in [
                ("complete", "complete: reached the outermost frame"),
                ("truncated", "truncated: there are more frames, which cannot be seen"),
                ("broken", "broken: what was found cannot be right"),
            ] {
                span { svg viewBox="0 0 1 1" aria-hidden="true" { rect class=(class) width="1" height="1" {} } (words) }
            }
        }
    }
}

/// The smallest sufficient chunks, by process name.
pub(super) fn sizes(case: &Case<'_>) -> Markup {
    let rows = std::iter::once(("all", case.all)).chain(case.names.iter().map(|named| (named.name.as_str(), named)));
    html! {
        div.wrap {
            table {
                thead { tr {
                    th { "process" } th.n { "stacks" }
                    @for percent in PERCENTS { th.n { (text(&format!("{percent} %"))) } }
                } }
                tbody {
                    @for (name, named) in rows.filter(|(_, named)| named.sizes.samples > 0).take(MAX_NAMES) {
                        tr {
                            td.name { (shown(name)) } td.n { (count(named.sizes.samples)) }
                            @for percent in PERCENTS {
                                td.n { (text(&smallest(&named.sizes, percent).map_or("–".to_owned(), chunk_size))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The functions after which the other strategy first misses the caller.
pub(super) fn culprits(agreement: &Agreement) -> Markup {
    html! {
        div.wrap {
            table {
                thead { tr { th { "function" } th { "module" } th.n { "samples" } th.n { "share" } } }
                tbody {
                    @for culprit in agreement.functions.iter().take(MAX_CULPRITS) {
                        tr {
                            td { code { (shown(&culprit.name)) } } td { (shown(&culprit.module)) }
                            td.n { (count(culprit.samples)) }
                            td.n { (text(&share(culprit.samples, agreement.samples))) }
                        }
                    }
                }
            }
        }
    }
}
