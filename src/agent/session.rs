//! One recording of the machine, into memory.

use super::effort::Effort;
use super::server::Order;
use crate::exit::error_chain;
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

/// A recording under way.
pub(super) struct Session {
    pub(super) feed: Feed,
    parser: Arc<dyn FileParser>,
    stop: Arc<StopFlag>,
    recorder: JoinHandle<Result<Outcome, Error>>,
}

/// What was said already: each choice of ours once, however often the agent starts again.
pub(super) type Said = Arc<Mutex<BTreeSet<String>>>;

impl Session {
    /// Starts to record. When the recorder ends by itself, `orders` says so.
    ///
    /// # Errors
    /// If processes or threads cannot be started. What the kernel refuses, [`Self::end`] says.
    pub(super) fn start(request: &Request, effort: Effort, orders: Sender<Order>, said: &Said) -> anyhow::Result<Self> {
        let parser = worker::parser(effort.mode)?;
        let request = Request {
            sampling: Sampling::FrequencyHz(effort.rate),
            mode: effort.mode,
            parser: Arc::clone(&parser),
            ..request.clone()
        };
        let stop = Arc::new(StopFlag::new().context("making a stop flag")?);
        let (sink, feed) = live::pair(None::<File>);
        let (said, its_stop) = (Arc::clone(said), Arc::clone(&stop));
        let recorder = std::thread::Builder::new().name("fpprof-recorder".to_owned()).spawn(move || {
            let mut is_ready = false;
            let mut hear = |update: Update<'_>| match update {
                Update::Fallback(fallback) => say_once(&said, fallback.to_string()),
                Update::Mode(choice) => say_once(&said, mode_choice(choice)),
                Update::Progress(_) if std::mem::replace(&mut is_ready, true) => {}
                Update::Progress(_) => notify(NotifyState::Ready),
            };
            let outcome = fpprof_collector::record(&request, sink, &its_stop, &mut hear);
            // Nobody hears it at the end.
            let _ = orders.send(Order::Ended);
            outcome
        })?;
        Ok(Self { feed, parser, stop, recorder })
    }

    /// The processes that parse files for the recorder.
    pub(super) fn parsers(&self) -> Vec<u32> {
        self.parser.pids()
    }

    /// Ends the recording; what is left of it is in the feed then.
    ///
    /// # Errors
    /// If nothing could be recorded.
    pub(super) fn end(self) -> anyhow::Result<(Feed, Outcome)> {
        self.stop.stop(nix::libc::SIGTERM);
        let outcome = self.recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((self.feed, outcome))
    }
}

/// Tells systemd; does nothing where none waits for it.
pub(super) fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

fn say_once(said: &Said, words: String) {
    if said.lock().unwrap_or_else(PoisonError::into_inner).insert(words.clone()) {
        print_message(&format!("fpprof: {words}"));
    }
}

/// Says why something failed, and what comes of it.
pub(super) fn print_failure(error: &anyhow::Error, what: &str) {
    print_message(&format!("fpprof: {}; {what}", error_chain(error)));
}
