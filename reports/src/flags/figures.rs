//! Figures that are the same in every format.

use crate::escape::shown;
use crate::figures::{byte_count, count, most_frequent, share};
pub(super) use fpprof_analysis::flags::change;
use fpprof_analysis::flags::{
    ArmResult, Effect, Evaluation, FlagSetResult, FlagsQuality, FlagsVerdict, MIN_SAMPLES, ProgramResult,
    StrategyQuality,
};
use std::collections::BTreeMap;

/// How to read signs.
pub(super) const SIGN: &str = "Above zero is slower or larger than the baseline, below zero faster or smaller.";

/// An effect with its interval: `+0.81 [+0.25, +1.37]`.
pub(super) fn effect(effect: &Effect) -> String {
    format!("{} [{}, {}]", change(effect.log_ratio), change(effect.interval.low), change(effect.interval.high))
}

/// Name of a row: the flag set, or a description of A/A.
pub(super) fn row_name(result: &FlagSetResult) -> String {
    let name = shown(&result.arm.flags);
    if result.arm.again { format!("A/A {name}") } else { name.into_owned() }
}

/// A verdict in a word, and its reason.
pub(super) fn verdict(verdict: &FlagsVerdict) -> (&'static str, String) {
    match verdict {
        FlagsVerdict::Adopt { because } => ("adopt", because.clone()),
        FlagsVerdict::AdoptWithOptOuts { because, programs } => {
            ("adopt with opt-outs", format!("{because}; leave out {}", programs.join(", ")))
        }
        FlagsVerdict::Reject { because } => ("reject", because.clone()),
        FlagsVerdict::Inconclusive { because } => ("inconclusive", because.clone()),
    }
}

/// The program with the highest certain cost: the highest lower end of the interval.
pub(super) fn worst(result: &FlagSetResult) -> Option<(&ProgramResult, &Effect)> {
    let effects = result.programs.iter().filter_map(|program| Some((program, program.effect.as_ref().ok()?)));
    effects.max_by(|a, b| a.1.interval.low.total_cmp(&b.1.interval.low))
}

/// Mean change of a figure over programs, in per cent: the geometric mean of ratios.
pub(super) fn mean_change(result: &FlagSetResult, figure: impl Fn(&ArmResult) -> Option<u64>) -> String {
    let logs: Vec<f64> = result.programs.iter().filter_map(|program| log_change(program, &figure)).collect();
    match logs.len() {
        0 => "–".to_owned(),
        n => change(logs.iter().sum::<f64>() / as_f64(n as u64)),
    }
}

/// Log ratio of a figure of one program, treated to baseline.
pub(super) fn log_change(program: &ProgramResult, figure: impl Fn(&ArmResult) -> Option<u64>) -> Option<f64> {
    let (before, after) = (figure(&program.baseline)?, figure(&program.treated)?);
    (before > 0 && after > 0).then(|| as_f64(after).ln() - as_f64(before).ln())
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts for ratios")]
pub(super) fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Extracts the figure of one column.
pub(super) type Figure = fn(&ArmResult) -> Option<u64>;
/// The columns for instructions and sizes: title and figure.
pub(super) const FIGURES: [(&str, Figure); 4] = [
    ("instr", |arm| arm.instructions),
    (".text", |arm| Some(arm.sizes.text)),
    ("unwind", |arm| Some(arm.sizes.unwind)),
    ("file", |arm| Some(arm.sizes.stripped)),
];

/// Sums over programs of what their recordings show.
#[derive(Debug, Default)]
pub(super) struct Gain {
    /// By strategy.
    pub(super) strategies: BTreeMap<String, StrategyQuality>,
    pub(super) fp_bytes: Vec<f64>,
    pub(super) dwarf_bytes: Vec<f64>,
    pub(super) lost: Vec<f64>,
    pub(super) fp_cpu: Vec<f64>,
    pub(super) dwarf_cpu: Vec<f64>,
}

impl Gain {
    /// Sums up one side of a comparison.
    pub(super) fn of<'r>(qualities: impl Iterator<Item = &'r FlagsQuality>) -> Option<Self> {
        let mut gain = Self::default();
        for quality in qualities {
            for (name, of) in &quality.strategies {
                let sum = gain.strategies.entry(name.clone()).or_default();
                sum.samples = sum.samples.saturating_add(of.samples);
                sum.reach_main = sum.reach_main.saturating_add(of.reach_main);
                add(&mut sum.caller_dropped, of.caller_dropped);
                add(&mut sum.frame_exact, of.frame_exact);
            }
            gain.fp_bytes.push(quality.fp_bytes_per_sample);
            gain.dwarf_bytes.push(quality.dwarf_bytes_per_sample);
            gain.lost.push(quality.lost_percent);
            gain.fp_cpu.extend(quality.fp_profiler_percent);
            gain.dwarf_cpu.extend(quality.dwarf_profiler_percent);
        }
        (!gain.lost.is_empty()).then_some(gain)
    }

    /// Share of stacks that reach `main`, by a strategy.
    pub(super) fn reach(&self, strategy: &str) -> String {
        self.share(strategy, |of| Some(of.reach_main))
    }

    /// Share of stacks in which the leaf's caller is missing.
    pub(super) fn dropped(&self, strategy: &str) -> String {
        self.share(strategy, |of| of.caller_dropped)
    }

    /// Share of stacks that are right from the leaf to their root, or to the start of the program's own code.
    pub(super) fn exact(&self, strategy: &str) -> String {
        self.share(strategy, |of| of.frame_exact)
    }

    fn share(&self, strategy: &str, part: impl Fn(&StrategyQuality) -> Option<u64>) -> String {
        let of = self.strategies.get(strategy).and_then(|of| Some((part(of)?, of.samples)));
        of.map_or_else(|| "–".to_owned(), |(part, whole)| share(part, whole))
    }
}

fn add(sum: &mut Option<u64>, n: Option<u64>) {
    *sum = n.map(|n| sum.unwrap_or(0).saturating_add(n)).or(*sum);
}

/// Formats a p-value; never as 0, which no p-value is.
pub(super) fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// Mean of a list with one decimal; `–` if it is empty.
pub(super) fn mean(values: &[f64]) -> String {
    match values.len() {
        0 => "–".to_owned(),
        n => crate::figures::number(values.iter().sum::<f64>() / as_f64(n as u64)),
    }
}

/// Strategies by chunk size; the whole chunk last.
pub(super) fn chunk_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.filter(|name| name.starts_with("dwarf") || name == "sframe").collect();
    let bytes = |name: &str| name.split_once('@').and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(u64::MAX);
    names.sort_by_key(|name| (name == "sframe", bytes(name)));
    names.dedup();
    names
}

/// Environment and method: label and value.
pub(super) fn method(evaluation: &Evaluation) -> Vec<(&'static str, String)> {
    let (environment, method) = (&evaluation.environment, &evaluation.method);
    let copies = match method.copies {
        0 | 1 => String::new(),
        n => format!(", {n} copies of each, counted as one"),
    };
    let rounds: Vec<_> =
        evaluation.results.iter().flat_map(|result| &result.programs).map(|program| program.rounds).collect();
    let (fewest, most) = (rounds.iter().min().copied().unwrap_or(0), rounds.iter().max().copied().unwrap_or(0));
    vec![
        ("machine", format!("{}, Linux {}, {}", environment.cpu, environment.kernel, environment.distribution)),
        ("linker", environment.binutils.clone()),
        ("load", format!("{} at the start ({})", environment.load, environment.date)),
        (
            "binaries",
            format!("{} link layouts for each program and flag set{copies}; {}", method.layouts, method.layout),
        ),
        (
            "rounds",
            format!("{fewest} to {most} of {} planned; each runs every binary once, in random order", method.rounds),
        ),
        (
            "times",
            "user and system CPU time; log differences to the round's mean, 20 % trimmed over rounds; 95 % intervals \
             over layouts (Welch), p adjusted over programs (Holm)"
                .to_owned(),
        ),
        ("seed", method.seed.to_string()),
    ]
}

/// The noise in words: what A/A shows, and the smallest detectable effect.
pub(super) fn noise(evaluation: &Evaluation) -> String {
    let again = evaluation.results.iter().filter(|result| result.arm.again);
    let effects: Vec<_> =
        again.flat_map(|result| &result.programs).filter_map(|program| program.effect.as_ref().ok()).collect();
    if effects.is_empty() {
        return "no A/A comparison was timed yet".to_owned();
    }
    let differ = effects.iter().filter(|effect| effect.differs()).count() as u64;
    let by_size = |a: &f64, b: &f64| a.abs().total_cmp(&b.abs());
    let largest = effects.iter().map(|effect| effect.log_ratio).max_by(by_size).unwrap_or(f64::NAN);
    let mut mdes: Vec<f64> = effects.iter().map(|effect| effect.mde).collect();
    mdes.sort_by(f64::total_cmp);
    let median = mdes.get(mdes.len() / 2).copied().unwrap_or(f64::NAN);
    format!(
        "equal flags (A/A) differ measurably in {differ} of {} comparisons (5 % are expected by chance); the largest \
         difference of all is {} %; detectable slow-down of a program: {} % (median of these, with a chance of 80 %)",
        effects.len(),
        change(largest),
        change(median).trim_start_matches('+')
    )
}

/// What ended frame-pointer stacks under a flag set, in samples, most frequent first.
pub(super) struct Broken {
    /// Reasons why stacks do not reach a root.
    pub(super) reasons: Vec<(String, u64)>,
    /// Files after whose code stacks first go wrong.
    pub(super) files: Vec<(String, u64)>,
    /// All samples.
    pub(super) samples: u64,
}

/// Counts what ended frame-pointer stacks under a flag set.
pub(super) fn broken(result: &FlagSetResult) -> Broken {
    let (mut reasons, mut files) = (BTreeMap::new(), BTreeMap::new());
    let mut samples = 0_u64;
    for program in &result.programs {
        let fp = program.treated.quality.as_ref().and_then(|quality| quality.strategies.get("fp"));
        let Some(fp) = fp else { continue };
        samples = samples.saturating_add(fp.samples);
        gather(&mut reasons, &fp.reasons);
        gather(&mut files, &fp.breaking_files);
    }
    let commonest = |sums| most_frequent(sums).into_iter().take(10).map(|(name, n)| (name.to_owned(), n)).collect();
    Broken { reasons: commonest(&reasons), files: commonest(&files), samples }
}

fn gather<'a>(sums: &mut BTreeMap<&'a str, u64>, more: &'a BTreeMap<String, u64>) {
    for (name, n) in more {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(*n);
    }
}

/// Programs that need attention, and suggestions.
pub(super) fn outliers(result: &FlagSetResult) -> Vec<String> {
    let mut lines = Vec::new();
    for program in &result.programs {
        let name = shown(&program.name);
        if let Ok(found) = &program.effect
            && program.p_holm.is_some_and(|p| p < 0.05)
            && found.log_ratio.abs() > 0.02
        {
            let remedy = if found.log_ratio > 0.0 {
                "candidates: frame pointers in non-leaf functions only (-momit-leaf-frame-pointer where the compiler \
                 heeds it), __attribute__((optimize)) on the hottest functions, or an opt-out"
            } else {
                "faster, possibly by chance of code layout; check"
            };
            lines.push(format!("{name}: {} %; {remedy}", effect(found)));
        }
        let fp = program.treated.quality.as_ref().and_then(|quality| quality.strategies.get("fp"));
        if let Some(fp) = fp.filter(|fp| fp.samples >= MIN_SAMPLES && as_f64(fp.reach_main) < 0.95 * as_f64(fp.samples))
        {
            let reason = fp.reasons.iter().max_by_key(|(_, n)| **n).map(|(reason, _)| shown(reason).into_owned());
            lines.push(format!(
                "{name}: frame-pointer stacks reach main in only {} of {} samples, mostly {}; candidate: also build \
                 the libraries it calls (libc first) with the flag",
                share(fp.reach_main, fp.samples),
                count(fp.samples),
                reason.unwrap_or_default()
            ));
        }
        if let Err(reason) = &program.effect {
            lines.push(format!("{name}: no times: {}", shown(reason)));
        }
    }
    lines
}

/// Section sizes of one program in bytes: name, before, after.
pub(super) fn waterfall(program: &ProgramResult) -> [(&'static str, u64, u64); 4] {
    let (before, after) = (&program.baseline.sizes, &program.treated.sizes);
    [
        (".text", before.text, after.text),
        ("unwind", before.unwind, after.unwind),
        (".sframe", before.sframe, after.sframe),
        ("file", before.stripped, after.stripped),
    ]
}

/// A size with its change.
pub(super) fn size_change(before: u64, after: u64) -> String {
    if before == 0 || after == 0 {
        return format!("{} → {}", byte_count(before), byte_count(after));
    }
    format!("{} ({} %)", byte_count(after), change(as_f64(after).ln() - as_f64(before).ln()))
}
