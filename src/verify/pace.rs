//! Which instructions are checked, and what is counted on the way.

use std::collections::BTreeMap;

/// Which instructions are checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) every: u64,
    pub(super) skip: u64,
    pub(super) max: Option<u64>,
}

impl Pace {
    /// Whether the instruction with so many before it is checked.
    pub(super) fn is_checked(&self, n_before: u64) -> bool {
        n_before.checked_sub(self.skip).is_some_and(|n| n.checked_rem(self.every).unwrap_or(0) == 0)
    }

    /// Whether so many instructions are all that was asked for.
    pub(super) fn is_over(&self, n_before: u64) -> bool {
        self.max.is_some_and(|max| n_before >= max)
    }
}

/// Windows of stepped instructions with leaps between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaps {
    /// Instructions in a window.
    pub(crate) window: u64,
    /// Turns between two windows, on average.
    pub(crate) turns: u64,
    /// What the lengths of leaps follow from.
    pub(crate) seed: u64,
}

/// Whether the program is stepped or leaps, and for how long.
#[derive(Debug)]
pub(super) struct Gait {
    leaps: Option<Leaps>,
    random: fastrand::Rng,
    is_leaping: bool,
    /// Instructions or turns until that changes.
    left: u64,
}

impl Gait {
    /// Steps for ever without `leaps`, and begins with a leap with them.
    pub(super) fn new(leaps: Option<Leaps>) -> Self {
        let random = fastrand::Rng::with_seed(leaps.map_or(0, |leaps| leaps.seed));
        let mut gait = Self { leaps, random, is_leaping: false, left: 1 };
        gait.pass();
        gait
    }

    pub(super) fn is_leaping(&self) -> bool {
        self.is_leaping
    }

    /// An instruction was stepped in a window.
    pub(super) fn stepped(&mut self) {
        if !self.is_leaping {
            self.pass();
        }
    }

    /// A turn was made in a leap.
    pub(super) fn turned(&mut self) {
        if self.is_leaping {
            self.pass();
        }
    }

    fn pass(&mut self) {
        let Some(Leaps { window, turns, .. }) = self.leaps else { return };
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        self.is_leaping = !self.is_leaping;
        self.left = if self.is_leaping { self.random.u64(1..=turns.saturating_mul(2).max(1)) } else { window };
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) instructions: u64,
    pub(super) calls: u64,
    pub(super) returns: u64,
    pub(super) returns_without_call: u64,
    pub(super) unwinds: u64,
    pub(super) signals: u64,
    pub(super) signal_returns: u64,
    pub(super) stack_switches: u64,
    pub(super) threads: u64,
    pub(super) processes_not_followed: u64,
    pub(super) execs: u64,
    pub(super) stops_ignored: u64,
    pub(super) mapping_changes: u64,
    pub(super) turns_passed: u64,
}

impl Counts {
    /// All but the instructions, by name.
    pub(super) fn events(&self) -> BTreeMap<String, u64> {
        let named = [
            ("calls", self.calls),
            ("returns", self.returns),
            ("returns_without_call", self.returns_without_call),
            ("unwinds", self.unwinds),
            ("signals", self.signals),
            ("signal_returns", self.signal_returns),
            ("stack_switches", self.stack_switches),
            ("threads", self.threads),
            ("processes_not_followed", self.processes_not_followed),
            ("execs", self.execs),
            ("stops_ignored", self.stops_ignored),
            ("mapping_changes", self.mapping_changes),
            ("turns_passed", self.turns_passed),
        ];
        named.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one in so many is checked after those that are skipped, and that there is an end.
    #[test]
    fn one_in_so_many_is_checked() {
        let pace = Pace { every: 3, skip: 2, max: Some(8) };
        let checked: Vec<u64> = (0..10).filter(|&n| pace.is_checked(n) && !pace.is_over(n)).collect();
        assert_eq!(checked, [2, 5]);
        assert!(Pace { every: 1, skip: 0, max: None }.is_checked(0));
    }
    /// Check that windows have their length, leaps have the mean asked for, and the same seed gives the same ones.
    #[test]
    fn windows_and_leaps_take_turns() {
        let leaps = Leaps { window: 3, turns: 10, seed: 7 };
        let lengths = |seed: u64| {
            let mut gait = Gait::new(Some(Leaps { seed, ..leaps }));
            let mut lengths = Vec::new();
            for _ in 0..400 {
                let (mut turns, mut steps) = (0, 0);
                while gait.is_leaping() {
                    gait.turned();
                    turns += 1;
                }
                while !gait.is_leaping() {
                    gait.stepped();
                    steps += 1;
                }
                assert_eq!(steps, 3);
                lengths.push(turns);
            }
            lengths
        };
        let first: Vec<u64> = lengths(7);
        assert_eq!(first, lengths(7));
        assert_ne!(first, lengths(8));
        let sum: u64 = first.iter().sum();
        assert!((3600..4800).contains(&sum), "{sum}");
        let mut never = Gait::new(None);
        (0..100).for_each(|_| never.stepped());
        assert!(!never.is_leaping());
    }
}
