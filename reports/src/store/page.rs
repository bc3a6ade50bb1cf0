//! The page: one document, whose script requests everything else.

use crate::escape::shown;
use crate::page::{SCRIPT, bundled, script_policy};
use crate::shell::{self, Head};
use maud::{Markup, PreEscaped, html};

/// The style sheet.
const STYLE: &str = include_str!("../../assets/store.css");

/// The page.
#[derive(Debug, Clone)]
pub struct Page {
    /// The document.
    pub html: Vec<u8>,
    /// Its Content-Security-Policy.
    pub policy: String,
}

/// Builds the page for a store or recording of this name.
#[must_use]
pub fn page(name: &str) -> Page {
    // The script sets styles of drawings, hence `unsafe-inline`, for styles only.
    let rules = format!(
        "default-src 'none'; {}; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'",
        script_policy()
    );
    let body = html! {
        header {
            h1 { "fpprof" }
            p.command { code { (shown(name)) } }
        }
        main {
            (filters())
            p.status #status role="status" {}
            p.problem #problem role="alert" hidden {}
            p.problem #unread role="alert" hidden {}
            (tabs())
            (flame_view())
            (functions_view())
            (compare_view())
            (quality_view())
            (cost_view())
        }
        (footer())
        script { (PreEscaped(SCRIPT)) }
    };
    let head = Head { title: &format!("fpprof: {name}"), policy: &rules, styles: &[STYLE] };
    let mut html = Vec::new();
    // Writing to a vector cannot fail.
    let _ = shell::write(&head, &body, &mut html);
    Page { html, policy: format!("{rules}; frame-ancestors 'none'") }
}

/// Columns with a list of names to filter by, and their labels.
const FACETS: [(&str, &str); 7] = [
    ("host", "machine"),
    ("service", "service"),
    ("container", "container"),
    ("pod", "pod"),
    ("process", "process"),
    ("event", "event"),
    ("strategy", "strategy"),
];

/// The columns that the left side of a comparison may override.
const OWN: [(&str, &str); 5] = [FACETS[0], FACETS[1], FACETS[2], FACETS[4], FACETS[6]];

fn filters() -> Markup {
    html! {
        div.bar-of-filters role="group" aria-label="Filters" {
            label { "range " select #range {
                option value="15min" { "last 15 minutes" }
                option value="1h" { "last hour" }
                option value="6h" { "last 6 hours" }
                option value="1d" { "last day" }
                option value="7d" { "last week" }
                option value="all" { "all" }
                option value="custom" { "from … to" }
            } }
            label { "from (UTC) " input #from type="datetime-local" step="1"; }
            label { "to " input #to type="datetime-local" step="1"; }
            @for (name, words) in FACETS { label { (words) " " select id=(name) {} } }
            span #labels {}
            label { "count " select #unit {
                option value="" { "automatic" }
                option value="samples" { "samples" }
                option value="weight" { "time or occurrences" }
            } }
        }
    }
}

fn tabs() -> Markup {
    let views = [
        ("flame", "Flame graph"),
        ("functions", "Functions"),
        ("compare", "Compare"),
        ("quality", "Stacks and losses"),
        ("cost", "Cost of the agent"),
    ];
    html! {
        div #tabs role="tablist" aria-label="Views" {
            @for (view, words) in views {
                button type="button" role="tab" data-view=(view) id={ "tab-" (view) } aria-controls={ "view-" (view) } { (words) }
            }
        }
    }
}

/// The panel of a tab.
fn view(name: &str, content: &Markup) -> Markup {
    html! {
        section id={ "view-" (name) } role="tabpanel" aria-labelledby={ "tab-" (name) } hidden { (content) }
    }
}

/// A flame graph with its search; `zoom` is the parameter in the page's address that holds the zoomed frame.
fn flame(id: &str, zoom: &str) -> Markup {
    html! {
        div.controls {
            label { "search " input type="search" data-state="search" id={ (id) "-search" } placeholder="function or file  ( / )"; }
            span.found id={ (id) "-found" } role="status" {}
            button type="button" data-reset=(zoom) { "Reset zoom" }
        }
        div.flame id=(id) role="group" aria-label="Flame graph: arrows walk, Enter zooms, Escape shows all" {}
        p.details id={ (id) "-details" } {}
        p.lead id={ (id) "-left-out" } {}
    }
}

/// A legend of colours.
fn key(colors: &[(&str, &str)]) -> Markup {
    html! {
        p.key {
            @for (color, words) in colors {
                span { svg width="11" height="11" aria-hidden="true" { rect width="11" height="11" fill={ "var(--" (color) ")" } {} } (words) }
            }
        }
    }
}

fn flame_view() -> Markup {
    let colors = [
        ("process", "process"),
        ("cfi-0", "function"),
        ("fp-0", "function, by frame pointers"),
        ("kernel-0", "kernel"),
        ("truncated", "truncated: more frames cannot be seen"),
        ("broken", "broken: what was found cannot be right"),
        ("hit", "found"),
    ];
    view("flame", &html! { div.card { (flame("flame", "zoom")) (key(&colors)) } })
}

fn functions_view() -> Markup {
    view(
        "functions",
        &html! {
            div.split {
                div.card {
                    div.controls {
                        label { "filter " input type="search" data-state="find" placeholder="part of a name  ( / )"; }
                        span.found #functions-count role="status" {}
                    }
                    div.wrap.scroll #functions-table {}
                }
                div.card.neighbours #neighbours hidden {
                    h3 #neighbours-name {}
                    p.soft #neighbours-own {}
                    div.links #neighbours-links {}
                    div.wrap.scroll #callers {}
                    div.wrap.scroll #callees {}
                }
            }
        },
    )
}

fn compare_view() -> Markup {
    let colors = [
        ("diff-other-3", "larger share after"),
        ("diff-reference-3", "larger share before"),
        ("diff-0", "the same share"),
    ];
    view(
        "compare",
        &html! {
            p.lead { "After is what the filters above choose. Before is the same, but:" }
            div.controls role="group" aria-label="Before" {
                label { "time " select #before {
                    option value="" { "as after" }
                    option value="period" { "the range before" }
                    option value="day" { "a day earlier" }
                    option value="week" { "a week earlier" }
                    option value="custom" { "from … to" }
                } }
                @for (name, words) in [("before.from", "from (UTC)"), ("before.to", "to")] {
                    label { (words) " " input id=(name) type="datetime-local" step="1"; }
                }
                @for (name, words) in OWN { label { (words) " " select id={ "before." (name) } {} } }
            }
            div.card {
                p.found #difference-title {}
                (flame("difference", "zoom2"))
                (key(&colors))
            }
            h2 { "Functions whose share changed most" }
            p.lead { "Percentage points, with the interval that holds the difference with 95 % confidence if samples are independent." }
            div.wrap.scroll #changes-table {}
        },
    )
}

fn figure(id: &str) -> Markup {
    html! { figure id=(id) { div.plot-here {} } }
}

fn quality_view() -> Markup {
    view(
        "quality",
        &html! {
            h2 { "Samples by how their stacks end" }
            (figure("stacks-over-time"))
            (key(&[("good", "complete"), ("warn", "truncated"), ("bad", "broken"), ("soft", "without a stack")]))
            h2 { "Ticks that were lost, dropped or discarded" }
            p.lead { "Counted for whole machines: of the filters, only those of time, machine and event apply." }
            (figure("losses-over-time"))
            h2 { "Ticks that were skipped" }
            (figure("skipped-over-time"))
            div.two {
                div { h2 { "Ends of stacks" } div.wrap.scroll #ends-table {} }
                div { h2 { "Where every tick went" } div.wrap.scroll #ticks-table {} }
            }
        },
    )
}

fn cost_view() -> Markup {
    view(
        "cost",
        &html! {
            p.lead { "What the agent took itself. Of the filters, only those of time and machine apply." }
            h2 { "CPU time" }
            (figure("cost-cpu"))
            h2 { "Memory" }
            (figure("cost-rss"))
            h2 { "Sampling rate" }
            (figure("cost-rate"))
            p.lead #cost-left-out {}
        },
    )
}

fn footer() -> Markup {
    html! {
        footer {
            p {
                "fpprof " (env!("CARGO_PKG_VERSION")) ". The address of this page says what it shows; the same answers are at "
                code { "/api" } " as JSON."
            }
            details {
                summary { "Libraries in this page" }
                ul.notes { @for package in bundled() { li { (package) } } }
            }
        }
    }
}
