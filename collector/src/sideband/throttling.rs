//! For how long the kernel did not let a CPU's event fire.

/// Adds up the time between throttling and its end.
#[derive(Debug, Default)]
pub(crate) struct Throttling {
    since_ns: Option<u64>,
    total_ns: u64,
}

impl Throttling {
    /// The event was stopped.
    pub(crate) fn begin(&mut self, time_ns: u64) {
        self.since_ns.get_or_insert(time_ns);
    }

    /// The event was let go on.
    pub(crate) fn end(&mut self, time_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.total_ns = self.total_ns.saturating_add(time_ns.saturating_sub(since_ns));
        }
    }

    /// All of it, up to `now_ns`.
    pub(crate) fn total_ns(&self, now_ns: u64) -> u64 {
        let open_ns = self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.total_ns.saturating_add(open_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the time from a beginning to its end counts, an end without beginning and a second beginning do
    /// not, and that what still lasts counts up to now.
    #[test]
    fn time_adds_up() {
        let mut throttling = Throttling::default();
        throttling.end(5);
        assert_eq!(throttling.total_ns(100), 0);
        throttling.begin(10);
        throttling.begin(15);
        throttling.end(30);
        assert_eq!(throttling.total_ns(100), 20);
        throttling.begin(90);
        assert_eq!(throttling.total_ns(100), 30);
        assert_eq!(throttling.total_ns(80), 20);
    }
}
