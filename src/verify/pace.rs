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
}
