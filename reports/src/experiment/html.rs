//! The experiment as one page that works offline: no request, every name escaped by the template, and no script but
//! that of an embedded page of a recording.

use super::cells::{Figure, Line, ProcessLine, Sheet, StrategyLine, note_letter, shares};
use super::link::beside;
use super::marks::{Scale, interval};
use super::verdict::{RULE, findings, pictured};
use super::words::{environment, method};
use crate::escape::shown;
use crate::figures::share;
use crate::finding::{Finding, class, sentence, text};
use crate::page;
use crate::shell::{self, BASE, Head, POLICY, bar};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fpprof_analysis::experiment::Experiment;
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Addition to the content security policy of all pages: inline images.
const PICTURES: &str = "img-src data:";

/// Flame graphs to embed in the page: SVG by file name.
pub type Pictures = BTreeMap<String, Vec<u8>>;

/// Writes the page. Flame graphs are linked as files next to it.
///
/// # Errors
/// If the writer fails.
pub fn html(experiment: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    html_with(experiment, &Pictures::new(), None, out)
}

/// Writes the page with pictures of the two most informative flame graphs: that of frame pointers and that of the most
/// complete copied stacks. They are static images; the links lead to the files, which can be searched and zoomed.
/// `recording` is the page of a recording with both kinds of stack ([`crate::page::html`]); its curves, losses by time
/// and flame graphs are embedded in a frame of this page.
///
/// # Errors
/// If the writer fails.
pub fn html_with(
    experiment: &Experiment,
    pictures: &Pictures,
    recording: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sheet = Sheet::new(experiment);
    let findings = findings(experiment);
    let command = experiment.command.join(" ");
    let body = html! {
        header {
            p.over { "fpprof compare" }
            h1 { "What each mode costs and gets wrong" }
            p.command { code { (shown(&command)) } }
        }
        main {
            (first_screen(experiment, &findings))
            h2 { "Cost and stacks" }
            (table(experiment, &sheet))
            (key())
            (notes(&sheet, experiment))
            (figures(experiment, pictures))
            @if let Some(page) = recording { (stacks(page)) }
        }
        footer { "results.json has the raw values of every run." }
    };
    let head = Head {
        title: &format!("fpprof: {command}"),
        policy: &policy(recording.is_some()),
        styles: &[BASE, include_str!("style.css")],
    };
    shell::write(&head, &body, out)
}

/// The content security policy of the page. An embedded page inherits it.
fn policy(has_recording: bool) -> String {
    let script = if has_recording { format!("; {}", page::script_policy()) } else { String::new() };
    format!("{POLICY}; {PICTURES}{script}")
}

/// The page of a recording in a frame. It inherits this page's policy, which allows that one script.
fn stacks(page: &str) -> Markup {
    html! {
        h2 { "The same samples with frame pointers and with DWARF" }
        p.soft {
            "One recording with both kinds of stack in every sample: other chunk sizes, lost samples over time, \
             flame graphs "
            "side by side and as a difference."
        }
        iframe.recording srcdoc=(page) title="report of the recording with both kinds of stack" {}
    }
}

fn first_screen(experiment: &Experiment, findings: &[Finding]) -> Markup {
    html! {
        div.first {
            section.card {
                h2 { "Verdict" }
                @if let Some((headline, rest)) = findings.split_first() {
                    p class={ "headline " (class(headline.judgement)) } { (sentence(headline)) }
                    ul.findings {
                        @for finding in rest {
                            li class=(class(finding.judgement)) { (sentence(finding)) }
                        }
                    }
                }
                p.rule { b { "Rule. " } (text(RULE)) }
            }
            section.card {
                h2 { "Environment and method" }
                dl {
                    @for (label, value) in environment(experiment) {
                        dt { (label) } dd { (shown(&value)) }
                    }
                }
                p.method { (text(&method(experiment))) }
            }
        }
    }
}

/// Titles of the columns; the empty one is replaced by the metric's.
const TITLES: [&str; 10] = [
    "mode",
    "bytes",
    "bytes/sample",
    "× fp",
    "samples: fired = recorded + lost + skipped",
    "gaps",
    "collector CPU",
    "BPF/tick",
    "",
    "stacks complete / truncated / broken",
];

fn table(experiment: &Experiment, sheet: &Sheet) -> Markup {
    let metric = format!("{} against none", shown(&sheet.metric));
    let titles = TITLES.map(|title| if title.is_empty() { metric.as_str() } else { title });
    let rows: Vec<_> = experiment.rows.iter().zip(&sheet.lines).collect();
    let scale = Scale::new(sheet.lines.iter().filter_map(|line| line.ratio));
    html! {
        div.wrap {
            table {
                thead {
                    tr {
                        @for (index, title) in titles.iter().enumerate() {
                            th.n[matches!(index, 1..=3 | 5..=7)] { (title) }
                        }
                    }
                }
                @for group in rows.chunk_by(|(a, _), (b, _)| a.tool == b.tool) {
                    tbody {
                        @for (_, line) in group { (row(line, &titles, scale)) }
                    }
                }
            }
        }
    }
}

fn row(line: &Line, titles: &[&str; 10], scale: Scale) -> Markup {
    let [_, bytes, per_sample, times_fp, samples, chunks, cpu, bpf, metric, stacks] = titles;
    html! {
        tr {
            td.mode { (shown(&line.mode)) }
            (cell("n", &line.bytes, bytes))
            (cell("n", &line.bytes_per_sample, per_sample))
            (cell("n", &line.times_fp, times_fp))
            (cell("samples", &line.samples, samples))
            (cell("n", &line.lost_chunks, chunks))
            (cell("n", &line.cpu, cpu))
            (cell("n", &line.bpf, bpf))
            td.nowrap data-title=(metric) {
                div { (figure(&line.metric)) @if let Some(ratio) = line.ratio { (interval(&ratio, scale)) } }
            }
            @match &line.stacks {
                Ok(strategies) => td.stacks data-title=(stacks) {
                    div { @for strategy in strategies { (strategy_block(strategy)) } }
                },
                Err(missing) => (cell("stacks", missing, stacks)),
            }
        }
    }
}

fn cell(class: &str, content: &Figure, title: &str) -> Markup {
    // An empty cell has no content, so that CSS hides it where rows are shown as cards.
    if content.text.is_empty() {
        return html! { td class=(class) {} };
    }
    html! { td class=(class) data-title=(title) { div { (figure(content)) } } }
}

fn figure(figure: &Figure) -> Markup {
    html! {
        (text(&figure.text))
        @if let Some(note) = figure.note { sup { (note_letter(note)) } }
        @if !figure.detail.is_empty() { span.detail { (text(&figure.detail)) } }
    }
}

fn strategy_block(strategy: &StrategyLine) -> Markup {
    html! {
        div.strategy {
            div.label {
                (shown(&strategy.label)) " · "
                @match &strategy.flame_graph {
                    Ok(file) => a href=(beside(file)) { "flame graph" },
                    Err(missing) => { "flame graph " (figure(missing)) },
                }
            }
            @for process in &strategy.processes { (process_block(process)) }
            @if let Some(all) = strategy.processes.first().filter(|all| !all.reasons.is_empty()) {
                div.reasons { (text(&all.reasons.join(", "))) }
            }
        }
    }
}

fn process_block(process: &ProcessLine) -> Markup {
    html! {
        div.process {
            span.name title=(shown(&process.name)) { (shown(&process.name)) }
            (bar(&process.ends))
            @for part in shares(&process.ends) { span.share { (text(&part)) } }
        }
    }
}

fn figures(experiment: &Experiment, pictures: &Pictures) -> Markup {
    let pictured: Vec<_> = pictured(experiment)
        .into_iter()
        .filter_map(|(mode, ends, file)| Some((mode, ends, file, pictures.get(file)?)))
        .collect();
    html! {
        @if !pictured.is_empty() {
            h2 { "Flame graphs" }
            div.pictures {
                @for (mode, ends, file, svg) in pictured {
                    figure {
                        a href=(beside(file)) {
                            img src=(data_uri(svg)) alt=(format!("flame graph of {}", shown(mode)));
                        }
                        figcaption {
                            code { (shown(mode)) } " – "
                            (text(&format!("{} of the stacks complete", share(ends.complete, ends.samples))))
                        }
                    }
                }
            }
        }
    }
}

/// An SVG as an inline image; scripts do not run in images.
fn data_uri(svg: &[u8]) -> String {
    format!("data:image/svg+xml;base64,{}", BASE64_STANDARD.encode(svg))
}

fn key() -> Markup {
    html! {
        div.key {
            @for class in ["complete", "truncated", "broken"] {
                span { svg viewBox="0 0 1 1" aria-hidden="true" { rect class=(class) width="1" height="1" {} } (class) }
            }
            span { "dot and line: change against none with its 95 % interval; dashed: no change" }
        }
    }
}

fn notes(sheet: &Sheet, experiment: &Experiment) -> Markup {
    html! {
        @if !(sheet.notes.is_empty() && experiment.notes.is_empty()) {
            ul.notes {
                @for (index, note) in sheet.notes.iter().enumerate() {
                    li { sup { (note_letter(index)) } " " (shown(note)) }
                }
                @for note in &experiment.notes { li { (shown(note)) } }
            }
        }
    }
}
