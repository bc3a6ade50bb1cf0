//! One recording of the machine into memory.

use super::effort::Effort;
use super::metrics::Metrics;
use super::server::Order;
use super::stopping::Stopping;
use super::systemd::notify;
use crate::live::{self, Feed};
use crate::output::print_message;
use crate::progress::mode_choice;
use crate::worker;
use anyhow::Context as _;
use fpprof_collector::parse::FileParser;
use fpprof_collector::{Error, Outcome, Request, StopFlag, Update};
use fpprof_recording::model::Sampling;
use sd_notify::NotifyState;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end of a recording waits for copies of deleted files: the agent ends within two seconds.
const SAVE_LIMIT: Duration = Duration::from_millis(500);

/// A running recording.
pub(super) struct Session {
    pub(super) feed: Feed,
    parser: Arc<dyn FileParser>,
    stop: Arc<StopFlag>,
    recorder: JoinHandle<Result<Outcome, Error>>,
}

/// Messages that were printed: each choice of the recorder is printed once, however often recording restarts.
pub(super) type Printed = Arc<Mutex<BTreeSet<String>>>;

/// Counts the time between two recordings.
#[derive(Clone)]
pub(super) struct Pause {
    /// When sampling ended, until it begins again.
    since: Arc<Mutex<Option<Instant>>>,
    metrics: Arc<Metrics>,
}

impl Pause {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self { since: Arc::default(), metrics: Arc::clone(metrics) }
    }

    /// Sampling ended at this time. A recording that fails before it samples does not end the pause.
    pub(super) fn begin(&self, now: Instant) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now);
    }

    /// Sampling began again, this long ago.
    fn end(&self, sampled: Duration) {
        if let Some(since) = self.since.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.metrics.add_not_sampled(since.elapsed().saturating_sub(sampled));
        }
    }
}

impl Session {
    /// Starts to record. When the recorder ends, [`Order::Ended`] is sent to `orders`.
    ///
    /// # Errors
    /// If processes or threads cannot be started. Errors of the kernel are returned by [`Self::end`].
    pub(super) fn start(
        request: &Request,
        effort: Effort,
        orders: Sender<Order>,
        printed: &Printed,
        pause: Pause,
        stopping: &Stopping,
    ) -> anyhow::Result<Self> {
        let parser = worker::parser(effort.mode)?;
        let (sink, feed) = live::pair(None::<File>);
        let request = Request {
            parts_control: Some(feed.control()),
            save_limit: Some(SAVE_LIMIT),
            sampling: Sampling::FrequencyHz(effort.rate),
            mode: effort.mode,
            parser: Arc::clone(&parser),
            ..request.clone()
        };
        let stop = Arc::new(StopFlag::new().context("making a stop flag")?);
        stopping.follow(&stop, &parser);
        let (printed, its_stop) = (Arc::clone(printed), Arc::clone(&stop));
        let recorder = std::thread::Builder::new().name("fpprof-recorder".to_owned()).spawn(move || {
            let (mut is_ready, mut has_room, mut has_rings) = (false, true, true);
            let mut on_update = |update: Update<'_>| match update {
                Update::Fallback(fallback) => print_once(&printed, fallback.to_string()),
                Update::Mode(choice) => print_once(&printed, mode_choice(choice)),
                Update::Progress(progress) => {
                    if !std::mem::replace(&mut is_ready, true) {
                        notify(NotifyState::Ready);
                        pause.end(progress.elapsed);
                    }
                    if request.small_rule_table && progress.rules_do_not_fit && std::mem::take(&mut has_room) {
                        let _ = orders.send(Order::EnlargeRuleTable);
                    }
                    if progress.lacks_rings && std::mem::take(&mut has_rings) {
                        let _ = orders.send(Order::AddRings);
                    }
                }
            };
            let outcome = fpprof_collector::record(&request, sink, &its_stop, &mut on_update);
            // While the agent ends, nobody receives it.
            let _ = orders.send(Order::Ended);
            outcome
        })?;
        Ok(Self { feed, parser, stop, recorder })
    }

    /// Parses files for the recorder.
    pub(super) fn parser(&self) -> Arc<dyn FileParser> {
        Arc::clone(&self.parser)
    }

    /// Ends the recording and prints what it says about itself; its last samples are then in the feed.
    ///
    /// # Errors
    /// If recording failed.
    pub(super) fn end(self) -> anyhow::Result<Feed> {
        self.stop.stop(nix::libc::SIGTERM);
        let outcome = self.recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        for note in &outcome.notes {
            print_message(&format!("fpprof: {note}"));
        }
        Ok(self.feed)
    }
}

/// Prints a message, unless it was printed before.
pub(super) fn print_once(printed: &Printed, message: String) {
    if printed.lock().unwrap_or_else(PoisonError::into_inner).insert(message.clone()) {
        print_message(&format!("fpprof: {message}"));
    }
}
