//! How long the reader may stay away.

use fpprof_recording::model::Sampling;
use std::time::{Duration, Instant};

/// The rings are read so often while walks by call frame information miss rules, since each sample until there are some is a
/// copied stack; but not more often than a CPU is sampled.
const POLL_FOR_RULES: Duration = Duration::from_millis(5);
/// For so long since the last miss.
pub(crate) const MISSED_LATELY: Duration = Duration::from_millis(200);
/// What was collected is written after so long, and one look later at the latest: a recorder that looks ten times a second loses
/// less than a second when it is killed.
pub(crate) const FLUSH: Duration = Duration::from_millis(850);
/// So long processes that exist already are described between two looks at the rings.
pub(crate) const DESCRIBE: Duration = Duration::from_millis(10);
/// Records younger than this stay in their rings: an earlier one of another CPU may still be on its way.
pub(crate) const SETTLE_NS: u64 = 2_000_000;

/// A ring is to hold no more than this when the reader comes: it is read, and its parts written again, while they are in
/// the cache. Chosen with `examples/cost.rs`.
const HOT_BYTES: f64 = (512 << 10) as f64;
/// More often is of no use: what is younger stays in the rings.
const SHORTEST: Duration = Duration::from_nanos(SETTLE_NS);

/// How long the reader may stay away while walks miss rules.
pub(super) fn poll_for_rules(sampling: Sampling) -> Duration {
    match sampling {
        Sampling::FrequencyHz(hz) => {
            POLL_FOR_RULES.max(Duration::from_secs(1) / u32::try_from(hz).unwrap_or(u32::MAX).max(1))
        }
        Sampling::Period(_) => POLL_FOR_RULES,
    }
}

/// Knows how fast the rings fill.
#[derive(Debug)]
pub(super) struct Pace {
    looked: Instant,
    /// Bytes ever produced, by CPU.
    produced: Vec<u64>,
    pause: Duration,
    /// The longest that is asked for.
    poll: Duration,
}

impl Pace {
    pub(super) fn new(poll: Duration) -> Self {
        let poll = poll.max(SHORTEST);
        Self { looked: Instant::now(), produced: Vec::new(), pause: poll, poll }
    }

    /// How long the busiest ring takes to fill so far. `produced` are the bytes that each CPU ever produced.
    pub(super) fn pause(&mut self, now: Instant, produced: impl Iterator<Item = u64>) -> Duration {
        let elapsed = now.saturating_duration_since(self.looked);
        // So little time says nothing of a rate.
        if elapsed < SHORTEST {
            return self.pause;
        }
        self.looked = now;
        let before = std::mem::take(&mut self.produced);
        self.produced = produced.collect();
        let grown =
            self.produced.iter().enumerate().map(|(i, now)| now - before.get(i).copied().unwrap_or(0).min(*now));
        let most = grown.max().unwrap_or(0);
        let pause = elapsed.as_secs_f64() * HOT_BYTES / most.max(1) as f64;
        self.pause = Duration::try_from_secs_f64(pause).unwrap_or(self.poll).clamp(SHORTEST, self.poll);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the reader comes the more often the faster the fastest ring fills, within limits, and that a moment
    /// after a look says nothing.
    #[test]
    fn faster_rings_are_read_more_often() {
        const POLL: Duration = Duration::from_millis(100);
        let mut pace = Pace::new(POLL);
        let start = pace.looked;
        let at = |ms| start + Duration::from_millis(ms);
        let mut pause = |ms, produced: [u64; 2]| pace.pause(at(ms), produced.into_iter());
        assert_eq!(pause(100, [0, 0]), POLL);
        // Half of what is hot in 20 ms.
        assert_eq!(pause(120, [1, 256 << 10]), Duration::from_millis(40));
        assert_eq!(pause(121, [1, 100 << 20]), Duration::from_millis(40));
        assert_eq!(pause(140, [1, 100 << 20]), SHORTEST);
        assert_eq!(pause(160, [2, 100 << 20]), POLL);
    }
}
