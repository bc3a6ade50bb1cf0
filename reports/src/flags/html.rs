//! The report as one page that works offline: no script, no request, every name escaped by the template.

use super::figures::{
    FIGURES, Gain, SIGN, broken, change, chunk_order, effect, log_change, mean, mean_change, method, noise, outliers,
    p_value, row_name, size_change, verdict, waterfall, worst,
};
use super::marks::{band, bytes, curves, interval, reach, scatter};
use crate::escape::shown;
use crate::figures::{count, share};
use crate::shell::{self, BASE, Head, POLICY};
use fpprof_analysis::flags::{Evaluation, FlagSetResult, RULE};
use maud::{Markup, html};
use std::io::{self, Write};

/// Writes the page.
///
/// # Errors
/// If the writer fails.
pub fn html(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    let body = html! {
        header { p.over { "fpprof flags" } h1 { "Cost and benefit of build flags" } }
        main {
            (verdicts(evaluation))
            (decisions(evaluation))
            (how(evaluation))
            @for result in &evaluation.results { (programs(evaluation, result)) }
            (gains(evaluation))
            @for result in evaluation.results.iter().filter(|result| !result.arm.again) { (details(result)) }
            h2 { "To repeat" }
            p { code { (shown(&evaluation.method.repeat)) } }
        }
    };
    let head = Head {
        title: "fpprof flags",
        policy: POLICY,
        styles: &[BASE, include_str!("../audit/style.css"), include_str!("style.css")],
    };
    shell::write(&head, &body, out)
}

fn verdicts(evaluation: &Evaluation) -> Markup {
    html! {
        section.card {
            @for result in &evaluation.results {
                @if let Some((word, because)) = result.verdict.as_ref().map(verdict) {
                    p.headline {
                        b { (shown(&result.arm.flags)) } " against " (shown(&result.against)) ": " b { (word) } ". " (shown(&because))
                    }
                }
            }
            p.soft { b { "Rule. " } (RULE) }
            p.soft { (SIGN) }
        }
    }
}

fn decisions(evaluation: &Evaluation) -> Markup {
    html! {
        h2 { "Change against the baseline in %, mean over programs" }
        div.wrap { table {
            thead { tr {
                th { "flags" } th { "CPU time [95 %]" } th { "worst program [95 %]" }
                @for (name, _) in FIGURES { th.n { (name) } }
            } }
            tbody { @for result in &evaluation.results { tr {
                td { (row_name(result)) }
                td { @if let Some(mean) = &result.mean { (effect(mean)) } @else { "–" } }
                td { @if let Some((program, of)) = worst(result) { (shown(&program.name)) " " (effect(of)) } @else { "–" } }
                @for (_, figure) in FIGURES { td.n { (mean_change(result, figure)) } }
            } } }
        } }
        p.soft { "unwind: .eh_frame and .eh_frame_hdr; file: stripped; instr: instructions executed, which is not a \
            cost." }
    }
}

fn how(evaluation: &Evaluation) -> Markup {
    html! {
        h2 { "Method and noise" }
        dl {
            @for (label, value) in method(evaluation) { dt { (label) } dd { (shown(&value)) } }
            dt { "noise" } dd { (noise(evaluation)) }
            @for flags in &evaluation.flag_sets {
                dt { (shown(&flags.name)) }
                dd { code { (shown(&flags.compiler)) " " (shown(&flags.cflags)) } " (" (shown(&flags.version)) ")" }
            }
            @for what in &evaluation.missing { dt { "missing" } dd { (shown(what)) } }
        }
    }
}

fn programs(evaluation: &Evaluation, result: &FlagSetResult) -> Markup {
    let (reach, band) = (reach(evaluation), band(evaluation));
    html! {
        h2 { (row_name(result)) " against " (shown(&result.against)) ", by program" }
        div.wrap { table {
            thead { tr {
                th { "program" } th { "CPU time % [95 %]" }
                th { (change(-reach)) " … 0 … " (change(reach)) " (shaded: A/A)" }
                th.n { "p (Holm)" } th.n { "MDE %" } th.n { "layouts" } th.n { "rounds" } th.n { "instr %" }
            } }
            tbody { @for program in &result.programs { tr {
                td { (shown(&program.name)) }
                @match &program.effect {
                    Ok(of) => {
                        td { (effect(of)) }
                        td { (interval(of, reach, band)) }
                        td.n { @if let Some(p) = program.p_holm { (p_value(p)) } }
                        td.n { (change(of.mde).trim_start_matches('+')) }
                        td.n { (of.n_baseline) "+" (of.n) }
                    }
                    Err(reason) => { td colspan="5" { (shown(reason)) } }
                }
                td.n { (count(u64::from(program.rounds))) }
                td.n { (log_change(program, FIGURES[0].1).map_or_else(|| "–".to_owned(), change)) }
            } } }
        } }
    }
}

fn gains(evaluation: &Evaluation) -> Markup {
    let mut rows = Vec::new();
    for result in &evaluation.results {
        let quality = |program| -> Option<_> {
            let program: &fpprof_analysis::flags::ProgramResult = program;
            if result.arm.again { program.baseline.quality.as_ref() } else { program.treated.quality.as_ref() }
        };
        let name = if result.arm.again { shown(&result.against).into_owned() } else { row_name(result) };
        rows.extend(Gain::of(result.programs.iter().filter_map(quality)).map(|gain| (name, gain)));
    }
    let chunks = chunk_order(rows.iter().flat_map(|(_, gain)| gain.strategies.keys().cloned()));
    html! {
        @if !rows.is_empty() {
            h2 { "Stacks that reach main, of the samples of all programs together" }
            div.wrap { table.wide {
                thead { tr {
                    th { "flags" } th.n { "FP" } th.n { "exact" } th.n { "caller dropped" }
                    @for name in &chunks { th.n { (name) } }
                    th.n { "B/sample fp" } th.n { "dwarf" } th.n { "lost %" } th.n { "profiler CPU % fp" } th.n { "dwarf" }
                } }
                tbody { @for (name, gain) in &rows { tr {
                    td { (name) } td.n { (gain.reach("fp")) } td.n { (gain.exact("fp")) } td.n { (gain.dropped("fp")) }
                    @for name in &chunks { td.n { (gain.reach(name)) } }
                    @for values in [&gain.fp_bytes, &gain.dwarf_bytes, &gain.lost, &gain.fp_cpu, &gain.dwarf_cpu] {
                        td.n { (mean(values)) }
                    }
                } } }
            } }
        }
    }
}

fn details(result: &FlagSetResult) -> Markup {
    let (broken, looks) = (broken(result), outliers(result));
    html! {
        h2 { (row_name(result)) ": sizes, and what broke stacks" }
        div.wrap { table {
            thead { tr { th { "program" } th.n { ".text" } th.n { "unwind" } th.n { ".sframe" } th.n { "file" } th.n { "non-leaf FP" } } }
            tbody { @for program in &result.programs { tr {
                td { (shown(&program.name)) }
                @for (_, before, after) in waterfall(program) { td.n { (size_change(before, after)) } }
                td.n { @if let Some(tally) = &program.treated.tally { (share(tally.non_leaf_framed, tally.non_leaf)) } }
            } } }
        } }
        h3 { "Bytes of the stripped files, against before" }
        (bytes(result))
        h3 { "CPU time against instructions" }
        p.soft { "Instruction counts hardly vary, but are not a cost. On the dashed line, both change alike." }
        (scatter(result))
        h3 { "Stacks that reach main, against the size of the chunk" }
        (curves(result))
        @for (title, rows) in [("Why frame-pointer stacks end", &broken.reasons), ("Where they go wrong", &broken.files)] {
            @if !rows.is_empty() {
                h3 { (title) }
                ul { @for (what, n) in rows { li { (shown(what)) ": " (share(*n, broken.samples)) " of the samples" } } }
            }
        }
        @if !looks.is_empty() {
            h3 { "Look at" }
            ul { @for look in looks { li { (look) } } }
        }
    }
}
