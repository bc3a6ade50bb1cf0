//! The verdict on a flag set, with its reason.

use super::model::{FlagSetResult, FlagsVerdict, ProgramResult};
use crate::statistics::CONFIDENCE;

/// Maximum acceptable mean cost.
const MAX_MEAN: f64 = 0.02;
/// Maximum acceptable cost for a program.
const MAX_PROGRAM: f64 = 0.05;
/// Minimum share of stacks that reach `main` by frame pointers, to adopt.
const MIN_REACH: f64 = 0.95;
/// Below this share the flags are useless. Between the two, libraries may not have been built with them.
const MIN_USE: f64 = 0.5;

/// The rule, as text.
pub const RULE: &str = "Adopt: the 95 % interval of the mean cost ends at or below 2 %, no program clearly costs more than \
    5 %, and frame-pointer stacks reach main in at least 95 % of all samples. Adopt with opt-outs: the same, but for \
    programs that clearly cost more than 5 %. Reject: that interval begins above 2 %, or stacks reach main in less than \
    50 %. Inconclusive: anything else; between 50 % and 95 % the cause may be libraries that were not built with the \
    flags, libc first. A program clearly costs more than 5 % if its interval begins above 5 % and its p, adjusted by \
    Holm's method, is below 0.05.";

/// Formats a change on the log scale in per cent: `+0.81`.
#[must_use]
pub fn change(log_ratio: f64) -> String {
    let percent = 100.0 * log_ratio.exp_m1();
    if !percent.is_finite() {
        return "–".to_owned();
    }
    let text = format!("{percent:+.2}");
    if text == "-0.00" { "+0.00".to_owned() } else { text.replace('-', "−") }
}

/// Applies [`RULE`].
pub(super) fn verdict(result: &FlagSetResult) -> FlagsVerdict {
    let Some(mean) = &result.mean else {
        return FlagsVerdict::Inconclusive { because: "fewer than two programs were timed".to_owned() };
    };
    let [at, low, high] = [mean.log_ratio, mean.interval.low, mean.interval.high].map(change);
    let cost = format!("mean {at} % [{low} %, {high} %]");
    let Some(reach) = reach(&result.programs) else {
        return FlagsVerdict::Inconclusive { because: format!("{cost}; no recordings say whether stacks reach main") };
    };
    let because = format!("{cost}; frame-pointer stacks reach main in {:.1} %", 100.0 * reach);
    let limit = f64::ln_1p(MAX_MEAN);
    if reach < MIN_USE || mean.interval.low > limit {
        return FlagsVerdict::Reject { because };
    }
    if reach < MIN_REACH || mean.interval.high > limit || mean.interval.high.is_nan() {
        return FlagsVerdict::Inconclusive { because };
    }
    let programs: Vec<_> = result.programs.iter().filter(|program| costs_too_much(program)).collect();
    if programs.is_empty() {
        return FlagsVerdict::Adopt { because };
    }
    FlagsVerdict::AdoptWithOptOuts { because, programs: programs.iter().map(|program| program.name.clone()).collect() }
}

fn costs_too_much(program: &ProgramResult) -> bool {
    let is_sure = program.p_holm.is_some_and(|p| p < 1.0 - CONFIDENCE);
    is_sure && program.effect.as_ref().is_ok_and(|effect| effect.interval.low > f64::ln_1p(MAX_PROGRAM))
}

/// Share of samples, over all programs, whose frame-pointer stack reaches `main`.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more than the 53 bits of an f64")]
fn reach(programs: &[ProgramResult]) -> Option<f64> {
    let strategies = programs.iter().filter_map(|program| program.treated.quality.as_ref()?.strategies.get("fp"));
    let (reached, samples) = strategies.fold((0_u64, 0_u64), |(reached, samples), quality| {
        (reached.saturating_add(quality.reach_main), samples.saturating_add(quality.samples))
    });
    (samples > 0).then(|| reached as f64 / samples as f64)
}
