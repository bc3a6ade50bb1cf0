//! Which files are read to analyse an interval, if it fails with all.

use crate::worker::Owners;
use std::time::Duration;

/// The attempts to analyse an interval: whose files are read, the time limit, and what is printed before. Hostile files may
/// take too long, or make the process fail.
pub(super) const ATTEMPTS: [(Owners, Duration, &str); 3] = [
    (Owners::All, Duration::from_secs(80), ""),
    (Owners::Root, Duration::from_secs(25), "the interval is analysed again, with root's ELF files alone"),
    (Owners::Nobody, Duration::from_secs(15), "the interval is analysed again, without ELF files"),
];
/// The most intervals that are not analysed with all files after one of them failed.
const MAX_PAUSE: u32 = 16;

/// Chooses the first of [`ATTEMPTS`]. After an interval that failed with all files, the next one begins with the attempt that
/// worked; each time that all files fail again, twice as many intervals do so, up to [`MAX_PAUSE`].
#[derive(Debug, Default)]
pub(super) struct FirstAttempt {
    /// The last attempt of the last interval.
    attempt: usize,
    /// How many intervals still begin with it.
    left: u32,
    /// How many did after the last failure with all files.
    pause: u32,
}

impl FirstAttempt {
    /// The first attempt of the next interval.
    pub(super) fn next(&mut self) -> usize {
        let is_all = self.left == 0;
        self.left = self.left.saturating_sub(1);
        if is_all { 0 } else { self.attempt }
    }

    /// Records the last attempt of an interval that began with `first`.
    pub(super) fn ended(&mut self, first: usize, attempt: usize) {
        if attempt == 0 {
            *self = Self::default();
            return;
        }
        if first == 0 {
            self.pause = self.pause.saturating_mul(2).clamp(1, MAX_PAUSE);
            self.left = self.pause;
        }
        self.attempt = attempt;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all files are read again after one interval, then after ever more up to a limit, and that an interval that
    /// works with them starts this over.
    #[test]
    fn fewer_files_are_read_for_a_while() {
        let mut first = FirstAttempt::default();
        let mut run = |n: usize, last: &dyn Fn(usize) -> usize| -> Vec<usize> {
            let of = |_| {
                let attempt = first.next();
                first.ended(attempt, last(attempt));
                attempt
            };
            (0..n).map(of).collect()
        };
        assert_eq!(run(9, &|first| first.max(1)), [0, 1, 0, 1, 1, 0, 1, 1, 1]);
        assert_eq!(run(1, &|_| 2), [1]);
        assert_eq!(run(1, &|_| 0), [0]);
        assert_eq!(run(4, &|first| first.max(2)), [0, 2, 0, 2]);
        let most = run(200, &|first| first.max(1));
        let longest = most.split(|&attempt| attempt == 0).map(<[usize]>::len).max();
        assert_eq!(longest, Some(MAX_PAUSE as usize));
    }
}
