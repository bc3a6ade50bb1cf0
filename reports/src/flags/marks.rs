//! Drawings: intervals on a scale with the A/A band, success by chunk size, time by instructions, and where bytes came
//! from.

use super::figures::{FIGURES, as_f64, change, chunk_order, log_change};
use fpprof_analysis::flags::{Effect, Evaluation, FlagSetResult, ProgramResult};
use maud::{Markup, html};

/// Width of the scale in text, in characters.
const COLUMNS: usize = 41;

/// The largest end of any interval, at least 1 %: both ends of the scale.
pub(super) fn reach(evaluation: &Evaluation) -> f64 {
    let programs = evaluation.results.iter().flat_map(|result| &result.programs);
    let effects = programs.filter_map(|program| program.effect.as_ref().ok());
    let ends = effects.flat_map(|effect| [effect.interval.low.abs(), effect.interval.high.abs()]);
    ends.filter(|end| end.is_finite()).fold(0.01, f64::max).min(0.5)
}

/// Half the width of the A/A band: the largest effect that equal flags showed.
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

/// An interval as a drawing.
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

/// Share of stacks that reach `main` by chunk size, one line per program.
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

/// Changes in CPU time by changes in instructions, one point per program: more instructions need not cost time.
pub(super) fn scatter(result: &FlagSetResult) -> Markup {
    let (_, instructions) = FIGURES[0];
    let points: Vec<_> = result
        .programs
        .iter()
        .filter_map(|program| Some((program, log_change(program, instructions)?, program.effect.as_ref().ok()?)))
        .collect();
    let ends = points.iter().flat_map(|(_, x, of)| [x.abs(), of.interval.low.abs(), of.interval.high.abs()]);
    let reach = ends.filter(|end| end.is_finite()).fold(0.01, f64::max).min(0.5);
    let at = |value: f64, middle: f64, half: f64| format!("{:.1}", middle + half * (value / reach).clamp(-1.0, 1.0));
    let (x, y) = (|value| at(value, 150.0, 130.0), |value: f64| at(-value, 110.0, 90.0));
    html! {
        @if !points.is_empty() {
            svg viewBox="0 0 640 220" class="curves" role="img" aria-label="CPU time against instructions" {
                line x1="20" x2="280" y1="110" y2="110" {} line x1="150" x2="150" y1="20" y2="200" {}
                line class="soft" x1=(x(-reach)) x2=(x(reach)) y1=(y(-reach)) y2=(y(reach)) {}
                text x="20" y="214" { "instructions " (change(-reach)) " … " (change(reach)) " %" }
                text x="156" y="14" { "CPU time " (change(reach)) " %" }
                @for (row, (program, at_x, of)) in points.iter().enumerate() {
                    line class={ "c" (row % 6) } x1=(x(*at_x)) x2=(x(*at_x)) y1=(y(of.interval.low)) y2=(y(of.interval.high)) {}
                    circle class={ "c" (row % 6) } cx=(x(*at_x)) cy=(y(of.log_ratio)) r="4" {
                        title { (crate::escape::shown(&program.name)) }
                    }
                    text x="320" y=(16 + 15 * row) class={ "c" (row % 6) } {
                        (crate::escape::shown(&program.name)) ": instructions " (change(*at_x)) ", time " (change(of.log_ratio))
                    }
                }
            }
        }
    }
}

/// Where the bytes of the stripped files came from: for each program the changes of `.text`, of unwind information and
/// of the rest, each starting at the end of the previous one, in per cent of the file before.
pub(super) fn bytes(result: &FlagSetResult) -> Markup {
    let rows: Vec<_> = result.programs.iter().filter_map(|program| Some((program, steps(program)?))).collect();
    let ends = rows.iter().flat_map(|(_, steps)| steps.iter().flat_map(|(_, from, to)| [from.abs(), to.abs()]));
    let reach = ends.fold(0.01, f64::max);
    let x = |value: f64| 300.0 + 150.0 * value / reach;
    html! {
        @if !rows.is_empty() {
            svg viewBox={ "0 0 640 " (30 + 18 * rows.len()) } class="curves" role="img" aria-label="bytes of the stripped file" {
                @for (index, (program, steps)) in rows.iter().enumerate() {
                    @let y = 4 + 18 * index;
                    text x="2" y=(y + 11) { (crate::escape::shown(&program.name)) }
                    @for (class, from, to) in steps {
                        rect class=(class) x=(format!("{:.1}", x(from.min(*to)))) y=(y)
                            width=(format!("{:.1}", (x(*from) - x(*to)).abs().max(0.5))) height="12" { title { (class) } }
                    }
                    @let end = steps.last().map_or(0.0, |(_, _, to)| *to);
                    text x="470" y=(y + 11) { (format!("{:+.2} % of the file", 100.0 * end).replace('-', "−")) }
                }
                line x1="300" x2="300" y1="0" y2=(4 + 18 * rows.len()) {}
                @for (index, class) in ["text", "unwind", "rest"].iter().enumerate() {
                    rect class=(class) x=(150 + 90 * index) y=(12 + 18 * rows.len()) width="10" height="10" {}
                    text x=(164 + 90 * index) y=(21 + 18 * rows.len()) { (class) }
                }
            }
        }
    }
}

/// The changes of `.text`, of unwind information and of the rest, as (name, from, to) in shares of the file before.
fn steps(program: &ProgramResult) -> Option<[(&'static str, f64, f64); 3]> {
    let (before, after) = (&program.baseline.sizes, &program.treated.sizes);
    if before.stripped == 0 || after.stripped == 0 {
        return None;
    }
    let share =
        |before_bytes: u64, after_bytes: u64| (as_f64(after_bytes) - as_f64(before_bytes)) / as_f64(before.stripped);
    let text = share(before.text, after.text);
    let unwind = text + share(before.unwind.saturating_add(before.sframe), after.unwind.saturating_add(after.sframe));
    let end = share(before.stripped, after.stripped);
    Some([("text", 0.0, text), ("unwind", text, unwind), ("rest", unwind, end)])
}
