//! Placeholders that the script fills, and their controls.

use crate::escape::shown;
use crate::verdict::{Case, strategy_words};
use maud::{Markup, html};

/// The filters, for all figures below.
pub(super) fn filters() -> Markup {
    html! {
        div.bar-of-filters role="search" aria-label="filter" {
            label for="filter-process" { "process" } select #filter-process {}
            label for="filter-thread" { "thread" } select #filter-thread {}
            label for="search" { "search frames" }
            input #search type="search" placeholder="name or module (key: /)" autocomplete="off"
                spellcheck="false" size="30";
            span.found #found role="status" {}
        }
    }
}

/// A figure that the script fills.
pub(super) fn figure(id: &str) -> Markup {
    html! {
        figure.card id=(id) {
            div.plot-here { p.nothing.script-only { "This figure needs JavaScript." } }
        }
    }
}

/// The flame graphs and their controls.
pub(super) fn flames(case: &Case<'_>) -> Markup {
    html! {
        figure.card #flame {
            div.controls {
                label for="view" { "view" }
                select #view {
                    @if let Some(other) = case.other {
                        option value="beside" { "side by side" }
                        option value="both" { "difference" }
                        option value="other" { (shown(other)) " only" }
                    }
                    option value="reference" { (shown(case.reference)) " only" }
                }
                label for="color" { "colour" }
                select #color {
                    option value="origin" { "how a frame was found" }
                    @if case.other.is_some() { option value="agreement" { "agreement of the two" } }
                }
                button #reset type="button" { "reset zoom" }
            }
            div.flames #flames {
                div #panel-left { h3 #title-left {} div.flame #flame-left role="group" aria-label=(KEYS) {} }
                div #panel-right { h3 #title-right {} div.flame #flame-right role="group" aria-label=(KEYS) {} }
            }
            p.nothing.script-only { "Flame graphs need JavaScript." }
            p.details #flame-details role="status" aria-live="polite" { (KEYS) }
            (legend(case))
        }
    }
}

const KEYS: &str = "Click a frame to zoom. With the keyboard: arrows move, Enter zooms, Escape zooms out, / searches.";

fn legend(case: &Case<'_>) -> Markup {
    let ends = [("truncated", "truncated stacks"), ("broken", "broken stacks")];
    let origins = [
        ("cfi-0", "call frame information"),
        ("fp-0", "frame pointer"),
        ("leaf-0", "the sampled instruction"),
        ("inlined-0", "inlined"),
        ("kernel-0", "kernel"),
        ("heuristic-0", "heuristic (--fallback)"),
        ("nocall-0", "no call before it"),
    ];
    let (reference, other) = (strategy_words(case.reference), case.other.map(strategy_words).unwrap_or_default());
    let agreement = [
        ("same", "both have it".to_owned()),
        ("missing-2", format!("missing by {other}")),
        ("wrong-2", format!("wrong by {other}")),
        ("beyond-2", format!("beyond the end of {reference}")),
    ];
    let difference = [
        ("diff-reference-3", format!("only by {reference}")),
        ("diff-0", "as often by both".to_owned()),
        ("diff-other-3", format!("only by {other}")),
    ];
    html! {
        div.key #legend {
            @for (color, words) in origins { span.origin { (swatch(color)) (words) } }
            @for (color, words) in ends { span.origin.agreement { (swatch(color)) (words) } }
            @for (color, words) in agreement { span.agreement hidden { (swatch(color)) (shown(&words)) } }
            @for (color, words) in difference { span.diff hidden { (swatch(color)) (shown(&words)) } }
            span.diff hidden { "width: mean of the two, over the same samples" }
        }
    }
}

/// A box in a colour of the style sheet.
fn swatch(color: &str) -> Markup {
    html! {
        svg viewBox="0 0 1 1" aria-hidden="true" { rect width="1" height="1" fill=(format!("var(--{color})")) {} }
    }
}
