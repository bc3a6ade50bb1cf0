//! Drawings: a histogram and a stacked bar. Plain SVG, no script.

use crate::figures::{count, share};
use fpprof_analysis::audit::Histogram;
use maud::{Markup, html};

/// Horizontal distance between columns, gap included.
const STEP: u64 = 30;
/// Height of the tallest column.
const HEIGHT: u64 = 120;
/// Space below the columns for labels.
const FOOT: u64 = 22;

/// Draws a histogram over 0 to 100 per cent. Heights grow with the square root, because nearly all files are at one of
/// the ends, and readers look for those in between. The counts stand above the columns.
pub(super) fn histogram(histogram: &Histogram, label: &str) -> Markup {
    let largest = histogram.bins.iter().copied().max().unwrap_or(0).max(1);
    let n_bins = histogram.bins.len() as u64;
    let (width, height) = (STEP * n_bins, HEIGHT + FOOT + 16);
    html! {
        svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(label) class="histogram" {
            @for (index, n) in histogram.bins.iter().enumerate() {
                @let x = STEP * index as u64;
                @let tall = root_share(*n, largest);
                rect x=(x + 2) y=(16 + HEIGHT - tall) width=(STEP - 4) height=(tall) {
                    title { (5 * index) " to " (5 * index + 5) " %: " (count(*n)) }
                }
                @if *n > 0 {
                    text x=(x + STEP / 2) y=(12 + HEIGHT - tall) text-anchor="middle" { (count(*n)) }
                }
                @if index % 4 == 0 {
                    text x=(x) y=(HEIGHT + 16 + 16) { (5 * index) " %" }
                }
            }
            text x=(width) y=(HEIGHT + 16 + 16) text-anchor="end" { "100 %" }
        }
    }
}

/// The height of a column for `n` out of at most `largest`; never 0 for one or more.
fn root_share(n: u64, largest: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    // √(n / largest) · HEIGHT in integers: the same drawing on every platform.
    let squared = u128::from(n) * u128::from(HEIGHT) * u128::from(HEIGHT) / u128::from(largest);
    u64::try_from(squared.isqrt()).unwrap_or(HEIGHT).clamp(2, HEIGHT)
}

/// Draws a stacked bar; each part is (class, name, value).
pub(super) fn bar(parts: &[(&str, &str, u64)]) -> Markup {
    let whole = parts.iter().fold(0_u64, |sum, (_, _, n)| sum.saturating_add(*n));
    let mut at = 0_u64;
    let thousandths = |n: u64| u64::try_from(u128::from(n) * 1000 / u128::from(whole.max(1))).unwrap_or(0);
    html! {
        svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" class="shares" {
            @for (class, name, n) in parts {
                @let x = thousandths(at);
                @let end = { at = at.saturating_add(*n); thousandths(at) };
                rect class=(class) x=(x) y="0" width=(end.saturating_sub(x)) height="20" {
                    title { (name) ": " (share(*n, whole)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a single file stays visible next to thousands, and the tallest fills the height.
    #[test]
    fn small_columns_stay_visible() {
        assert_eq!(root_share(0, 5000), 0);
        assert_eq!(root_share(5000, 5000), HEIGHT);
        assert_eq!(root_share(1250, 5000), HEIGHT / 2);
        assert!(root_share(1, u64::MAX) >= 2);
    }

    /// Check that the parts of a bar fill it without gaps, and that an empty bar does not divide by zero.
    #[test]
    fn bars_are_filled() {
        let drawn = bar(&[("a", "a", 1), ("b", "b", 2)]).into_string();
        assert!(
            drawn.contains(r#"x="0" y="0" width="333""#) && drawn.contains(r#"x="333" y="0" width="667""#),
            "{drawn}"
        );
        assert!(bar(&[("a", "a", 0)]).into_string().contains(r#"width="0""#));
    }
}
