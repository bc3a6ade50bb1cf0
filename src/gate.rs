//! Gates: conditions that make a command fail, for use in automation.

use crate::exit::Usage;
use fpprof_analysis::accuracy::Agreement;
use fpprof_analysis::statistics;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::summary::Summary;
use std::str::FromStr;

/// A minimum share, with the strategy it applies to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    what: What,
    strategy: Option<Strategy>,
    least_percent: f64,
}

/// What a gate measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Stacks that reached their root.
    Complete,
    /// Samples in which a strategy has the same frames as the best reference.
    Agreement,
}

const EXPECTED: &str = "expected complete=PERCENT or agreement=PERCENT, or STRATEGY:complete=PERCENT for one strategy; \
    PERCENT is from 0 to 100";

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}`: {EXPECTED}");
        let (strategy, condition) = match text.split_once(':') {
            Some((name, condition)) => (Some(name.parse().map_err(|error| format!("{error}"))?), condition),
            None => (None, text),
        };
        let (what, least) = condition.split_once('=').ok_or_else(expected)?;
        let what = match what {
            "complete" => What::Complete,
            "agreement" => What::Agreement,
            _ => return Err(expected()),
        };
        let least_percent = percent(least).map_err(|_error| expected())?;
        Ok(Self { what, strategy, least_percent })
    }
}

impl Gate {
    /// Reasons why a summary does not pass; empty if it does. A gate without a strategy applies to `default_strategy`
    /// if it measures complete stacks, and to every strategy if it measures agreement.
    ///
    /// # Errors
    /// If there is nothing to judge.
    pub(crate) fn failures(&self, summary: &Summary, default_strategy: &str) -> anyhow::Result<Vec<String>> {
        match self.what {
            What::Complete => Ok(self.complete(summary, default_strategy)?.into_iter().collect()),
            What::Agreement => self.agreement(&summary.agreements),
        }
    }

    fn complete(&self, summary: &Summary, default_strategy: &str) -> anyhow::Result<Option<String>> {
        let name = self.strategy.map_or_else(|| default_strategy.to_owned(), |strategy| strategy.to_string());
        let Some(quality) = summary.strategies.get(&name) else {
            let known: Vec<_> = summary.strategies.keys().cloned().collect();
            anyhow::bail!(Usage(format!("strategy {name} is not in this report; it has {}", known.join(", "))));
        };
        let least = self.least_percent;
        Ok(match statistics::percent(quality.complete, quality.samples) {
            Some(percent) if percent >= least => None,
            Some(percent) => Some(format!("{name}: {percent:.2} % of the stacks are complete (required: {least} %)")),
            None => Some(format!("{name}: no samples to check for complete={least}")),
        })
    }

    /// Judges the pairs with the best reference.
    ///
    /// # Errors
    /// If there is no such pair.
    pub(crate) fn agreement(&self, agreements: &[Agreement]) -> anyhow::Result<Vec<String>> {
        let best = agreements.first().map(|pair| pair.reference.as_str());
        let wanted = self.strategy.map(|strategy| strategy.to_string());
        let is_judged = |pair: &&Agreement| {
            Some(pair.reference.as_str()) == best && wanted.as_ref().is_none_or(|wanted| *wanted == pair.other)
        };
        let judged: Vec<&Agreement> = agreements.iter().filter(is_judged).collect();
        if judged.is_empty() {
            let of = wanted.map_or(String::new(), |wanted| format!(" of {wanted} with a better strategy"));
            anyhow::bail!(Usage(format!(
                "no agreement{of} to check: pass at least two strategies, such as --strategies dwarf,elfutils"
            )));
        }
        let least = self.least_percent;
        let failure = |pair: &&Agreement| {
            let names = format!("{} with {}", pair.other, pair.reference);
            match statistics::percent(pair.same, pair.samples) {
                Some(percent) if percent >= least => None,
                Some(percent) => {
                    Some(format!("{names}: the same frames in {percent:.2} % of the samples (required: {least} %)"))
                }
                None => Some(format!("{names}: no samples to check for agreement={least}")),
            }
        };
        Ok(judged.iter().filter_map(failure).collect())
    }

    /// Whether it measures complete stacks.
    pub(crate) fn is_about_completeness(&self) -> bool {
        self.what == What::Complete
    }
}

/// A failure if more than `most_percent` was lost; `lost` counts lost, dropped and missed samples.
pub(crate) fn lost_failure(lost: u64, recorded: u64, most_percent: f64) -> Option<String> {
    let percent = statistics::percent(lost, lost.saturating_add(recorded)).unwrap_or(0.0);
    (percent > most_percent)
        .then(|| format!("{percent:.3} % of the samples were lost, dropped or missed (allowed: {most_percent} %)"))
}

/// [`lost_failure`] for a summary.
pub(crate) fn summary_lost_failure(summary: &Summary, most_percent: f64) -> Option<String> {
    let missing = summary.ticks_missing.saturating_add(summary.dropped);
    let lost = summary.lost.values().fold(missing, |sum, &n| sum.saturating_add(n));
    lost_failure(lost, summary.recorded, most_percent)
}

/// Parses a number from 0 to 100, with or without `%`.
///
/// # Errors
/// If the text is no such number; the error says why.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that gates are parsed with or without a strategy, in all spellings, and that invalid ones are refused.
    #[test]
    fn gates_are_parsed() {
        let gate = |what, strategy, least_percent| Ok(Gate { what, strategy, least_percent });
        assert_eq!("complete=95".parse(), gate(What::Complete, None, 95.0));
        assert_eq!("fp:complete=0.5%".parse(), gate(What::Complete, Some(Strategy::Fp), 0.5));
        assert_eq!("agreement=99".parse(), gate(What::Agreement, None, 99.0));
        assert_eq!("libdw:agreement=100".parse(), gate(What::Agreement, Some(Strategy::Elfutils), 100.0));
        assert_eq!("dwarf@8K:complete=1".parse(), gate(What::Complete, Some(Strategy::DwarfAt(8192)), 1.0));
        let wrong = [
            "",
            "complete",
            "complete=",
            "complete=101",
            "complete=nan",
            "complete=-1",
            "broken=5",
            "agree=9",
            "x:complete=1",
        ];
        for text in wrong {
            assert!(text.parse::<Gate>().is_err(), "{text}");
        }
    }

    /// Check that a percentage is parsed with and without its sign, and that an error names an invalid one.
    #[test]
    fn percentages_are_read() {
        assert_eq!((percent("95"), percent("99.5%"), percent("1 %")), (Ok(95.0), Ok(99.5), Ok(1.0)));
        for text in ["101", "nan", "-1", "x", ""] {
            assert_eq!(percent(text), Err(format!("`{text}` is not a percentage from 0 to 100")));
        }
    }

    fn pair(reference: &str, other: &str, same: u64) -> Agreement {
        Agreement {
            reference: reference.to_owned(),
            other: other.to_owned(),
            samples: 100,
            same,
            ..Agreement::default()
        }
    }

    /// Check that every pair with the best reference is judged, or only the named one, and that nothing to judge is a
    /// usage error and not a pass.
    #[test]
    fn agreement_is_judged_against_the_best() {
        let pairs = [pair("dwarf", "elfutils", 99), pair("dwarf", "fp", 10), pair("elfutils", "fp", 9)];
        let failures = |gate: &str, pairs: &[Agreement]| gate.parse::<Gate>().unwrap().agreement(pairs);
        assert_eq!(failures("agreement=99", &pairs).unwrap().len(), 1);
        assert_eq!(failures("elfutils:agreement=99", &pairs).unwrap(), Vec::<String>::new());
        assert_eq!(failures("elfutils:agreement=99.5", &pairs).unwrap().len(), 1);
        assert!(failures("libunwind:agreement=1", &pairs).unwrap_err().is::<Usage>());
        assert!(failures("agreement=0", &[]).unwrap_err().is::<Usage>());
        let empty = Agreement { samples: 0, same: 0, ..pair("dwarf", "fp", 0) };
        assert_eq!(failures("agreement=0", &[empty]).unwrap().len(), 1, "nothing shows nothing");
    }

    /// Check that a share equal to the limit passes, even if it has no exact binary fraction.
    #[test]
    fn the_limit_itself_passes() {
        let gate: Gate = "agreement=57".parse().unwrap();
        assert_eq!(gate.agreement(&[pair("dwarf", "fp", 57)]).unwrap(), Vec::<String>::new());
    }

    /// Check that dropped samples count as lost, and that a share equal to the limit passes.
    #[test]
    fn losses_are_judged() {
        assert_eq!(lost_failure(0, 0, 0.0), None);
        assert_eq!(lost_failure(1, 999, 0.1), None);
        assert!(lost_failure(2, 998, 0.1).is_some());
    }
}
