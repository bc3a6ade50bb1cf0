//! Shares of common resources for the processes of each user.

use rustc_hash::FxHashMap;

/// A number of things that users share: a user may have as many as would be left for the others, which is half of all
/// for the first user.
#[derive(Debug)]
pub(crate) struct Shares {
    most: u64,
    taken: u64,
    by_user: FxHashMap<u32, u64>,
}

impl Shares {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, taken: 0, by_user: FxHashMap::default() }
    }

    /// Takes `n` for a user; returns whether that was within the user's share.
    pub(crate) fn take(&mut self, user: u32, n: u64) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or(0).saturating_add(n);
        let taken = self.taken.saturating_add(n);
        if taken.saturating_add(own) > self.most {
            return false;
        }
        self.taken = taken;
        self.by_user.insert(user, own);
        true
    }

    /// How many a user may still take.
    pub(crate) fn left(&self, user: u32) -> u64 {
        let own = self.by_user.get(&user).copied().unwrap_or(0);
        self.most.saturating_sub(self.taken).saturating_sub(own) / 2
    }

    /// Releases `n` that a user has taken.
    pub(crate) fn give_back(&mut self, user: u32, n: u64) {
        self.taken = self.taken.saturating_sub(n);
        if let Some(own) = self.by_user.get_mut(&user) {
            *own = own.saturating_sub(n);
            if *own == 0 {
                self.by_user.remove(&user);
            }
        }
    }
}

/// A budget of time for each user: an initial burst, and a fraction of all time after that. Times are nanoseconds of
/// any one clock, users are UIDs.
#[derive(Debug)]
pub struct Credit {
    at_once_ns: u64,
    /// The fraction's divisor.
    part: u64,
    /// When each user's budget will be full again.
    until_ns: FxHashMap<u32, u64>,
}

impl Credit {
    /// Gives each user this burst, and one `part`th of the time.
    #[must_use]
    pub fn new(at_once_ns: u64, part: u64) -> Self {
        Self { at_once_ns, part, until_ns: FxHashMap::default() }
    }

    /// Whether all budgets are full.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.until_ns.is_empty()
    }

    /// Whether more may be spent on a user.
    #[must_use]
    pub fn has(&self, user: u32, now_ns: u64) -> bool {
        let most_ns = now_ns.saturating_add(self.at_once_ns.saturating_mul(self.part));
        self.until_ns.get(&user).is_none_or(|&until_ns| until_ns <= most_ns)
    }

    /// Charges time to a user.
    pub fn spend(&mut self, user: u32, now_ns: u64, spent_ns: u64) {
        let until_ns = self.until_ns.entry(user).or_default();
        *until_ns = (*until_ns).max(now_ns).saturating_add(spent_ns.saturating_mul(self.part));
    }

    /// Forgets users whose budget is full again.
    pub fn forget(&mut self, now_ns: u64) {
        self.until_ns.retain(|_, until_ns| *until_ns > now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one user can take half, that the next can take half of the rest, and that what is returned can be
    /// taken again.
    #[test]
    fn users_leave_something_to_others() {
        let mut shares = Shares::new(100);
        let mut all = |user| (0..1000).filter(|_| shares.take(user, 1)).count();
        assert_eq!([1, 2, 3, 1].map(&mut all), [50, 25, 12, 0]);
        assert_eq!([1, 4].map(|user| shares.left(user)), [0, 6]);
        (0..30).for_each(|_| shares.give_back(1, 1));
        assert!(shares.take(2, 1) && !shares.take(4, 100));
        shares.give_back(1, 20);
        assert!(!shares.by_user.contains_key(&1));
    }

    /// Check that a user has a burst and a fraction of all time, independent of other users.
    #[test]
    fn time_comes_back_in_part() {
        let mut credit = Credit::new(100, 10);
        credit.spend(1, 5, 100);
        assert!(credit.has(1, 5), "as much as there is at once");
        credit.spend(1, 5, 20);
        assert_eq!([5, 204, 205].map(|now_ns| credit.has(1, now_ns)), [false, false, true]);
        assert!(credit.has(2, 5) && !credit.is_whole());
        credit.forget(1204);
        assert!(!credit.is_whole());
        credit.forget(1205);
        assert!(credit.is_whole());
    }
}
