//! Small drawings within the table. Widths are attributes, not styles; the figures always stand beside them.

use super::cells::shares;
use crate::figures::percent;
use fpprof_analysis::experiment::StackEnds;
use fpprof_analysis::statistics::RatioEstimate;
use maud::{Markup, html};

/// Widest change drawn, per cent: a wilder interval is cut at the edge and its figures tell the rest.
const MAX_REACH: f64 = 50.0;

/// A bar of complete, truncated and broken stacks.
pub(super) fn bar(ends: &StackEnds) -> Markup {
    let [complete, truncated, broken] = shares(ends);
    let label = format!("{complete} complete, {truncated} truncated, {broken} broken");
    let parts = [("complete", ends.complete), ("truncated", ends.n_truncated()), ("broken", ends.n_broken())];
    let mut x = 0.0;
    let placed = parts.map(|(class, n)| {
        let width = percent(n, ends.samples);
        let start = x;
        x += width;
        (class, start, width)
    });
    html! {
        svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (class, start, width) in placed {
                @if width > 0.0 {
                    rect class=(class) x=(format!("{start:.3}")) width=(format!("{width:.3}")) height="1";
                }
            }
        }
    }
}

/// The largest change of any interval, per cent: the common scale of all drawings in a column.
pub(super) fn reach(ratios: impl Iterator<Item = RatioEstimate>) -> f64 {
    let ends = ratios.flat_map(|ratio| {
        let interval = ratio.interval;
        [Some(ratio.ratio), interval.map(|i| i.low), interval.map(|i| i.high)].into_iter().flatten()
    });
    ends.map(|ratio| (100.0 * (ratio - 1.0)).abs())
        .filter(|change| change.is_finite())
        .fold(1.0, f64::max)
        .min(MAX_REACH)
}

/// A ratio as a dot, its interval as a line, no change in the middle.
pub(super) fn interval(ratio: &RatioEstimate, reach: f64) -> Markup {
    let x = |ratio: f64| format!("{:.2}", 60.0 + 56.0 * (100.0 * (ratio - 1.0) / reach).clamp(-1.0, 1.0));
    html! {
        svg.interval viewBox="0 0 120 14" aria-hidden="true" {
            line.axis x1="60" x2="60" y1="0" y2="14";
            @if let Some(interval) = ratio.interval {
                line.span x1=(x(interval.low)) x2=(x(interval.high)) y1="7" y2="7";
            }
            circle.mean cx=(x(ratio.ratio)) cy="7" r="3.5";
        }
    }
}
