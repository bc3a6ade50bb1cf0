//! The end of the agent, within a limit of time.

use fpprof_collector::StopFlag;
use fpprof_collector::parse::FileParser;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long the agent may take to end, once it is ordered to.
const LIMIT: Duration = Duration::from_millis(1800);
/// How long the recorder may parse files meanwhile: hostile ones can make that take seconds.
pub(super) const PARSING: Duration = Duration::from_millis(600);

/// Whether the agent is to end, and what it may still do.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    since: OnceLock<Instant>,
    recorder: Mutex<Option<Recorder>>,
}

/// A recorder that runs.
#[derive(Debug)]
struct Recorder {
    flag: Arc<StopFlag>,
    parser: Arc<dyn FileParser>,
}

impl Stopping {
    /// From now on the agent is to end. The recorder does so at once, while the main loop may still store an interval.
    pub(super) fn begin(&self, now: Instant) {
        self.since.get_or_init(|| now);
        if let Some(recorder) = &*self.recorder() {
            recorder.flag.stop(nix::libc::SIGTERM);
        }
    }

    /// Has the recorder end now, whatever it parses. To be called [`PARSING`] after [`Self::begin`].
    pub(super) fn stop_parsing(&self) {
        if let Some(recorder) = &*self.recorder() {
            recorder.parser.give_up();
        }
    }

    /// Has a recorder end with the agent.
    pub(super) fn follow(&self, flag: &Arc<StopFlag>, parser: &Arc<dyn FileParser>) {
        let recorder = Recorder { flag: Arc::clone(flag), parser: Arc::clone(parser) };
        *self.recorder() = Some(recorder);
        if self.is_ordered() {
            flag.stop(nix::libc::SIGTERM);
            parser.give_up();
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

    fn recorder(&self) -> MutexGuard<'_, Option<Recorder>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_collector::parse::ParseHere;

    /// Check that a recorder is stopped whether it started before the order or after it, and that time runs from the first order.
    #[test]
    fn recorders_end_with_the_agent() {
        let flag = || Arc::new(StopFlag::new().expect("a descriptor"));
        let parser: Arc<dyn FileParser> = Arc::new(ParseHere);
        let (stopping, before, after, now) = (Stopping::default(), flag(), flag(), Instant::now());
        stopping.follow(&before, &parser);
        assert_eq!((before.signal(), stopping.left(now)), (None, None));
        stopping.begin(now);
        stopping.begin(now + LIMIT);
        stopping.follow(&after, &parser);
        assert!(before.signal().is_some() && after.signal().is_some());
        assert_eq!(stopping.left(now + LIMIT / 4), Some(LIMIT / 4 * 3));
        assert_eq!(stopping.left(now + LIMIT * 2), Some(Duration::ZERO));
    }
}
