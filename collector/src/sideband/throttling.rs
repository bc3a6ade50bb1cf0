//! Periods in which the kernel did not let a CPU's event fire.

/// Records the periods from throttling to unthrottling.
#[derive(Debug, Default)]
pub(crate) struct Throttling {
    since_ns: Option<u64>,
    ended: Vec<(u64, u64)>,
}

impl Throttling {
    /// The event was stopped.
    pub(crate) fn begin(&mut self, time_ns: u64) {
        self.since_ns.get_or_insert(time_ns);
    }

    /// The event was resumed.
    pub(crate) fn end(&mut self, time_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.ended.push((since_ns, time_ns.max(since_ns)));
        }
    }

    /// The event is gone: an open period has no end.
    pub(crate) fn give_up(&mut self) {
        self.since_ns = None;
    }

    /// Start and end of the periods that ended since the last call.
    pub(crate) fn take_ended(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ended.drain(..)
    }

    /// Start of the open period.
    pub(crate) fn open_since_ns(&self) -> Option<u64> {
        self.since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the time from a start to its end counts, not an end without a start or a second start, and that
    /// an open period is separate.
    #[test]
    fn times_are_noted_once() {
        let mut throttling = Throttling::default();
        throttling.end(5);
        assert_eq!(throttling.take_ended().count(), 0);
        throttling.begin(10);
        throttling.begin(15);
        assert_eq!(throttling.open_since_ns(), Some(10));
        throttling.end(30);
        throttling.begin(90);
        assert_eq!(throttling.take_ended().collect::<Vec<_>>(), [(10, 30)]);
        assert_eq!((throttling.take_ended().count(), throttling.open_since_ns()), (0, Some(90)));
        throttling.give_up();
        throttling.end(100);
        assert_eq!((throttling.take_ended().count(), throttling.open_since_ns()), (0, None));
    }
}
