//! Statistics for comparing modes: means, ratios and shares with their intervals, and the minimum detectable effect.
//!
//! Runs of a comparison are *interleaved* (round by round, every mode once), so that a slow change of the machine
//! affects all modes of a round alike. A mode is compared with its baseline *within* a round, and the logarithms of
//! those ratios are averaged. Ratios are symmetric on the log scale (twice as slow and twice as fast cancel out), and
//! their mean, transformed back, is the geometric mean.
//!
//! # Sources
//! - Paired means and the t interval: Student (1908), "The probable error of a mean", Biometrika 6(1).
//! - Logarithms before averaging, intervals transformed back: Bland and Altman (1996), "Transformations, means,
//!   and confidence intervals", BMJ 312:1079. Geometric means for normalised results: Fleming and Wallace (1986),
//!   "How not to lie with statistics", CACM 29(3).
//! - Repeated, interleaved runs and an interval for every ratio: Kalibera and Jones (2013), "Rigorous benchmarking in
//!   reasonable time", ISMM.
//! - Minimum detectable effect: Bloom (1995), "Minimum detectable effects", Evaluation Review 19(5).

mod interval;
mod shares;

pub use interval::Interval;
pub use shares::{percent, share_difference, wilson};

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of every interval in our reports.
pub const CONFIDENCE: f64 = 0.95;

/// Power of [`RatioEstimate::mde`]: the probability that an effect of that size would have been detected.
///
/// # Sources
/// Bloom (1995) and common practice: 80 %.
pub const POWER: f64 = 0.8;

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Interval of the mean with [`CONFIDENCE`]; `None` for a single value, which does not show its error.
    pub interval: Option<Interval>,
    /// Number of values.
    pub n: u32,
}

/// A ratio to a baseline with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioEstimate {
    /// Geometric mean of the paired ratios; 1 is no difference.
    pub ratio: f64,
    /// Interval of the ratio with [`CONFIDENCE`]; `None` for a single pair.
    pub interval: Option<Interval>,
    /// Minimum detectable effect: the smallest increase over 1 that these runs would have detected with probability
    /// [`POWER`]; `None` for a single pair. 0.03 means that a difference of 3 % might just have been detected.
    pub mde: Option<f64>,
    /// Number of pairs.
    pub n: u32,
}

impl RatioEstimate {
    /// Whether the interval excludes 1.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0)
    }

    /// The inverse ratio: of the baseline to this.
    #[must_use]
    pub fn inverse(self) -> Self {
        let turn = |interval: Interval| Interval { low: 1.0 / interval.high, high: 1.0 / interval.low };
        Self { ratio: 1.0 / self.ratio, interval: self.interval.map(turn), ..self }
    }
}

/// Why values cannot be averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// There are none.
    #[error("no values")]
    NoValues,
    /// A value is infinite or not a number.
    #[error("value {index} is not finite")]
    NotFinite {
        /// Its index, from 0.
        index: usize,
    },
    /// A value is zero or negative and has no logarithm.
    #[error("value {index} is not above zero")]
    NotPositive {
        /// The index of the pair, from 0.
        index: usize,
    },
}

/// The mean of `values` with its t interval.
///
/// ```text
/// mean ± t(1 - α/2, n - 1) · s / √n        s² = Σ (x - mean)² / (n - 1)
/// ```
///
/// # Errors
/// [`Unfit`] if there is no value, or one that is not finite.
///
/// # Sources
/// Student (1908).
pub fn mean(values: &[f64]) -> Result<Estimate, Unfit> {
    let moments = Moments::of(values)?;
    let interval = moments.standard_error.map(|error| {
        let half = quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, moments.n) * error;
        Interval { low: moments.mean - half, high: moments.mean + half }
    });
    Ok(Estimate { mean: moments.mean, interval, n: moments.n })
}

/// The geometric mean of `treated / baseline` over pairs taken in the same round, as (baseline, treated).
///
/// ```text
/// d = ln(treated / baseline)     ratio = exp(mean d)     interval = exp(mean d ± t(1 - α/2, n - 1) · s / √n)
/// mde = exp((t(1 - α/2, n - 1) + t(power, n - 1)) · s / √n) - 1
/// ```
///
/// # Errors
/// [`Unfit`] if there is no pair, or one with a value that is not finite or not positive.
///
/// # Sources
/// Bland and Altman (1996) for the logarithms, Bloom (1995) for the minimum detectable effect.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Result<RatioEstimate, Unfit> {
    let mut logs = Vec::with_capacity(pairs.len());
    for (index, &(baseline, treated)) in pairs.iter().enumerate() {
        if !baseline.is_finite() || !treated.is_finite() {
            return Err(Unfit::NotFinite { index });
        }
        if baseline <= 0.0 || treated <= 0.0 {
            return Err(Unfit::NotPositive { index });
        }
        logs.push(treated.ln() - baseline.ln());
    }
    let moments = Moments::of(&logs)?;
    let t = quantile(1.0 - (1.0 - CONFIDENCE) / 2.0, moments.n);
    let interval = moments
        .standard_error
        .map(|error| Interval { low: (moments.mean - t * error).exp(), high: (moments.mean + t * error).exp() });
    let mde = moments.standard_error.map(|error| ((t + quantile(POWER, moments.n)) * error).exp() - 1.0);
    Ok(RatioEstimate { ratio: moments.mean.exp(), interval, mde, n: moments.n })
}

/// Mean and standard error.
struct Moments {
    mean: f64,
    /// `s / √n`; `None` for a single value.
    standard_error: Option<f64>,
    n: u32,
}

impl Moments {
    fn of(values: &[f64]) -> Result<Self, Unfit> {
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Unfit::NotFinite { index });
        }
        let n = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if n == 0 {
            return Err(Unfit::NoValues);
        }
        let count = f64::from(n);
        let mean = values.iter().map(|value| value / count).sum::<f64>();
        let standard_error = (n > 1).then(|| {
            let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            (squares / (count - 1.0) / count).sqrt()
        });
        Ok(Self { mean, standard_error, n })
    }
}

/// Quantile of Student's t with `n - 1` degrees of freedom; NaN for fewer than two values.
fn quantile(probability: f64, n: u32) -> f64 {
    let freedom = f64::from(n.saturating_sub(1));
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.inverse_cdf(probability))
}

#[cfg(test)]
mod tests;
