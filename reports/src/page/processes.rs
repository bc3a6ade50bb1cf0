//! A section for each of the larger process names.

use super::tables::{MAX_NAMES, reasons};
use crate::escape::shown;
use crate::figures::{chunk_size, count, plural, share};
use crate::finding::text;
use crate::shell::bar;
use crate::verdict::{Case, Named, PERCENTS, smallest, strategy_words};
use fpprof_analysis::accuracy::Relation;
use maud::{Markup, html};

/// The sections, most samples first.
pub(super) fn processes(case: &Case<'_>) -> Markup {
    let rest = case.names.get(MAX_NAMES..).unwrap_or_default();
    let samples = rest.iter().fold(0_u64, |sum, named| sum.saturating_add(named.samples));
    html! {
        div.processes { @for named in case.names.iter().take(MAX_NAMES) { (section(case, named)) } }
        @if !rest.is_empty() {
            p.lead {
                (text(&format!(
                    "{} more process names with {} of the samples have no section; use the filter above.",
                    rest.len(),
                    share(samples, case.all.samples)
                )))
            }
        }
    }
}

fn section(case: &Case<'_>, named: &Named) -> Markup {
    html! {
        section.card id=(format!("process-{}", named.first)) {
            h3 {
                span { code { (shown(&named.name)) } (text(&about(case, named))) }
                button.only type="button" data-process=(named.first) { "show only this" }
            }
            div.wrap {
                table {
                    thead { tr { th { "strategy" } th { "stacks" } th.n { "complete" } th { "reason" } } }
                    tbody {
                        @for (strategy, ends) in &named.ends {
                            tr {
                                td.name { (shown(strategy)) } td.bar { (bar(ends)) }
                                td.n { (text(&share(ends.complete, ends.samples))) }
                                td.words { (text(&reasons(ends))) }
                            }
                        }
                    }
                }
            }
            ul { @for line in lines(case, named) { li { (text(&line)) } } }
        }
    }
}

fn about(case: &Case<'_>, named: &Named) -> String {
    let processes = if named.processes > 1 { format!("{} processes, ", count(named.processes)) } else { String::new() };
    format!(
        " – {processes}{} sample{}, {}",
        count(named.samples),
        plural(named.samples),
        share(named.samples, case.all.samples)
    )
}

fn lines(case: &Case<'_>, named: &Named) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(other) = case.other.filter(|_| named.compared() > 0) {
        let n = |relation| share(named.n(relation), named.compared());
        lines.push(format!(
            "{} against {}: same frames {}, caller of the leaf missing {}, frame missing {}, ends early {}, wrong \
             frame {}, extra frame {}, longer {}",
            strategy_words(other),
            strategy_words(case.reference),
            n(Relation::Same),
            n(Relation::LeafCallerMissing),
            n(Relation::FrameMissing),
            n(Relation::Prefix),
            n(Relation::WrongFrame),
            n(Relation::ExtraFrame),
            n(Relation::Longer)
        ));
    }
    if named.sizes.samples > 0 {
        let part =
            |percent: u8| smallest(&named.sizes, percent).map(|size| format!("{percent} % {}", chunk_size(size)));
        let parts: Vec<String> = PERCENTS.into_iter().filter_map(part).collect();
        let words = if parts.is_empty() { "more than recorded".to_owned() } else { parts.join(", ") };
        lines.push(format!("chunk size to complete: {words}"));
    }
    lines
}
