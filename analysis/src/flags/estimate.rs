//! Statistical estimates.

use crate::statistics::{CONFIDENCE, Interval, POWER};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::{BTreeMap, BTreeSet};

/// Share of values trimmed from each end before averaging over rounds.
///
/// # Sources
/// Yuen (1974): 20 % keeps most of the efficiency and withstands a fifth of outliers on either side.
pub const TRIM: f64 = 0.2;

/// A change against a baseline, on the log scale: 0.01 is 1 % slower, below zero is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The change.
    pub log_ratio: f64,
    /// 95 % confidence interval.
    pub interval: Interval,
    /// Standard error.
    pub standard_error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Probability of an effect at least this large if there is none.
    pub p: f64,
    /// The smallest slow-down these layouts would have detected with a probability of 80 %.
    pub mde: f64,
    /// Number of layouts of the flag set.
    pub n: u32,
    /// Number of layouts of the baseline.
    pub n_baseline: u32,
}

impl Effect {
    /// Probability of an effect at least this large if the true one is `limit`.
    #[must_use]
    pub(super) fn p_above(&self, limit: f64) -> f64 {
        if self.standard_error > 0.0 {
            1.0 - cdf((self.log_ratio - limit) / self.standard_error, self.freedom)
        } else if self.log_ratio > limit {
            0.0
        } else {
            1.0
        }
    }

    /// Whether the interval excludes zero.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.low > 0.0 || self.interval.high < 0.0
    }
}

/// Why times cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoEstimate {
    /// Fewer than two different layouts on a side, so that the variance between layouts cannot be estimated.
    #[error("fewer than two different layouts")]
    FewLayouts,
    /// A time is zero, negative or no number.
    #[error("a time that is not above zero")]
    NotPositive,
    /// No round includes every binary.
    #[error("no complete round")]
    NoRound,
}

/// Compares two sets of binaries, given by the layout of each binary: those with the same number are copies.
/// `times[round][binary]` are seconds, of the baseline's binaries first.
///
/// # Errors
/// [`NoEstimate`].
///
/// # Sources
/// Module documentation: trimmed means over rounds, Welch's interval over layouts.
pub fn effect(times: &[Vec<f64>], baseline: &[u32], treated: &[u32]) -> Result<Effect, NoEstimate> {
    if [baseline, treated].iter().any(|side| side.iter().collect::<BTreeSet<_>>().len() < 2) {
        return Err(NoEstimate::FewLayouts);
    }
    let n_binaries = baseline.len().saturating_add(treated.len());
    if times.is_empty() || times.iter().any(|round| round.len() != n_binaries) {
        return Err(NoEstimate::NoRound);
    }
    if times.iter().flatten().any(|time| !time.is_finite() || *time <= 0.0) {
        return Err(NoEstimate::NotPositive);
    }
    let mut by_binary = vec![Vec::with_capacity(times.len()); n_binaries];
    for round in times {
        let logs: Vec<f64> = round.iter().map(|time| time.ln()).collect();
        let centre = mean(&logs);
        for (binary, log) in by_binary.iter_mut().zip(logs) {
            binary.push(log - centre);
        }
    }
    let centres: Vec<f64> = by_binary.iter().map(|values| trimmed_mean(values)).collect();
    let (of_baseline, of_treated) = centres.split_at(baseline.len());
    Ok(welch(&by_layout(of_baseline, baseline), &by_layout(of_treated, treated)))
}

/// The mean over the copies of each layout.
fn by_layout(values: &[f64], layouts: &[u32]) -> Vec<f64> {
    let mut copies: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (value, layout) in values.iter().zip(layouts) {
        copies.entry(*layout).or_default().push(*value);
    }
    copies.values().map(|copies| mean(copies)).collect()
}

fn welch(baseline: &[f64], treated: &[f64]) -> Effect {
    let (mean_0, square_0) = (mean(baseline), squared_error(baseline));
    let (mean_1, square_1) = (mean(treated), squared_error(treated));
    let squared = square_0 + square_1;
    let freedom_term = |square: f64, n: usize| square * square / (count(n) - 1.0);
    let denominator = freedom_term(square_0, baseline.len()) + freedom_term(square_1, treated.len());
    let freedom = if denominator > 0.0 { squared * squared / denominator } else { count(baseline.len()) - 1.0 };
    from_error(mean_1 - mean_0, squared.sqrt(), freedom, treated.len(), baseline.len())
}

/// Derives an effect from its standard error.
fn from_error(log_ratio: f64, standard_error: f64, freedom: f64, n: usize, n_baseline: usize) -> Effect {
    let t = quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, freedom);
    let half = t * standard_error;
    let p = if standard_error > 0.0 {
        2.0 * (1.0 - cdf((log_ratio / standard_error).abs(), freedom))
    } else if log_ratio == 0.0 {
        1.0
    } else {
        0.0
    };
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Effect {
        log_ratio,
        interval: Interval { low: log_ratio - half, high: log_ratio + half },
        standard_error,
        freedom,
        p: p.clamp(0.0, 1.0),
        mde: (t + quantile(POWER, freedom)) * standard_error,
        n: size(n),
        n_baseline: size(n_baseline),
    }
}

/// The mean of effects over programs, with a confidence interval over programs: what another program of this kind may
/// show. `None` for fewer than two programs.
///
/// # Sources
/// Student (1908); the geometric mean of ratios after Fleming and Wallace (1986), CACM 29(3).
#[must_use]
pub fn over_programs(effects: &[f64]) -> Option<Effect> {
    if effects.len() < 2 || effects.iter().any(|effect| !effect.is_finite()) {
        return None;
    }
    let error = squared_error(effects).sqrt();
    Some(from_error(mean(effects), error, count(effects.len()) - 1.0, effects.len(), 0))
}

/// Adjusts probabilities for multiple comparisons: the chance of any false alarm among all stays that of a single
/// comparison.
///
/// # Sources
/// Holm (1979), step-down.
#[must_use]
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    let p_of = |index: usize| ps.get(index).copied().unwrap_or(1.0);
    order.sort_by(|a, b| p_of(*a).total_cmp(&p_of(*b)).then(a.cmp(b)));
    let mut adjusted = vec![1.0; ps.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        let left = count(ps.len() - rank);
        largest = largest.max((p_of(index) * left).min(1.0));
        if let Some(slot) = adjusted.get_mut(index) {
            *slot = largest;
        }
    }
    adjusted
}

/// The mean without the largest and the smallest fifth.
fn trimmed_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fifth of a length")]
    let cut = (count(sorted.len()) * TRIM).floor() as usize;
    mean(sorted.get(cut..sorted.len().saturating_sub(cut)).unwrap_or(&sorted))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len())
}

/// `s² / n`.
fn squared_error(values: &[f64]) -> f64 {
    let mean = mean(values);
    let n = count(values.len());
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs are far below 2^53")]
fn count(n: usize) -> f64 {
    n as f64
}

fn quantile(probability: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.inverse_cdf(probability))
}

fn cdf(value: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.cdf(value))
}
