//! Small drawings in the table. Widths are attributes, not styles; the figures always stand next to them.

use fpprof_analysis::statistics::RatioEstimate;
use maud::{Markup, html};

/// The largest change drawn, per cent: a wider interval is cut at the edge; its figures are exact.
const MAX_REACH: f64 = 50.0;

/// The common scale of a column of intervals, per cent of change; it always includes 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Returns a scale that holds every interval, up to the limit.
    pub(super) fn new(ratios: impl Iterator<Item = RatioEstimate>) -> Self {
        let ends = ratios.flat_map(|ratio| {
            let interval = ratio.interval;
            [Some(ratio.ratio), interval.map(|i| i.low), interval.map(|i| i.high)].into_iter().flatten()
        });
        let changes = ends.map(|ratio| 100.0 * (ratio - 1.0)).filter(|change| change.is_finite());
        let (low, high) = changes.fold((-1.0, 1.0), |(low, high), change| (change.min(low), change.max(high)));
        Self { low: f64::max(low, -MAX_REACH), high: f64::min(high, MAX_REACH) }
    }

    /// The horizontal position of a ratio in a drawing of 120 by 14.
    fn x(self, ratio: f64) -> String {
        let change = (100.0 * (ratio - 1.0)).clamp(self.low, self.high);
        format!("{:.2}", 4.0 + 112.0 * (change - self.low) / (self.high - self.low))
    }
}

/// Draws a ratio as a dot, its interval as a line, and zero change as a dashed line.
pub(super) fn interval(ratio: &RatioEstimate, scale: Scale) -> Markup {
    html! {
        svg.interval viewBox="0 0 120 14" aria-hidden="true" {
            line.axis x1=(scale.x(1.0)) x2=(scale.x(1.0)) y1="0" y2="14" {}
            @if let Some(interval) = ratio.interval {
                line.span x1=(scale.x(interval.low)) x2=(scale.x(interval.high)) y1="7" y2="7" {}
            }
            circle.mean cx=(scale.x(ratio.ratio)) cy="7" r="3.5" {}
        }
    }
}
