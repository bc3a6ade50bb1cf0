//! The experiment as one page that opens offline: no script, no request, every name escaped by the template.

use super::cells::{Figure, Line, ProcessLine, Sheet, StrategyLine, note_letter, shares};
use super::link::beside;
use super::marks::{bar, interval, reach};
use super::verdict::{Finding, Judgement, Piece, RULE, findings};
use super::words::{environment, method};
use crate::escape::shown;
use fpprof_analysis::experiment::Experiment;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::io::{self, Write};

/// What the page may load: nothing. Styles are its own; `data:` is for pictures within the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Writes the page. Flame graphs are linked as files beside it.
///
/// # Errors
/// Those of the writer.
pub fn html(experiment: &Experiment, out: &mut impl Write) -> io::Result<()> {
    let sheet = Sheet::new(experiment);
    let findings = findings(experiment);
    let command = experiment.command.join(" ");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { "fpprof: " (shown(&command)) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    p.over { "fpprof compare" }
                    h1 { "What each way to take stacks costs and breaks" }
                    p.command { code { (shown(&command)) } }
                }
                main {
                    (first_screen(experiment, &findings))
                    h2 { "Cost and stacks" }
                    (table(experiment, &sheet))
                    (key())
                    (notes(&sheet, experiment))
                }
                footer { "Raw values of every run stand in results.json beside this page." }
            }
        }
    };
    out.write_all(page.into_string().as_bytes())?;
    writeln!(out)
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
                p.rule { b { "Rule. " } (RULE) }
            }
            section.card {
                h2 { "Environment and method" }
                dl {
                    @for (label, value) in environment(experiment) {
                        dt { (label) } dd { (shown(&value)) }
                    }
                }
                p.method { (shown(&method(experiment))) }
            }
        }
    }
}

fn class(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Good => "good",
        Judgement::Neutral => "neutral",
        Judgement::Bad => "bad",
    }
}

fn sentence(finding: &Finding) -> Markup {
    html! {
        @for piece in &finding.pieces {
            @match piece {
                Piece::Words(words) => (shown(words)),
                Piece::Name(name) => code { (shown(name)) },
            }
        }
    }
}

/// Titles of the columns; the metric's is put in for the empty one.
const TITLES: [&str; 11] = [
    "mode",
    "bytes",
    "bytes a sample",
    "× fp",
    "samples fired = recorded + lost",
    "lost chunks",
    "collector CPU",
    "BPF a tick",
    "",
    "stacks: complete / truncated / broken",
    "flame graph",
];

fn table(experiment: &Experiment, sheet: &Sheet) -> Markup {
    let metric = format!("{} against none", shown(&sheet.metric));
    let titles = TITLES.map(|title| if title.is_empty() { metric.as_str() } else { title });
    let reach = reach(sheet.lines.iter().filter_map(|line| line.ratio));
    html! {
        div.wrap {
            table {
                thead {
                    tr { @for (index, title) in titles.iter().enumerate() { th.n[matches!(index, 1..=3 | 5..=7)] { (title) } } }
                }
                @for group in experiment.rows.iter().zip(&sheet.lines).collect::<Vec<_>>().chunk_by(|a, b| a.0.tool == b.0.tool) {
                    tbody {
                        @for (_, line) in group { (row(line, &titles, reach)) }
                    }
                }
            }
        }
    }
}

fn row(line: &Line, titles: &[&str; 11], reach: f64) -> Markup {
    let [_, bytes, per_sample, times_fp, samples, chunks, cpu, bpf, metric, stacks, graph] = titles;
    html! {
        tr {
            td.mode { (shown(&line.mode)) }
            (number_cell(&line.bytes, bytes))
            (number_cell(&line.bytes_per_sample, per_sample))
            (number_cell(&line.times_fp, times_fp))
            td.samples data-title=(samples) { (figure(&line.samples)) }
            (number_cell(&line.lost_chunks, chunks))
            (number_cell(&line.cpu, cpu))
            (number_cell(&line.bpf, bpf))
            td.nowrap data-title=(metric) {
                div { (figure(&line.metric)) @if let Some(ratio) = line.ratio { (interval(&ratio, reach)) } }
            }
            @match &line.stacks {
                Ok(strategies) => {
                    td data-title=(stacks) { div { @for strategy in strategies { (strategy_block(strategy)) } } }
                    td data-title=(graph) { div { @for strategy in strategies { (flame_graph(strategy)) } } }
                }
                Err(missing) if missing.text.is_empty() => { td {} td {} }
                Err(missing) => { td data-title=(stacks) { (figure(missing)) } td {} }
            }
        }
    }
}

fn number_cell(cell: &Figure, title: &str) -> Markup {
    // An empty cell is left without content, so that it vanishes where rows are shown as cards.
    if cell.text.is_empty() {
        return html! { td.n {} };
    }
    html! { td.n data-title=(title) { div { (figure(cell)) } } }
}

fn figure(figure: &Figure) -> Markup {
    html! {
        (shown(&figure.text))
        @if let Some(note) = figure.note { sup { (note_letter(note)) } }
        @if !figure.detail.is_empty() { span.detail { (shown(&figure.detail)) } }
    }
}

fn strategy_block(strategy: &StrategyLine) -> Markup {
    html! {
        div.strategy {
            div.label { (shown(&strategy.label)) }
            @for process in &strategy.processes { (process_block(process)) }
        }
    }
}

fn process_block(process: &ProcessLine) -> Markup {
    html! {
        div.process {
            span.name title=(shown(&process.name)) { (shown(&process.name)) }
            (bar(&process.ends))
            span.figures { (shares(&process.ends).join(" / ")) }
        }
        @if !process.reasons.is_empty() && process.name != "all" {
            div.reasons { (shown(&process.reasons.join(", "))) }
        }
    }
}

fn flame_graph(strategy: &StrategyLine) -> Markup {
    html! {
        div.strategy {
            @match &strategy.flame_graph {
                Ok(file) => a href=(beside(file)) { (shown(&strategy.label)) },
                Err(missing) => (figure(missing)),
            }
        }
    }
}

fn key() -> Markup {
    html! {
        div.key {
            @for class in ["complete", "truncated", "broken"] {
                span { svg viewBox="0 0 1 1" aria-hidden="true" { rect class=(class) width="1" height="1"; } (class) }
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
