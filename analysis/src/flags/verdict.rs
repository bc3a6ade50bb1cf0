//! The verdict on a flag set, with its reason.

use super::estimate::{Effect, holm, over_programs};
use super::model::{ArmResult, FlagSetResult, FlagsVerdict, ProgramResult};
use crate::statistics::CONFIDENCE;

/// Maximum acceptable mean cost.
const MAX_MEAN: f64 = 0.02;
/// Maximum acceptable cost for a program.
const MAX_PROGRAM: f64 = 0.05;
/// Minimum share of stacks that reach `main`, to adopt.
const MIN_REACH: f64 = 0.95;
/// Below this share the flags are useless. Between the two, libraries may not have been built with them.
const MIN_USE: f64 = 0.5;

/// Fewer samples of a program say too little about its stacks.
pub const MIN_SAMPLES: u64 = 100;
/// Flags that raise the share of stacks that reach `main` by less than this do not improve stacks.
const MIN_GAIN: f64 = 0.01;

/// Equal flags that differ by this much in the mean show that the machine changed while it was measured.
const MAX_AGAIN: f64 = 0.005;

/// The rule, as text.
pub const RULE: &str = "Adopt: the 95 % interval of the mean cost ends at or below 2 %, no program clearly costs more than \
    5 %, and stacks reach main in at least 95 % of the samples, as the mean over programs, and in at least 50 % in each. \
    Adopt with opt-outs: the same of the other programs, if some clearly cost more than 5 %. Reject: that interval begins \
    above 2 %, more than half of the programs clearly cost more than 5 %, or stacks reach main in less than 50 %, although \
    the flags improve them. Inconclusive: anything else, also if equal flags (A/A) differ clearly and by 0.5 % or more in \
    the mean, or if a timed program has no recording of at least 100 samples; between 50 % and 95 % the cause may be \
    libraries that were not built with the flags, libc first. A program clearly costs more than 5 % if its p for a cost of \
    up to 5 %, adjusted by Holm's method, is below 0.05. Stacks are those by frame pointers, or by SFrame if the flags add \
    it.";

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

/// Applies [`RULE`]. `again` compares the baseline with itself.
pub(super) fn verdict(result: &FlagSetResult, again: Option<&FlagSetResult>) -> FlagsVerdict {
    let Some(all) = &result.mean else {
        return FlagsVerdict::Inconclusive { because: "fewer than two programs were timed".to_owned() };
    };
    let is_wrong = |mean: &&Effect| mean.differs() && mean.log_ratio.abs() >= MAX_AGAIN;
    if let Some(again) = again.and_then(|again| again.mean.as_ref()).filter(is_wrong) {
        let because = format!("mean {}, but equal flags (A/A) differ, too: {}", words(all), words(again));
        return FlagsVerdict::Inconclusive { because };
    }
    let costly = costly(&result.programs);
    let kept: Vec<&ProgramResult> = result.programs.iter().filter(|program| !costly.contains(&program.name)).collect();
    let effects: Vec<f64> = kept.iter().filter_map(|program| Some(program.effect.as_ref().ok()?.log_ratio)).collect();
    if costly.len() > effects.len() {
        let n = costly.len().saturating_add(effects.len());
        let because = format!("mean {}; {} of {n} programs clearly cost more than 5 %", words(all), costly.len());
        return FlagsVerdict::Reject { because };
    }
    let Some(mean) = over_programs(&effects) else {
        let because = format!("mean {}; fewer than two programs are left without opt-outs", words(all));
        return FlagsVerdict::Inconclusive { because };
    };
    let cost = match costly.len() {
        0 => format!("mean {}", words(all)),
        _ => format!("mean {}, without opt-outs {}", words(all), words(&mean)),
    };
    of_stacks(&kept, &mean, &cost, costly)
}

/// The verdict on the programs that are not left out, whose mean cost is `mean`.
fn of_stacks(kept: &[&ProgramResult], mean: &Effect, cost: &str, costly: Vec<String>) -> FlagsVerdict {
    let inconclusive = |why: String| FlagsVerdict::Inconclusive { because: format!("{cost}; {why}") };
    let limit = f64::ln_1p(MAX_MEAN);
    let is_too_much = mean.interval.low > limit;
    let strategy = if adds_sframe(kept) { "sframe" } else { "fp" };
    let (reached, without) = reach(kept, strategy);
    if reached.is_empty() && is_too_much {
        return FlagsVerdict::Reject { because: cost.to_owned() };
    }
    if reached.is_empty() {
        return inconclusive("no recordings say whether stacks reach main".to_owned());
    }
    let share = mean_of(reached.iter().map(|(_, share, _)| *share));
    let kind = if strategy == "fp" { "frame-pointer" } else { "SFrame" };
    let n: u64 = reached.iter().fold(0, |sum, (_, _, n)| sum.saturating_add(*n));
    let of = match reached.len() {
        1 => format!("{n} samples of one program"),
        n_programs => format!("the mean over {n_programs} programs, {n} samples"),
    };
    let because = format!("{cost}; {kind} stacks reach main in {:.1} % ({of})", 100.0 * share);
    if is_too_much {
        return FlagsVerdict::Reject { because };
    }
    if share < MIN_USE {
        let before = reach_before(kept);
        let is_better = strategy != "fp" || before.is_none_or(|before| share >= before + MIN_GAIN);
        return match is_better {
            true => FlagsVerdict::Reject { because },
            false => FlagsVerdict::Inconclusive { because: format!("{because}, as without the flags") },
        };
    }
    if !without.is_empty() {
        return inconclusive(format!("no recording of at least {MIN_SAMPLES} samples of {}", without.join(", ")));
    }
    let bad: Vec<&str> = reached.iter().filter(|(_, share, _)| *share < MIN_USE).map(|(name, ..)| *name).collect();
    if !bad.is_empty() {
        let because = format!("{because}, but in less than 50 % in {}", bad.join(", "));
        return FlagsVerdict::Inconclusive { because };
    }
    if share < MIN_REACH || mean.interval.high > limit || mean.interval.high.is_nan() {
        return FlagsVerdict::Inconclusive { because };
    }
    if costly.is_empty() {
        return FlagsVerdict::Adopt { because };
    }
    FlagsVerdict::AdoptWithOptOuts { because, programs: costly }
}

/// An effect on the mean, with its interval.
fn words(mean: &Effect) -> String {
    let [at, low, high] = [mean.log_ratio, mean.interval.low, mean.interval.high].map(change);
    format!("{at} % [{low} %, {high} %]")
}

/// The programs that clearly cost more than [`MAX_PROGRAM`].
fn costly(programs: &[ProgramResult]) -> Vec<String> {
    let timed: Vec<_> =
        programs.iter().filter_map(|program| Some((&program.name, program.effect.as_ref().ok()?))).collect();
    let ps: Vec<f64> = timed.iter().map(|(_, effect)| effect.p_above(f64::ln_1p(MAX_PROGRAM))).collect();
    let sure = timed.iter().zip(holm(&ps)).filter(|(_, p)| *p < 1.0 - CONFIDENCE);
    sure.map(|((name, _), _)| (*name).clone()).collect()
}

/// Whether these flags add `.sframe` sections.
fn adds_sframe(programs: &[&ProgramResult]) -> bool {
    programs.iter().any(|program| program.treated.sizes.sframe > 0 && program.baseline.sizes.sframe == 0)
}

/// The programs with enough samples: name, share whose stack reaches `main` under a strategy, and samples; and the timed
/// programs without.
fn reach<'a>(programs: &[&'a ProgramResult], strategy: &str) -> (Vec<(&'a str, f64, u64)>, Vec<&'a str>) {
    let (mut reached, mut without) = (Vec::new(), Vec::new());
    for program in programs {
        match share(&program.treated, strategy) {
            Some((share, n)) => reached.push((program.name.as_str(), share, n)),
            None if program.effect.is_ok() => without.push(program.name.as_str()),
            None => {}
        }
    }
    (reached, without)
}

/// The mean over programs of the share of frame-pointer stacks that reach `main` without the flags.
fn reach_before(programs: &[&ProgramResult]) -> Option<f64> {
    let shares: Vec<f64> = programs.iter().filter_map(|program| Some(share(&program.baseline, "fp")?.0)).collect();
    (!shares.is_empty()).then(|| mean_of(shares.into_iter()))
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than the 53 bits of an f64")]
fn share(arm: &ArmResult, strategy: &str) -> Option<(f64, u64)> {
    let quality = arm.quality.as_ref()?.strategies.get(strategy).filter(|quality| quality.samples >= MIN_SAMPLES)?;
    Some((quality.reach_main as f64 / quality.samples as f64, quality.samples))
}

#[expect(clippy::cast_precision_loss, reason = "some dozens of programs")]
fn mean_of(shares: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = shares.len();
    shares.sum::<f64>() / n as f64
}
