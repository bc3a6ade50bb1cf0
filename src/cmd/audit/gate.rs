//! The gate of `--fail-under`.

use clap::ValueEnum;
use fpprof_analysis::audit::{CodeTally, Survey, SurveyMetric};
use fpprof_analysis::statistics::percent;

/// Metrics by the names that are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MetricName {
    /// Share of non-leaf functions that keep a frame pointer
    #[value(name = "nonleaf")]
    NonLeaf,
    /// Share of all functions that keep a frame pointer
    Functions,
    /// Share of code with unwind information, in bytes, where a frame-pointer walk finds the caller
    Bytes,
    /// Share of code without padding, in bytes, that has unwind information
    Covered,
}

impl MetricName {
    fn metric(self) -> SurveyMetric {
        match self {
            Self::NonLeaf => SurveyMetric::NonLeaf,
            Self::Functions => SurveyMetric::Functions,
            Self::Bytes => SurveyMetric::Bytes,
            Self::Covered => SurveyMetric::Covered,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::NonLeaf => "non-leaf functions",
            Self::Functions => "functions",
            Self::Bytes => "bytes of code with unwind information",
            Self::Covered => "bytes of code",
        }
    }

    /// What the share does or has.
    fn claim(self) -> &'static str {
        match self {
            Self::NonLeaf | Self::Functions => "keep a frame pointer",
            Self::Bytes => "let a frame-pointer walk find the caller",
            Self::Covered => "have unwind information",
        }
    }
}

/// Describes what is below `least` per cent. It is also a failure if there is nothing to judge: a gate must not pass
/// for lack of files.
pub(super) fn failures(survey: &Survey, metric: MetricName, least: f64, each: bool) -> Vec<String> {
    let judge = |what: &str, tally: &CodeTally| failure(what, tally, metric, least);
    let (_, whole) = metric.metric().of(&survey.total);
    let mut failures = Vec::new();
    if whole == 0 {
        failures.push(format!("--fail-under: no {} were found", metric.unit()));
    } else if each {
        let has_some = |tally: &CodeTally| metric.metric().of(tally).1 > 0;
        let packages = survey.packages.iter().filter(|row| has_some(&row.tally));
        failures.extend(packages.filter_map(|row| judge(&format!("package {}", row.name), &row.tally)));
        let alone = survey.files.iter().filter(|row| row.package.is_none() && has_some(&row.audit.tally));
        failures.extend(alone.filter_map(|row| judge(&row.path, &row.audit.tally)));
    } else {
        failures.extend(judge("all files", &survey.total));
    }
    if survey.n_unreadable > 0 {
        let n = survey.n_unreadable;
        failures.push(format!("--fail-under: {n} file{} could not be read", if n == 1 { "" } else { "s" }));
    }
    failures
}

/// Less code than this without unwind information is ignored, in bytes: the C library's start files have some.
const MIN_NOT_JUDGED_BYTES: u64 = 1024;

/// Describes how much of the code no metric covers; `None` if it is negligible.
pub(super) fn not_judged(total: &CodeTally) -> Option<String> {
    let code = &total.code;
    let part = code.no_cfi.saturating_add(code.go);
    let percent = percent(part, code.executable).unwrap_or(0.0);
    (part >= MIN_NOT_JUDGED_BYTES && percent >= 1.0).then(|| {
        format!(
            "only code with unwind information is judged; {percent:.1} % has none ({} bytes, {} of them Go's, which keeps \
             frame pointers by its own convention)",
            part, code.go
        )
    })
}

fn failure(what: &str, tally: &CodeTally, metric: MetricName, least: f64) -> Option<String> {
    let (part, whole) = metric.metric().of(tally);
    let percent = percent(part, whole).filter(|&percent| percent < least)?;
    Some(format!("{what}: {percent:.2} % of {whole} {} {} (required: {least} %)", metric.unit(), metric.claim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a gate fails if there is nothing to judge, and that a share at the limit passes.
    #[test]
    fn gates_fail_for_want_of_functions() {
        let mut survey = Survey::default();
        assert_eq!(failures(&survey, MetricName::NonLeaf, 95.0, false).len(), 1);
        survey.total.functions.non_leaf = 100;
        survey.total.functions.non_leaf_framed = 95;
        assert!(failures(&survey, MetricName::NonLeaf, 95.0, false).is_empty());
        survey.total.functions.non_leaf_framed = 94;
        assert_eq!(failures(&survey, MetricName::NonLeaf, 95.0, false).len(), 1);
        survey.n_unreadable = 1;
        assert_eq!(failures(&survey, MetricName::NonLeaf, 90.0, false).len(), 1);
    }

    /// Check that code which no metric covers is reported, except for a few bytes.
    #[test]
    fn code_that_is_not_judged_is_reported() {
        let mut survey = Survey::default();
        survey.total.code.executable = 100_000;
        (survey.total.code.ok, survey.total.code.no_cfi) = (3_400, 96_600);
        let words = not_judged(&survey.total).unwrap();
        assert!(words.contains("96.6 % has none (96600 bytes, 0 of them Go's"), "{words}");
        survey.total.code.no_cfi = 900;
        assert_eq!(not_judged(&survey.total), None);
    }
}
