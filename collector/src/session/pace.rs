//! How long the reader may stay away.

use crate::request::Request;
use fpprof_recording::model::Sampling;
use std::time::{Duration, Instant};

/// Written data is flushed after this time, and at the latest one read after it: a recorder that reads ten times a
/// second loses less than a second if it is killed.
pub(crate) const FLUSH: Duration = Duration::from_millis(850);

/// The same if flushes can be requested.
const FLUSH_UNREQUESTED: Duration = Duration::from_secs(10);

/// Whether written data must be flushed: on request, or after the time over which equal samples are written once. Call it
/// after each read of the rings.
pub(crate) fn must_flush(request: &Request, since_flush: Duration) -> bool {
    let is_requested = request.parts_control.as_ref().is_some_and(|control| {
        control.note_read();
        control.take_flush_request()
    });
    let usual = if request.parts_control.is_some() { FLUSH_UNREQUESTED } else { FLUSH };
    is_requested || since_flush >= request.aggregate.map_or(usual, |apart| apart.max(usual))
}

/// Time per round spent describing existing processes between two reads of the rings.
pub(crate) const DESCRIBE: Duration = Duration::from_millis(10);
/// Records younger than this stay in their rings: an earlier one of another CPU may still be on its way.
pub(crate) const SETTLE_NS: u64 = 2_000_000;

/// The most a ring should contain when it is read: it is then read, and its memory reused, while it is in
/// the cache. Chosen with `examples/cost.rs`.
const HOT_BYTES: f64 = (512 << 10) as f64;
/// Shortest pause between reads because of missed rules.
const POLL_FOR_RULES: Duration = Duration::from_millis(5);
/// Reading more often is useless: younger records stay in the rings.
const SHORTEST: Duration = Duration::from_nanos(SETTLE_NS);

/// Decides how soon the reader must come back because walks by call frame information miss rules: until the rules are
/// loaded, each such sample is a copied stack. It comes about as often as a walk misses one, so that rare misses, which a
/// large program has for minutes, do not keep it busy.
#[derive(Debug)]
pub(super) struct MissPace {
    looked: Instant,
    n_missed: u64,
    pause: Duration,
    shortest: Duration,
}

impl MissPace {
    /// Rings are read at most 200 times a second, and no more often than a CPU is sampled.
    pub(super) fn new(sampling: Sampling) -> Self {
        let of_rate = |hz| Duration::from_secs(1) / u32::try_from(hz).unwrap_or(u32::MAX).max(1);
        let shortest = match sampling {
            Sampling::FrequencyHz(hz) => POLL_FOR_RULES.max(of_rate(hz)),
            Sampling::Period(_) => POLL_FOR_RULES,
        };
        Self { looked: Instant::now(), n_missed: 0, pause: shortest, shortest }
    }

    /// The mean time between misses since the last call, or twice the last pause if there were none. `n_missed` is the
    /// number of all misses so far.
    pub(super) fn pause(&mut self, now: Instant, n_missed: u64) -> Duration {
        let elapsed = now.saturating_duration_since(self.looked);
        // Woken early, by something else.
        if elapsed < self.shortest {
            return self.pause;
        }
        let n_new = u32::try_from(n_missed.saturating_sub(self.n_missed)).unwrap_or(u32::MAX);
        (self.looked, self.n_missed) = (now, n_missed);
        self.pause = elapsed.checked_div(n_new).unwrap_or(self.pause.saturating_mul(2)).max(self.shortest);
        self.pause
    }
}

/// Measures how fast the rings fill.
#[derive(Debug)]
pub(super) struct Pace {
    looked: Instant,
    /// Total bytes produced, by ring.
    produced: Vec<u64>,
    pause: Duration,
    /// The requested maximum.
    poll: Duration,
}

impl Pace {
    pub(super) fn new(poll: Duration) -> Self {
        let poll = poll.max(SHORTEST);
        Self { looked: Instant::now(), produced: Vec::new(), pause: poll, poll }
    }

    /// How long the busiest ring takes to fill to [`HOT_BYTES`] at its present rate. `produced` yields each ring's
    /// total bytes.
    pub(super) fn pause(&mut self, now: Instant, produced: impl Iterator<Item = u64>) -> Duration {
        let elapsed = now.saturating_duration_since(self.looked);
        // Too short to determine a rate.
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

    /// Check that the reader comes more often the faster the fastest ring fills, within limits, and that calls in quick
    /// succession change nothing.
    #[test]
    fn faster_rings_are_read_more_often() {
        const POLL: Duration = Duration::from_millis(100);
        let mut pace = Pace::new(POLL);
        let start = pace.looked;
        let at = |ms| start + Duration::from_millis(ms);
        let mut pause = |ms, produced: [u64; 2]| pace.pause(at(ms), produced.into_iter());
        assert_eq!(pause(100, [0, 0]), POLL);
        // Half of `HOT_BYTES` in 20 ms.
        assert_eq!(pause(120, [1, 256 << 10]), Duration::from_millis(40));
        assert_eq!(pause(121, [1, 100 << 20]), Duration::from_millis(40));
        assert_eq!(pause(140, [1, 100 << 20]), SHORTEST);
        assert_eq!(pause(160, [2, 100 << 20]), POLL);
    }

    /// Check that the reader comes about as often as a walk misses a rule, and stays away longer and longer if none does.
    #[test]
    fn missed_rules_are_loaded_soon() {
        let mut pace = MissPace::new(Sampling::FrequencyHz(999));
        let start = pace.looked;
        let mut pause = |ms, n_missed| pace.pause(start + Duration::from_millis(ms), n_missed).as_millis();
        assert_eq!(pause(4, 3), 5);
        assert_eq!(pause(100, 3), 33);
        assert_eq!(pause(200, 4), 100);
        assert_eq!(pause(300, 104), 5);
        assert_eq!([305, 310, 315, 320].map(|ms| pause(ms, 104)), [10, 20, 40, 80]);
        assert_eq!((0..100).map(|n| pause(400 + n * 10, 104)).max(), Some(u128::from(u64::MAX) * 1000 + 999));
        assert_eq!(pause(2000, 105), 610);
        assert_eq!(MissPace::new(Sampling::FrequencyHz(19)).pause.as_millis(), 52);
    }
}
