//! The agent's main loop: recordings, intervals, reloads.

use super::analyst::Sent;
use super::compaction::{Compaction, Outcome};
use super::config::{Config, Limits, Protocol};
use super::effort::{Effort, Governor, Step, Used};
use super::interval::{Counting, Interval, IntervalWriter, Options};
use super::metrics::Metrics;
use super::push::{Collector, Pusher};
use super::server::{self, Order, drop_capabilities};
use super::session::{Pause, Printed, Session, print_once};
use super::spool::Spool;
use super::stopping::Stopping;
use super::store::{ClockWatch, Size, Store, own_dir};
use super::systemd::notify;
use crate::debuginfod::{Background, Servers};
use crate::exit::{DONE, print_failure};
use crate::live::{Feed, Part};
use crate::output::print_message;
use crate::values::mode_name;
use anyhow::Context as _;
use fpprof_collector::{Request, keep_little_freed_memory};
use fpprof_reports::profile::request;
use sd_notify::NotifyState;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// How often systemd's watchdog is notified.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// The least length of an interval whose cost is compared with the limits: of a shorter one, most is that of its end.
const MEASURABLE: Duration = Duration::from_secs(5);

/// Key in [`Failures`](super::interval::Failures): old files could not be removed.
const REMOVING: &str = "removing";
/// Key in [`Failures`](super::interval::Failures): files that were merged could not be removed.
const CLEANING: &str = "cleaning";
/// Key in [`Failures`](super::interval::Failures): requests to the collector could not be spooled.
const SPOOLING: &str = "spooling";

/// The agent's state across recordings.
struct Agent<'a> {
    path: Option<&'a Path>,
    settings: Settings,
    /// The settings before the last reload, until the new ones have recorded an interval.
    previous: Option<Settings>,
    governor: Governor,
    writer: IntervalWriter,
    metrics: Arc<Metrics>,
    pusher: Pusher,
    orders: Receiver<Order>,
    order: Sender<Order>,
    printed: Printed,
    pause: Pause,
    last: Option<Last>,
    stopping: Arc<Stopping>,
    clock: ClockWatch,
    /// See [`Request::small_rule_table`].
    small_rule_table: bool,
}

/// A recording that runs.
struct Running {
    session: Session,
    interval: Interval,
    counting: Counting,
}

/// The last interval of a recording that has ended.
struct Last {
    part: Part,
    interval: Interval,
    counting: Counting,
}

/// A configuration and what was opened for it.
struct Settings {
    config: Config,
    request: Request,
    store: Store,
    compaction: Compaction,
    spool: Arc<Spool>,
    collector: Option<Collector>,
    debuginfod: Option<Arc<Background>>,
}

impl Settings {
    /// Opens what this configuration needs; what those before have open is used again if it is the same.
    fn new(config: Config, before: &[&Self], metrics: &Arc<Metrics>) -> anyhow::Result<Self> {
        let store = Store::open(&config.store, &fpprof_collector::host().name)?;
        let spool = match before.iter().map(|before| &before.spool).find(|spool| spool.is_in(&store)) {
            Some(spool) => Arc::clone(spool),
            None => Arc::new(Spool::open(&store)?),
        };
        let is_same =
            |before: &&Self| (&before.config.debuginfod, before.store.path()) == (&config.debuginfod, store.path());
        let debuginfod = match before.iter().copied().find(is_same) {
            Some(before) => before.debuginfod.clone(),
            None => debuginfod(&config, &store, metrics)?,
        };
        let collector = Collector::new(&config, &spool)?;
        let compaction = Compaction::new(&store);
        Ok(Self { request: config.request()?, store, compaction, spool, collector, debuginfod, config })
    }

    /// The strategies to send of each interval.
    fn sent(&self) -> Sent {
        match (&self.collector, self.config.push.all_strategies) {
            (None, _) => Sent::Nothing,
            (Some(_), _) if self.config.push.protocol == Protocol::S3 => Sent::Tables,
            (Some(_), false) => Sent::DefaultStrategy,
            (Some(_), true) => Sent::AllStrategies,
        }
    }

    /// Prints what waits and is not sent.
    fn print_waiting(&self) {
        let (Size { files, .. }, samples) = self.spool.of_others();
        if files > 0 {
            print_message(&format!(
                "fpprof: {samples} samples wait in {} for machines of other names, in {files} file{}: if this one was renamed, they are \
                 not sent, and removed when they are older than store.keep",
                self.spool.dir().display(),
                if files == 1 { "" } else { "s" }
            ));
        }
        let protocol = self.collector.as_ref().map(|_| self.config.push.protocol);
        let (Size { files, .. }, samples) = self.spool.left(protocol);
        if files == 0 {
            return;
        }
        let (whose, key) = match protocol {
            None => ("a collector", "push.url"),
            Some(_) => ("a collector of another protocol", "push.protocol"),
        };
        let plural = if files == 1 { "" } else { "s" };
        print_message(&format!(
            "fpprof: {samples} samples wait in {} for {whose}, in {files} file{plural}: set {key}, or they are removed when they are \
             older than store.keep",
            self.spool.dir().display()
        ));
    }

    fn governor(&self) -> Governor {
        Governor::new(Effort { rate: self.config.rate, mode: self.request.mode }, self.config.limits)
    }
}

/// What fetches missing debug information, if there are servers.
fn debuginfod(config: &Config, store: &Store, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<Background>>> {
    let (urls, max_bytes) = (&config.debuginfod.urls, config.debuginfod.max_size);
    if urls.is_empty() {
        return Ok(None);
    }
    let cache = store.path().join("debuginfod");
    own_dir(&cache).with_context(|| cache.display().to_string())?;
    let metrics = Arc::clone(metrics);
    let (background, fetching) = Background::new(Servers { urls, cache, max_bytes });
    std::thread::Builder::new().name("fpprof-debug".to_owned()).spawn(move || {
        // This thread parses what a server sends.
        drop_capabilities("the thread that fetches debug information");
        fetching.run(|outcome| metrics.add_debug_file(outcome));
    })?;
    Ok(Some(Arc::new(background)))
}

fn add_rings() -> Next {
    print_message("fpprof: a CPU has come online that has no ring buffer; recording goes on with one for it");
    Next::Again
}

/// Notifies systemd's watchdog, unless the recorder has not read since the last call: then it hangs.
fn notify_alive(feed: &Feed, n_reads: &mut u64) {
    let n_before = std::mem::replace(n_reads, feed.control().n_reads());
    if *n_reads != n_before {
        notify(NotifyState::Watchdog);
    }
}

/// What to do after a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stop,
    Again,
}

/// Records until SIGINT or SIGTERM; returns the exit status.
///
/// # Errors
/// If recording fails, the store cannot be written, or the address is taken.
pub(crate) fn run(path: Option<&Path>, config: Config) -> anyhow::Result<u8> {
    keep_little_freed_memory();
    let (order, orders) = channel();
    let metrics = Arc::new(Metrics::new());
    let settings = Settings::new(config, &[], &metrics)?;
    let stopping = Arc::new(Stopping::default());
    server::start(&settings.config.http, Arc::clone(&metrics), order.clone(), Arc::clone(&stopping))?;
    let pusher = Pusher::start(Arc::clone(&metrics))?;
    let pause = Pause::new(&metrics);
    let clock = ClockWatch::new(settings.store.newest());
    let mut agent = Agent {
        path,
        pusher,
        governor: settings.governor(),
        settings,
        previous: None,
        writer: IntervalWriter::new(Arc::clone(&metrics), Arc::clone(&stopping)),
        metrics,
        orders,
        order,
        printed: Printed::default(),
        pause,
        last: None,
        stopping,
        clock,
        small_rule_table: true,
    };
    print_message(&format!("fpprof: {}", agent.settings.config.summary()?));
    agent.connect();
    loop {
        match agent.record() {
            Ok(Next::Again) => {}
            Ok(Next::Stop) => break,
            Err(error) => {
                agent.restore_settings(error)?;
                if agent.handle_orders() == Next::Stop {
                    break;
                }
            }
        }
    }
    let now = Instant::now();
    agent.pusher.end(now + agent.stopping.left(now).unwrap_or_default());
    Ok(DONE)
}

impl Agent<'_> {
    /// Runs one recording until a stop, a reload or a step of effort.
    ///
    /// The recorder cannot change its rate or mode while it runs, so each change ends the recording and starts another;
    /// samples of the last, partial interval are stored too, when the next recording has started.
    fn record(&mut self) -> anyhow::Result<Next> {
        if self.stopping.is_ordered() {
            self.close_last();
            return Ok(Next::Stop);
        }
        let Running { session, mut interval, mut counting } = self.start()?;
        let mut n_reads = 0;
        let next = loop {
            notify_alive(&session.feed, &mut n_reads);
            let left = interval.ends.saturating_duration_since(Instant::now());
            match self.orders.recv_timeout(left.min(ALIVE_EVERY)) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break Some(Next::Stop),
                Ok(Order::Reload) if self.reload() => break Some(Next::Again),
                Ok(Order::Reload) => {}
                Ok(Order::EnlargeRuleTable) => break Some(self.enlarge_rule_table()),
                Ok(Order::AddRings) => break Some(add_rings()),
                Ok(Order::Ended) if self.stopping.is_ordered() => break Some(Next::Stop),
                // Nobody asked it to end.
                Ok(Order::Ended) => break None,
                Err(RecvTimeoutError::Timeout) if Instant::now() < interval.ends && !session.feed.is_filling_up() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let Some(part) = session.feed.take_flushed() else {
                        // There is no balance yet: the recorder has only just started.
                        interval.ends += self.settings.config.interval;
                        continue;
                    };
                    let ended = std::mem::replace(&mut interval, self.begin());
                    let used = self.close(part, &ended, &mut counting);
                    notify_alive(&session.feed, &mut n_reads);
                    if !self.stopping.is_ordered() {
                        self.compact(&interval);
                    }
                    // If these settings work, there is no need to go back.
                    if used.is_some()
                        && let Some(previous) = self.previous.take()
                    {
                        self.print_left_behind(&previous.spool);
                    }
                    // After a step of the clock an interval may be too short to compare its cost.
                    let is_long = ended.since.elapsed() >= MEASURABLE.min(self.settings.config.interval / 2);
                    if used.is_some_and(|used| is_long && counting.n_intervals > 1 && self.steps(used)) {
                        break Some(Next::Again);
                    }
                }
            }
        };
        // The recorder was stopped with the order, unless it began later.
        let ordered = self.stopping.since().filter(|since| *since > interval.since);
        let ended = ordered.unwrap_or_else(Instant::now);
        interval.ended = Some(ended);
        self.pause.begin(ended);
        match (session.end(), next) {
            (Ok(feed), _) => self.last = feed.take().map(|part| Last { part, interval, counting }),
            // It was to end anyway, by a stop or another reload. The settings that failed are not needed any more.
            (Err(error), Some(next)) if self.previous.is_some() => {
                print_failure(&error, "this is ignored, as the recording was ending");
                return Ok(if next == Next::Again { self.handle_orders() } else { next });
            }
            (Err(error), _) => return Err(error),
        }
        if next == Some(Next::Again) && self.handle_orders() == Next::Again {
            return Ok(Next::Again);
        }
        self.close_last();
        next.map(|_| Next::Stop).context("the recorder has ended without being asked to")
    }

    /// Starts a recording, and then stores the last interval of the one before: hostile files can make that take minutes.
    fn start(&mut self) -> anyhow::Result<Running> {
        let effort = self.governor.effort();
        let request = Request { small_rule_table: self.small_rule_table, ..self.settings.request.clone() };
        let (order, pause) = (self.order.clone(), self.pause.clone());
        let session = Session::start(&request, effort, order, &self.printed, pause, &self.stopping);
        let interval = self.begin();
        self.close_last();
        let session = session?;
        self.metrics.set_effort(effort);
        let counting = Counting::new(session.parser(), Some(effort.rate), &self.writer);
        Ok(Running { session, interval, counting })
    }

    /// Stores the last interval of a recording that has ended, unless that is done.
    fn close_last(&mut self) {
        if let Some(Last { part, interval, mut counting }) = self.last.take() {
            self.close(part, &interval, &mut counting);
        }
    }

    /// Gives recordings a large table of rules from the next on.
    fn enlarge_rule_table(&mut self) -> Next {
        self.small_rule_table = false;
        print_message(
            "fpprof: the call frame information of the programs here does not fit into 4 MB; recording goes on with 34 MB for it",
        );
        Next::Again
    }

    /// Handles orders that arrived while a recording ended; `Ended` is always among them.
    fn handle_orders(&mut self) -> Next {
        let orders: Vec<Order> = self.orders.try_iter().collect();
        if orders.contains(&Order::Reload) {
            self.reload();
        }
        if orders.contains(&Order::Stop) { Next::Stop } else { Next::Again }
    }

    /// Begins an interval, of the length that the configuration says now.
    fn begin(&self) -> Interval {
        let length = self.settings.config.interval;
        self.metrics.interval_begins(length);
        Interval::begin(length)
    }

    /// Stores an interval, and adds its requests to the spool; returns the agent's own cost, or `None` if there is no
    /// balance to read.
    fn close(&mut self, part: Part, interval: &Interval, counting: &mut Counting) -> Option<Used> {
        let Settings { config, store, .. } = &self.settings;
        let options = Options {
            store,
            inlines: config.inlines,
            sent: self.settings.sent(),
            protocol: config.push.protocol,
            labels: config.labels(),
        };
        let stored = self.writer.store(part, interval, counting, options)?;
        let now = self.clock.time(Instant::now(), SystemTime::now());
        self.spool(interval.start_unix_us, &stored.requests, now);
        if self.stopping.is_ordered() {
            return Some(stored.used);
        }
        match self.settings.store.remove_old(now) {
            Ok(size) => {
                self.writer.failures.works(REMOVING);
                self.metrics.set_store(size);
                if stored.bytes as u64 > self.settings.config.store.max_size {
                    let says =
                        "store.max-size is less than the file of one interval takes: no stacks stay in the store";
                    print_once(&self.printed, says.to_owned());
                }
            }
            Err(error) => self.store_failed(REMOVING, &error, "old files stay"),
        }
        Some(stored.used)
    }

    /// Merges the files of an hour that was over when this interval began: what is still to be written began later.
    fn compact(&mut self, interval: &Interval) {
        match self.settings.compaction.clean(Instant::now()) {
            Ok(()) => self.writer.failures.works(CLEANING),
            Err(error) => self.store_failed(CLEANING, &error, "merged files are not removed"),
        }
        let Self { settings, writer: IntervalWriter { analyst, failures, .. }, metrics, .. } = self;
        if !settings.config.store.compact {
            return;
        }
        let until_us = i64::try_from(interval.start_unix_us).unwrap_or(i64::MAX);
        for (outcome, error) in settings.compaction.step(until_us, Instant::now(), |files| analyst.merge(files)) {
            metrics.add_compaction(outcome);
            // Only what failed is tried again, and would be reported again.
            let is_new = outcome != Outcome::Failed || failures.begins(outcome.name());
            if let (Some(error), true) = (error, is_new) {
                print_failure(&error, "its files are not merged");
            }
            if outcome == Outcome::Merged {
                failures.works(Outcome::Failed.name());
            }
        }
    }

    /// Whether this cost changes the effort, which needs a new recording.
    fn steps(&mut self, used: Used) -> bool {
        let Some(step) = self.governor.note(used) else { return false };
        let Effort { rate, mode } = self.governor.effort();
        self.metrics.step(step);
        let Limits { cpu_percent, memory } = self.settings.config.limits;
        let change = match step {
            Step::Down => "reduced",
            Step::Up => "raised again",
            Step::Undone => {
                "restored, as reducing it saved little (the cost comes from processes that start, end and map files)"
            }
        };
        print_message(&format!(
            "fpprof: the agent took {:.2} % of all CPUs (limits.cpu-percent is {cpu_percent}) and {} MiB (limits.memory is {} MiB); \
             sampling is {change}: {rate} Hz, {}",
            used.cpu_percent,
            used.rss_bytes >> 20,
            memory >> 20,
            mode_name(mode)
        ));
        true
    }

    /// Sends, and fetches, by the current settings from now on.
    fn connect(&mut self) {
        self.writer.analyst.debuginfod = self.settings.debuginfod.clone();
        self.settings.print_waiting();
        self.metrics.set_spool(self.settings.spool.size());
        self.pusher.send_to(self.settings.collector.clone());
    }

    /// Adds requests to the spool, and removes what is older than the store keeps.
    fn spool(&mut self, start_unix_us: u64, requests: &[request::Request], now: Option<SystemTime>) {
        let Settings { spool, collector, config, .. } = &self.settings;
        let added = collector.as_ref().map(|collector| collector.add(start_unix_us, requests)).unwrap_or_default();
        let expired = now.map(|now| spool.expire(now, config.store.keep)).unwrap_or_default();
        self.metrics.set_spool(spool.size());
        if expired.requests > 0 {
            let dir = spool.dir().display();
            let says = format!("what waits in {dir} for longer than store.keep is removed, and counted as expired");
            print_once(&self.printed, says);
        }
        if added.removed > 0 {
            let dir = spool.dir().display();
            let says =
                format!("{dir} is full (push.max-spool): the oldest that waits is removed, and counted as no_room");
            print_once(&self.printed, says);
        }
        let outcomes = [("no_room", added.removed), ("not_written", added.not_written), ("expired", expired.samples)];
        for (outcome, samples) in outcomes {
            if samples > 0 {
                self.metrics.add_pushed(outcome, samples);
            }
        }
        let what = match added.not_written {
            0 => "what should be removed stays on the disk",
            _ => "profiles that cannot wait on the disk are counted as not_written",
        };
        match added.error.or(expired.error) {
            None => self.writer.failures.works(SPOOLING),
            Some(error) => self.writer.failures.failed(SPOOLING, &anyhow::Error::msg(error), what),
        }
        if !requests.is_empty() {
            self.pusher.look();
        }
    }

    /// Counts a failure of the store, and prints the first of several in a row.
    fn store_failed(&mut self, doing: &'static str, error: &anyhow::Error, what: &str) {
        self.metrics.store_failed();
        self.writer.failures.failed(doing, error, what);
    }

    /// Reads the configuration again, and what it names, such as certificates; returns whether it changed. An invalid file
    /// changes nothing.
    fn reload(&mut self) -> bool {
        let before: Vec<&Settings> = std::iter::once(&self.settings).chain(&self.previous).collect();
        let settings = match Config::read(self.path).and_then(|config| Settings::new(config, &before, &self.metrics)) {
            Ok(settings) => settings,
            Err(error) => {
                print_failure(&error, "the configuration stays as it was");
                return false;
            }
        };
        if settings.config == self.settings.config {
            print_message("fpprof: read the configuration again: it is unchanged");
            self.settings = settings;
            self.connect();
            return false;
        }
        if settings.config.http != self.settings.config.http {
            print_message("fpprof: [http] changes with the next start");
        }
        let summary = settings.config.summary().unwrap_or_default();
        print_message(&format!("fpprof: read the configuration again: {summary}"));
        self.governor = settings.governor();
        // After two reloads in a row, only the settings before the first have recorded anything.
        let before = std::mem::replace(&mut self.settings, settings);
        self.previous.get_or_insert(before);
        self.connect();
        true
    }

    /// Prints what waits in a spool that is not the one of the store any more.
    fn print_left_behind(&self, spool: &Spool) {
        let (Size { files, .. }, samples) = spool.left(None);
        if files > 0 && !spool.is_in(&self.settings.store) {
            print_message(&format!(
                "fpprof: {samples} samples wait in {}, in {files} file{}: they are sent only if store.path is changed back",
                spool.dir().display(),
                if files == 1 { "" } else { "s" }
            ));
        }
    }

    /// Returns to the settings before the last reload, if recording with the new ones failed.
    fn restore_settings(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        let Some(previous) = self.previous.take() else { return Err(error) };
        print_failure(&error, "the previous configuration stays in effect");
        self.settings = previous;
        self.connect();
        self.governor = self.settings.governor();
        Ok(())
    }
}
