//! Drawings: intervals on a scale with the A/A band, and curves of success against size.

use super::figures::{change, chunk_order};
use fpprof_analysis::flags::{Effect, Evaluation, FlagSetResult};
use maud::{Markup, html};

/// Columns of the scale in text.
const COLUMNS: usize = 41;

/// The largest end of any interval, at least 1 %: the scale's end on both sides.
pub(super) fn reach(evaluation: &Evaluation) -> f64 {
    let programs = evaluation.results.iter().flat_map(|result| &result.programs);
    let effects = programs.filter_map(|program| program.effect.as_ref().ok());
    let ends = effects.flat_map(|effect| [effect.interval.low.abs(), effect.interval.high.abs()]);
    ends.filter(|end| end.is_finite()).fold(0.01, f64::max).min(0.5)
}

/// Half the width of the A/A band: what equal flags showed, at most.
pub(super) fn band(evaluation: &Evaluation) -> f64 {
    let again = evaluation.results.iter().filter(|result| result.arm.again);
    let effects = again.flat_map(|result| &result.programs).filter_map(|program| program.effect.as_ref().ok());
    effects.map(|effect| effect.log_ratio.abs()).fold(0.0, f64::max)
}

/// An interval as a line of text: `:` is the A/A band, `|` zero, `o` the effect, `-` the interval.
pub(super) fn line(effect: &Effect, reach: f64, band: f64) -> String {
    let column = |value: f64| {
        let middle = 0.5 * (COLUMNS as f64 - 1.0);
        let at = middle + (value / reach).clamp(-1.0, 1.0) * middle;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the columns")]
        let at = at.round() as usize;
        at.min(COLUMNS - 1)
    };
    let mut cells = vec![' '; COLUMNS];
    let mut put = |from: f64, to: f64, mark: char| {
        for cell in cells.get_mut(column(from)..=column(to)).into_iter().flatten() {
            *cell = mark;
        }
    };
    put(-band, band, ':');
    put(effect.interval.low, effect.interval.high, '-');
    put(0.0, 0.0, '|');
    put(effect.log_ratio, effect.log_ratio, 'o');
    cells.into_iter().collect::<String>().trim_end().to_owned()
}

/// The same as a drawing.
pub(super) fn interval(effect: &Effect, reach: f64, band: f64) -> Markup {
    let x = |value: f64| format!("{:.1}", 150.0 + 148.0 * (value / reach).clamp(-1.0, 1.0));
    let width = |from: f64, to: f64| {
        let part = |value: f64| 148.0 * (value / reach).clamp(-1.0, 1.0);
        format!("{:.1}", (part(to) - part(from)).max(1.0))
    };
    html! {
        svg viewBox="0 0 300 18" class="interval" role="img" aria-label=(change(effect.log_ratio)) {
            rect class="band" x=(x(-band)) y="0" width=(width(-band, band)) height="18" {}
            line x1="150" x2="150" y1="0" y2="18" {}
            rect class="range" x=(x(effect.interval.low)) y="7" width=(width(effect.interval.low, effect.interval.high)) height="4" {}
            circle cx=(x(effect.log_ratio)) cy="9" r="4" {}
        }
    }
}

/// Share of stacks that reach `main` against the size of the chunk, one line for each program.
pub(super) fn curves(result: &FlagSetResult) -> Markup {
    let qualities = || result.programs.iter().filter_map(|program| Some((program, program.treated.quality.as_ref()?)));
    let names = chunk_order(qualities().flat_map(|(_, quality)| quality.strategies.keys().cloned()));
    let steps = names.len().saturating_sub(1).max(1);
    let x = |index: usize| 40 + 420 * index / steps;
    html! {
        @if names.len() > 1 {
            svg viewBox="0 0 640 200" class="curves" role="img" aria-label="success against chunk size" {
                @for (index, name) in names.iter().enumerate() {
                    text x=(x(index)) y="192" text-anchor="middle" { (name.trim_start_matches("dwarf").trim_start_matches('@')) @if name == "dwarf" { "all" } }
                }
                text x="2" y="16" { "100 %" } text x="14" y="174" { "0 %" }
                @for (row, (program, quality)) in qualities().enumerate() {
                    @let points = names.iter().enumerate().filter_map(|(index, name)| {
                        let of = quality.strategies.get(name)?;
                        let y = 170_u64.saturating_sub(158_u64.saturating_mul(of.reach_main.min(of.samples)) / of.samples.max(1));
                        Some(format!("{},{y}", x(index)))
                    }).collect::<Vec<_>>().join(" ");
                    polyline points=(points) class={ "c" (row % 6) } { title { (crate::escape::shown(&program.name)) } }
                    text x="475" y=(16 + 15 * row) class={ "c" (row % 6) } { (crate::escape::shown(&program.name)) }
                }
            }
        }
    }
}
