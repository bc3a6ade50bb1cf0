//! The verdict with its four figures, the evidence for it, and how the recording was made.

use crate::escape::shown;
use crate::figures::{bytes, chunk_size, count, number, percent, processors, seconds, share, system};
use crate::finding::{class, sentence, text};
use crate::terminal::overhead_words;
use crate::verdict::{Case, RULE, findings, headline, per_minute, strategy_words};
use fpprof_analysis::summary::ProcessSummary;
use maud::{Markup, html};

/// A figure to be read at a glance.
struct Tile {
    is_good: Option<bool>,
    what: String,
    figure: String,
    words: String,
}

/// The verdict and its figures.
pub(super) fn verdict(case: &Case<'_>) -> Markup {
    let headline = headline(case);
    html! {
        section.card.verdict aria-labelledby="verdict" {
            h2 #verdict { "Verdict" }
            p class={ "headline " (class(headline.judgement)) } { (sentence(&headline)) }
            div.tiles { @for tile in tiles(case) { (drawn(&tile)) } }
        }
    }
}

/// The evidence for the verdict, and how the recording was made.
pub(super) fn evidence(case: &Case<'_>) -> Markup {
    html! {
        div.first {
            section.card aria-labelledby="evidence" {
                h2 #evidence { "Why" }
                ul.findings {
                    @for finding in findings(case).iter().skip(1) {
                        li class=(class(finding.judgement)) { (sentence(finding)) }
                    }
                }
                p.rule { b { "Rule. " } (text(RULE)) }
            }
            section.card aria-labelledby="method" {
                h2 #method { "Method and environment" }
                dl { @for (label, value) in method(case) { dt { (label) } dd { (text(&value)) } } }
            }
        }
    }
}

fn drawn(tile: &Tile) -> Markup {
    let class = match tile.is_good {
        Some(true) => "tile good",
        Some(false) => "tile bad",
        None => "tile",
    };
    html! {
        div class=(class) { span.what { (text(&tile.what)) } b { (text(&tile.figure)) } span { (text(&tile.words)) } }
    }
}

fn tiles(case: &Case<'_>) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(other) = case.other {
        let (right, compared) = (case.all.compared().saturating_sub(case.all.worse()), case.all.compared());
        let is_known = case.doubts.is_empty();
        tiles.push(Tile {
            is_good: case.other_is_good(),
            what: strategy_words(other).to_owned(),
            figure: if is_known { share(right, compared) } else { "unknown".to_owned() },
            words: if is_known {
                "of the stacks are right, compared with "
            } else {
                "share of right stacks, compared with "
            }
            .to_owned()
                + strategy_words(case.reference),
        });
    }
    if let Some(ends) = case.ends(case.reference) {
        tiles.push(Tile {
            is_good: Some(percent(ends.complete, ends.samples) >= 99.0),
            what: strategy_words(case.reference).to_owned(),
            figure: share(ends.complete, ends.samples),
            words: "of the stacks reach their root".to_owned(),
        });
    }
    if case.all.sizes.samples > 0 {
        let chunk = case.chunk();
        let copied = chunk.map(|chunk| case.copied(chunk));
        tiles.push(Tile {
            is_good: Some(chunk.is_some()),
            what: "chunk size for 99 % in every process".to_owned(),
            figure: chunk.map_or("unknown".to_owned(), chunk_size),
            words: copied.map_or("from this recording".to_owned(), |(sample, minute)| {
                format!("copies {} per sample, {} per minute", bytes(sample), bytes(minute))
            }),
        });
    }
    let (lost, all) = case.lost();
    tiles.push(Tile {
        is_good: Some(percent(lost, all) <= 0.1),
        what: "samples lost".to_owned(),
        figure: share(lost, all),
        words: format!("{} of {}", count(lost), count(all)),
    });
    tiles
}

/// The filter of the page's samples; empty if all are included.
fn filtered(case: &Case<'_>) -> String {
    let filtered = case.analysis.summary.filtered.as_ref();
    filtered.map_or_else(String::new, |only| format!("{}: {} samples", shown(&only.filter), count(only.samples)))
}

fn method(case: &Case<'_>) -> Vec<(&'static str, String)> {
    let summary = &case.analysis.summary;
    let environment = &summary.environment;
    let system = system(&environment.kernel, &environment.distribution);
    let rate = per_minute(summary.recorded, summary.duration_s) / 60.0;
    let strategies: Vec<&str> = summary.strategies.keys().map(String::as_str).collect();
    let rows = [
        ("command", shown(&environment.target).into_owned()),
        ("mode", environment.mode.clone()),
        (
            "sampling",
            format!("{} at {} on each CPU, by {}", environment.event, environment.rate, environment.collector),
        ),
        (
            "samples",
            format!("{} in {} ({} per second)", count(summary.recorded), seconds(summary.duration_s), number(rate)),
        ),
        ("times", environment.times().unwrap_or_default()),
        ("filter", filtered(case)),
        ("processes", count(ProcessSummary::total(&summary.processes))),
        ("strategies", format!("{}, on the same samples", strategies.join(", "))),
        ("machine", processors(environment.cpus, &environment.cpu_model)),
        ("system", system),
        ("overhead", summary.cost.as_ref().map_or_else(String::new, |cost| overhead_words(&cost.overhead))),
        ("ended", summary.ended.clone()),
        ("program", format!("fpprof {}", env!("CARGO_PKG_VERSION"))),
    ];
    rows.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}
