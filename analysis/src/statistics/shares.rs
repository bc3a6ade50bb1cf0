//! Confidence intervals of proportions.

use super::Interval;
use statrs::distribution::{ContinuousCDF, Normal};

/// `part` in per cent of `whole`; `None` if `whole` is 0.
#[must_use]
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    // Multiplied first: 57 of 100 gives exactly 57, but 0.57 × 100 does not.
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// Confidence interval of the share `part / whole`, treating the whole as independent draws; `confidence` is from 0 to
/// 1. `None` if `whole` is 0.
///
/// ```text
/// (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
/// ```
///
/// It stays within 0 and 1, and is meaningful for a share of 0 or 1.
///
/// # Sources
/// Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22(158).
#[must_use]
pub fn wilson(part: u64, whole: u64, confidence: f64) -> Option<Interval> {
    if whole == 0 || part > whole {
        return None;
    }
    let (n, z) = (whole as f64, quantile(confidence));
    let p = part as f64 / n;
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let all = 1.0 + z * z / n;
    Some(Interval { low: ((middle - half) / all).max(0.0), high: ((middle + half) / all).min(1.0) })
}

/// Confidence interval of the difference of two shares `(part, whole)`, the second minus the first; `None` if either
/// whole is 0.
///
/// # Sources
/// Newcombe (1998), "Interval estimation for the difference between independent proportions", Statistics in Medicine
/// 17, method 10.
#[must_use]
pub fn share_difference(first: (u64, u64), second: (u64, u64), confidence: f64) -> Option<Interval> {
    let (a, b) = (wilson(first.0, first.1, confidence)?, wilson(second.0, second.1, confidence)?);
    let share = |(part, whole): (u64, u64)| part as f64 / whole as f64;
    let (p, q) = (share(first), share(second));
    let difference = q - p;
    let low = difference - (q - b.low).hypot(a.high - p);
    let high = difference + (b.high - q).hypot(p - a.low);
    Some(Interval { low, high })
}

/// Two-sided quantile of the normal distribution.
fn quantile(confidence: f64) -> f64 {
    Normal::standard().inverse_cdf(1.0 - (1.0 - confidence) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::CONFIDENCE;

    fn near(found: Option<Interval>, low: f64, high: f64) {
        let found = found.expect("there is an interval");
        assert!((found.low - low).abs() < 5e-5 && (found.high - high).abs() < 5e-5, "{found:?} is not {low} to {high}");
    }

    /// Check both against the examples of Newcombe (1998): 81 of 263 in "Two-sided confidence intervals for the single
    /// proportion", table I; 56/70 and 48/80 in the paper on differences, table II (a).
    #[test]
    fn published_examples() {
        near(wilson(81, 263, CONFIDENCE), 0.2553, 0.3662);
        near(wilson(0, 20, CONFIDENCE), 0.0, 0.1611);
        near(wilson(1, 29, CONFIDENCE), 0.0061, 0.1718);
        near(share_difference((48, 80), (56, 70), CONFIDENCE), 0.0524, 0.3339);
        near(share_difference((3, 10), (9, 10), CONFIDENCE), 0.1705, 0.8090);
    }

    /// Check that whole per cent are exact, so that a limit at a whole per cent holds.
    #[test]
    fn whole_per_cent_are_exact() {
        assert!((0_u32..=100).all(|n| percent(n.into(), 100) == Some(n.into())));
        assert_eq!((percent(1, 0), percent(3, 2)), (None, Some(150.0)));
    }

    /// Check that an empty whole, and a part larger than the whole, have no share.
    #[test]
    fn nothing_has_no_share() {
        assert_eq!((wilson(0, 0, CONFIDENCE), wilson(3, 2, CONFIDENCE)), (None, None));
        assert_eq!(share_difference((0, 0), (1, 2), CONFIDENCE), None);
        let all = wilson(u64::MAX, u64::MAX, CONFIDENCE).unwrap();
        assert!(all.low <= 1.0 && all.high <= 1.0);
    }
}
