//! Limits the height of a graph: a deep recursion in few samples would make it many screens high, and blank but for a
//! spike.

use super::header::Part;
use crate::figures::share;

/// Rows that are always drawn.
const MIN_ROWS: usize = 80;
/// The least share of everything, in per cent, for a row above them that is not a spike.
const MIN_PERCENT: u128 = 5;
/// The least height of a spike, in rows: the tips of deep stacks are thin too, and show what runs.
const MIN_SPIKE: usize = 40;

/// The rows that are drawn, and the amount that has frames above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    /// Rows that are drawn.
    n: usize,
    /// The amount of paths that are cut.
    cut: u64,
    all: u64,
}

impl Rows {
    /// Computes the rows from paths, each as (number of boxes, amount).
    pub(super) fn of(paths: impl Iterator<Item = (usize, u64)> + Clone) -> Self {
        let mut ends = vec![0_u64; paths.clone().map(|(len, _)| len + 1).max().unwrap_or_default()];
        for (len, amount) in paths {
            if let Some(end) = ends.get_mut(len) {
                *end = end.saturating_add(amount);
            }
        }
        let all = ends.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let height = ends.len();
        let mut held = all;
        // Row `n` holds the box with `n` boxes below it: a path that ends there does not reach it.
        for (n, end) in ends.into_iter().enumerate() {
            held = held.saturating_sub(end);
            let is_thin = u128::from(held) * 100 < u128::from(all) * MIN_PERCENT;
            if n >= MIN_ROWS && n + MIN_SPIKE < height && is_thin {
                return Self { n, cut: held, all };
            }
        }
        Self { n: usize::MAX, cut: 0, all }
    }

    /// The boxes of a path that are drawn, and the number of frames above that one box stands for.
    pub(super) fn drawn<'a>(&self, path: &'a [u32]) -> (&'a [u32], usize) {
        match path.split_at_checked(self.n.saturating_sub(1)) {
            Some((drawn, above)) if above.len() > 1 => (drawn, above.len()),
            _ => (path, 0),
        }
    }

    /// A note about what is not drawn; `amount` formats an amount.
    pub(super) fn note(&self, amount: impl Fn(u64) -> String) -> Option<Part> {
        let cut = (self.cut > 0).then_some(self.cut)?;
        let (amount, share) = (amount(cut), share(cut, self.all));
        Some(Part::text(&format!("{amount} ({share}): frames above row {} are not drawn", self.n)))
    }
}

/// The name of the box that stands for frames that are not drawn.
pub(super) fn more_frames(n: usize) -> String {
    format!("… {n} more frames")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a low graph is whole, and so is a high one whose rows hold enough or are few; that a spike is cut,
    /// has a box for its frames, and is counted.
    #[test]
    fn spikes_are_cut() {
        let path: Vec<u32> = (0..300).collect();
        let low = Rows::of([(80, 1), (3, 999)].into_iter());
        assert_eq!((low.drawn(&path[..80]), low.note(|n| n.to_string())), ((&path[..80], 0), None));
        let wide = Rows::of([(300, 50), (3, 950)].into_iter());
        assert_eq!((wide.drawn(&path), wide.cut), ((&path[..], 0), 0));
        let tips = Rows::of([(120, 4), (90, 996)].into_iter());
        assert_eq!((tips.drawn(&path[..120]), tips.cut), ((&path[..120], 0), 0));
        let thin = Rows::of([(300, 4), (81, 46), (80, 10), (3, 940)].into_iter());
        assert_eq!((thin.n, thin.cut), (81, 4));
        assert_eq!(thin.drawn(&path), (&path[..80], 220));
        assert_eq!((thin.drawn(&path[..82]), thin.drawn(&path[..81])), ((&path[..80], 2), (&path[..81], 0)));
        let note = thin.note(|n| format!("{n} samples"));
        assert_eq!(note, Some(Part::text("4 samples (0.4 %): frames above row 81 are not drawn")));
    }
}
