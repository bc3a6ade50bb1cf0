//! Chooses which instructions are checked, and counts events.

use std::collections::BTreeMap;

/// Picks one of every `n` at random: of each `n` in a row exactly one, each with the same probability. A fixed stride
/// would resonate with a program's own period.
#[derive(Debug)]
struct OneIn {
    n: u64,
    random: fastrand::Rng,
    /// How many come before the next pick.
    before: u64,
    /// How many of the same row come after the pick.
    after: u64,
}

impl OneIn {
    fn new(n: u64, random: fastrand::Rng) -> Self {
        let mut one_in = Self { n: n.max(1), random, before: 0, after: 0 };
        one_in.draw();
        one_in
    }

    fn draw(&mut self) {
        let place = self.random.u64(0..self.n);
        self.before = self.after.saturating_add(place);
        self.after = self.n.saturating_sub(place).saturating_sub(1);
    }

    /// Whether the next one is picked.
    fn is_next(&mut self) -> bool {
        if let Some(before) = self.before.checked_sub(1) {
            self.before = before;
            return false;
        }
        self.draw();
        true
    }
}

/// Which instructions to check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// Check one in this many.
    pub(crate) every: u64,
    /// Skip this many at the start.
    pub(crate) skip: u64,
    /// Kill the program after this many.
    pub(crate) max: Option<u64>,
    /// Windows and leaps; `None` if all instructions are stepped.
    pub(crate) leaps: Option<Leaps>,
    /// The seed of all random choices.
    pub(crate) seed: u64,
}

/// Windows of stepped instructions with leaps between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaps {
    /// Mean number of instructions in a window.
    pub(crate) window: u64,
    /// One in this many transfers begins a window.
    pub(crate) transfers: u64,
}

/// Decides which of the stepped instructions are checked.
#[derive(Debug)]
pub(super) struct Pace {
    every: OneIn,
    skip: u64,
    max: Option<u64>,
}

impl Pace {
    pub(super) fn new(choice: &Choice) -> Self {
        let random = fastrand::Rng::with_seed(choice.seed);
        Self { every: OneIn::new(choice.every, random), skip: choice.skip, max: choice.max }
    }

    /// Whether the next instruction is checked, after `n_before` others.
    pub(super) fn is_checked(&mut self, n_before: u64) -> bool {
        n_before >= self.skip && self.every.is_next()
    }

    /// Whether the requested maximum is reached after `n_before` instructions.
    pub(super) fn is_over(&self, n_before: u64) -> bool {
        self.max.is_some_and(|max| n_before >= max)
    }
}

/// Whether the program is currently stepped or leaps.
#[derive(Debug)]
pub(super) struct LeapSchedule {
    /// `None` if all instructions are stepped.
    leaps: Option<Drawn>,
    is_leaping: bool,
}

/// The random starts and ends of windows.
#[derive(Debug)]
struct Drawn {
    /// Picks the transfers that begin a window.
    begins: OneIn,
    /// Mean number of instructions in a window. Each instruction ends it with the same probability, so that every one
    /// can be reached, however far after a transfer.
    window: u64,
    random: fastrand::Rng,
}

impl LeapSchedule {
    /// Without leaps, steps forever. With leaps, the start of the program counts as a transfer.
    pub(super) fn new(choice: &Choice) -> Self {
        let mut random = fastrand::Rng::with_seed(choice.seed).fork();
        let drawn = |Leaps { window, transfers }: Leaps| Drawn {
            begins: OneIn::new(transfers, random.fork()),
            window: window.max(1),
            random: random.fork(),
        };
        let leaps = choice.leaps.map(drawn);
        let mut schedule = Self { is_leaping: leaps.is_some(), leaps };
        schedule.count_transfer();
        schedule
    }

    pub(super) fn is_leaping(&self) -> bool {
        self.is_leaping
    }

    /// Counts an instruction that was stepped in a window.
    pub(super) fn stepped(&mut self) {
        if let (false, Some(drawn)) = (self.is_leaping, &mut self.leaps) {
            self.is_leaping = drawn.random.u64(0..drawn.window) == 0;
        }
    }

    /// Counts a transfer that was made in a leap.
    pub(super) fn count_transfer(&mut self) {
        if let (true, Some(drawn)) = (self.is_leaping, &mut self.leaps) {
            self.is_leaping = !drawn.begins.is_next();
        }
    }
}

/// Events counted in a run.
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
    pub(super) transfers: u64,
}

impl Counts {
    /// All counts but that of instructions, by name.
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
            ("turns_passed", self.transfers),
        ];
        named.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Choice = Choice { every: 1, skip: 0, max: None, leaps: None, seed: 1 };

    /// Check that one in `every` is checked after those that are skipped, and that the maximum ends it.
    #[test]
    fn one_in_so_many_is_checked() {
        for seed in 0..100 {
            let mut pace = Pace::new(&Choice { every: 3, skip: 2, max: Some(11), seed, ..ALL });
            let checked: Vec<u64> = (0..11).filter(|&n| pace.is_checked(n)).collect();
            assert!(matches!(checked[..], [2..5, 5..8, 8..11]), "{checked:?}");
            assert!(pace.is_over(11) && !pace.is_over(10));
        }
        let mut all = Pace::new(&ALL);
        assert!((0..10).all(|n| all.is_checked(n)));
    }

    /// Check that events at multiples of the stride are checked as often as others.
    #[test]
    fn each_instruction_of_a_loop_has_the_same_chance() {
        let mut pace = Pace::new(&Choice { every: 20, ..ALL });
        let mut checked = [0_u32; 20];
        for round in 0..10_000 {
            for (n, checked) in (0..).zip(&mut checked) {
                *checked += u32::from(pace.is_checked(20 * round + n));
            }
        }
        // 500 of each expected, with a standard deviation of 22.
        assert!(checked.iter().all(|n| (400..600).contains(n)), "{checked:?}");
    }

    fn leaping(window: u64, transfers: u64, seed: u64) -> LeapSchedule {
        LeapSchedule::new(&Choice { leaps: Some(Leaps { window, transfers }), seed, ..ALL })
    }

    /// Indices of the transfers that begin a window, of the first `n`, in a program of transfers only.
    fn begins(window: u64, transfers: u64, seed: u64, n: usize) -> Vec<usize> {
        let mut schedule = leaping(window, transfers, seed);
        let mut begins = Vec::new();
        for transfer in 0..n {
            if !schedule.is_leaping() {
                begins.push(transfer);
            }
            while !schedule.is_leaping() {
                schedule.stepped();
            }
            schedule.count_transfer();
        }
        begins
    }

    /// Check that each transfer is equally likely to begin a window, from the first one on, at the requested rate; and
    /// that the same seed gives the same windows.
    #[test]
    fn each_transfer_has_the_same_chance() {
        let mut n_begins = [0_u32; 40];
        for seed in 0..10_000 {
            for transfer in begins(3, 10, seed, 40) {
                n_begins[transfer] += 1;
            }
        }
        // 1,000 of each expected, with a standard deviation of 30.
        assert!(n_begins.iter().all(|n| (850..1150).contains(n)), "{n_begins:?}");
        assert_eq!(begins(3, 10, 7, 1000).len(), 100);
        assert_eq!(begins(3, 10, 7, 1000), begins(3, 10, 7, 1000));
        assert_ne!(begins(3, 10, 7, 1000), begins(3, 10, 8, 1000));
    }

    /// Check that windows have the requested mean length, that some are much longer, and that without leaps there is
    /// only one.
    #[test]
    fn windows_end_at_random() {
        let mut schedule = leaping(30, 1, 1);
        let mut lengths = Vec::new();
        for _ in 0..10_000 {
            let mut n = 0;
            while !schedule.is_leaping() {
                schedule.stepped();
                n += 1;
            }
            schedule.count_transfer();
            lengths.push(n);
        }
        let sum: u32 = lengths.iter().sum();
        assert!((285_000..315_000).contains(&sum), "{sum}");
        assert!(lengths.contains(&1) && lengths.iter().any(|&n| n > 150));
        let mut never = LeapSchedule::new(&ALL);
        (0..100).for_each(|_| never.stepped());
        assert!(!never.is_leaping());
    }
}
