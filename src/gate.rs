//! Gates: conditions that make `report` fail, for use in automation.

use crate::exit::Usage;
use fpprof_analysis::Analysis;
use fpprof_analysis::summary::Summary;
use std::str::FromStr;

/// The least share of complete stacks under a strategy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gate {
    strategy: Option<String>,
    least_percent: f64,
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}`: expected complete=PERCENT or STRATEGY:complete=PERCENT");
        let (strategy, condition) = match text.split_once(':') {
            Some((strategy, condition)) => (Some(strategy.to_owned()), condition),
            None => (None, text),
        };
        let percent = condition.strip_prefix("complete=").ok_or_else(expected)?;
        let least_percent: f64 = percent.trim_end_matches('%').parse().map_err(|_error| expected())?;
        if !(0.0..=100.0).contains(&least_percent) {
            return Err(expected());
        }
        Ok(Self { strategy, least_percent })
    }
}

impl Gate {
    /// Why an analysis does not pass, if it does not.
    ///
    /// # Errors
    /// If the strategy was not among those analysed.
    pub(crate) fn failure(&self, analysis: &Analysis) -> anyhow::Result<Option<String>> {
        let name = self.strategy.as_ref().unwrap_or(&analysis.default_strategy);
        let Some(quality) = analysis.summary.strategies.get(name) else {
            let known: Vec<_> = analysis.summary.strategies.keys().cloned().collect();
            anyhow::bail!(Usage(format!("no strategy {name} to judge; this report has {}", known.join(", "))));
        };
        let percent = percent(quality.complete, quality.samples);
        let is_met = percent.is_some_and(|percent| percent >= self.least_percent);
        Ok((!is_met).then(|| match percent {
            Some(percent) => {
                format!("{name}: {percent:.2} % complete stacks, at least {} % wanted", self.least_percent)
            }
            None => format!("{name}: no samples, so {} % complete stacks cannot be shown", self.least_percent),
        }))
    }
}

/// Why a summary lost too much, if it did.
pub(crate) fn lost_failure(summary: &Summary, most_percent: f64) -> Option<String> {
    let lost = summary.lost.values().fold(summary.dropped, |sum, &n| sum.saturating_add(n));
    let percent = percent(lost, lost.saturating_add(summary.recorded)).unwrap_or(0.0);
    (percent > most_percent).then(|| format!("{percent:.3} % of the samples lost, at most {most_percent} % wanted"))
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than the 53 bits of an f64")]
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that gates name their strategy or none, and that nonsense is refused.
    #[test]
    fn gates_are_parsed() {
        assert_eq!("complete=95".parse(), Ok(Gate { strategy: None, least_percent: 95.0 }));
        assert_eq!("fp:complete=0.5%".parse(), Ok(Gate { strategy: Some("fp".to_owned()), least_percent: 0.5 }));
        for text in ["", "complete", "complete=", "complete=101", "complete=nan", "broken=5"] {
            assert!(text.parse::<Gate>().is_err(), "{text}");
        }
    }
}
