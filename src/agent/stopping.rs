//! The end of the agent, within a limit of time.

use fpprof_collector::StopFlag;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long the agent may take to end, once it is ordered to.
const LIMIT: Duration = Duration::from_millis(1800);

/// Whether the agent is to end, and what it may still do.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    since: OnceLock<Instant>,
    recorder: Mutex<Option<Arc<StopFlag>>>,
}

impl Stopping {
    /// From now on the agent is to end. The recorder does so at once, while the main loop may still store an interval.
    pub(super) fn begin(&self, now: Instant) {
        self.since.get_or_init(|| now);
        if let Some(recorder) = &*self.recorder() {
            recorder.stop(nix::libc::SIGTERM);
        }
    }

    /// Has a recorder end with the agent.
    pub(super) fn follow(&self, recorder: &Arc<StopFlag>) {
        *self.recorder() = Some(Arc::clone(recorder));
        if self.is_ordered() {
            recorder.stop(nix::libc::SIGTERM);
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.since().is_some()
    }

    /// When the order came.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since.get().copied()
    }

    /// The time left; `None` if the agent is not to end.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        Some(LIMIT.saturating_sub(now.saturating_duration_since(self.since()?)))
    }

    fn recorder(&self) -> MutexGuard<'_, Option<Arc<StopFlag>>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a recorder is stopped whether it started before the order or after it, and that time runs from the first order.
    #[test]
    fn recorders_end_with_the_agent() {
        let flag = || Arc::new(StopFlag::new().expect("a descriptor"));
        let (stopping, before, after, now) = (Stopping::default(), flag(), flag(), Instant::now());
        stopping.follow(&before);
        assert_eq!((before.signal(), stopping.left(now)), (None, None));
        stopping.begin(now);
        stopping.begin(now + LIMIT);
        stopping.follow(&after);
        assert!(before.signal().is_some() && after.signal().is_some());
        assert_eq!(stopping.left(now + LIMIT / 4), Some(LIMIT / 4 * 3));
        assert_eq!(stopping.left(now + LIMIT * 2), Some(Duration::ZERO));
    }
}
