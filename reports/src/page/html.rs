//! The page as a whole.

use super::assets::{SCRIPT, STYLE, bundled, policy};
use super::data::{Data, data};
use super::figures::{figure, filters, flames};
use super::first_screen::{evidence, verdict};
use super::{processes, tables};
use crate::escape::shown;
use crate::figures::count;
use crate::finding::text;
use crate::json::for_page;
use crate::shell::{self, Head};
use crate::verdict::{Case, names, strategy_words};
use fpprof_analysis::Analysis;
use maud::{Markup, PreEscaped, html};
use std::io::{self, Write};

/// The analysis lacks the detail that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the analysis has no detail, which a page needs")]
pub struct MissingDetail;

/// Writes the page.
///
/// # Errors
/// [`MissingDetail`] within [`io::Error`] if the analysis has no [`Analysis::detail`]; if the writer fails.
pub fn html(analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let detail = analysis.detail.as_ref().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, MissingDetail))?;
    let (all, names) = names(analysis, detail);
    let data = data(analysis, detail, &all, &names);
    let case = Case::new(analysis, detail, &all, &names);
    let json = for_page(&data)?;
    let body = html! {
        header {
            p.over { "fpprof report" }
            h1 { "Quality and cost of stacks" }
            p.command { code { (shown(&analysis.summary.environment.target)) } }
            @if let Some(filtered) = &analysis.summary.filtered {
                p.command { "only " code { (shown(&filtered.filter)) } }
            }
        }
        main { (body(&case, &data)) }
        (footer())
        script #data type="application/json" { (PreEscaped(json)) }
        script { (PreEscaped(SCRIPT)) }
    };
    let head = Head {
        title: &format!("fpprof: {}", analysis.summary.environment.target),
        policy: &policy(),
        styles: &[STYLE],
    };
    shell::write(&head, &body, out)
}

fn body(case: &Case<'_>, data: &Data) -> Markup {
    html! {
        (verdict(case))
        (filters())
        div.look {
            (tables::functions(case))
            section aria-labelledby="flame-graphs" {
                h2.hidden #flame-graphs { "Flame graphs" }
                (flames(case))
            }
        }
        (left_out(data))
        (evidence(case))
        @if case.all.sizes.samples > 0 { (chunks(case)) }
        h2 { "Samples over time" }
        p.lead { (text(LOSSES)) }
        (figure("timeline"))
        h2 { "Strategies" }
        p.lead { "The same samples, unwound with each strategy." }
        (tables::strategies(case))
        (broken_chains(case))
        h2 { "Processes" }
        (processes::processes(case))
        (warnings(case))
    }
}

const LOSSES: &str = "Each bar is a slice of time, coloured by how its stacks ended. Below are the gaps on each CPU, \
    if there were any; point at one for its cause.";

fn chunks(case: &Case<'_>) -> Markup {
    html! {
        div.figures {
            div {
                h2 { "Other chunk sizes" }
                p.lead {
                    "Solid: stacks that would reach their root. Dashed, on the right: bytes copied per sample and \
                     per minute at "
                    "this rate, before compression. Computed from this recording."
                }
                (figure("what-if"))
            }
            div {
                h2 { "Stack depth" }
                p.lead { "From the stack pointer to the end of the stack. Dashed: chunk size of this recording." }
                (figure("depth"))
                h2 { "Smallest chunk that completes …" }
                (tables::sizes(case))
            }
        }
    }
}

fn left_out(data: &Data) -> Markup {
    html! {
        @if data.left_out_below > 0 {
            p.lead {
                "The flame graphs omit frames in fewer than \
                 " (count(data.left_out_below)) " samples, whose time counts at their callers, and "
                "hold " (count(data.n_nodes as u64)) " frames."
            }
        }
    }
}

fn broken_chains(case: &Case<'_>) -> Markup {
    let pair = |other: &str| {
        case.analysis.summary.agreements.iter().find(|pair| pair.reference == case.reference && pair.other == other)
    };
    let agreement = case.other.and_then(|other| Some((other, pair(other)?)));
    html! {
        @if let Some((other, agreement)) = agreement.filter(|(_, agreement)| !agreement.functions.is_empty()) {
            h2 { "Where the caller is missing" }
            p.lead {
                "Functions whose caller is the first that is missing: " (strategy_words(other)) " compared with "
                (strategy_words(case.reference)) "."
            }
            (tables::culprits(agreement))
        }
    }
}

fn warnings(case: &Case<'_>) -> Markup {
    let summary = &case.analysis.summary;
    let notes: Vec<&String> = summary.damage.iter().chain(&summary.warnings).collect();
    html! {
        @if !notes.is_empty() {
            h2 { "Warnings" }
            ul.notes { @for note in notes { li { (shown(note)) } } }
        }
    }
}

fn footer() -> Markup {
    html! {
        footer {
            p {
                "Written by fpprof " (env!("CARGO_PKG_VERSION")) ". This page loads nothing else "
                "and opens offline."
            }
            details {
                summary { "Libraries in this page" }
                ul.notes { @for package in bundled() { li { (package) } } }
            }
        }
    }
}
