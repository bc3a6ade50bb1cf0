//! The agent's main loop: recordings, intervals, reloads.

use super::analyst::{Analyst, Output, Sent, Span};
use super::compaction::{Compaction, Outcome};
use super::config::Config;
use super::cost::Meter;
use super::counted::{Balance, Ticks};
use super::effort::{Effort, Governor, Used};
use super::metrics::Metrics;
use super::push::{Collector, Pusher};
use super::server::{self, Order};
use super::session::{Printed, Session, notify, print_failure};
use super::spool::Spool;
use super::store::{Size, Store};
use crate::exit::DONE;
use crate::live::Part;
use crate::output::print_message;
use crate::tables::Table;
use crate::values::mode_name;
use anyhow::bail;
use fpprof_collector::Request;
use fpprof_recording::Recording;
use fpprof_recording::model::Meta;
use fpprof_reports::parquet::counters::{self, Counter, Counters};
use fpprof_reports::profile::request;
use sd_notify::NotifyState;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often systemd's watchdog is notified.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Key in [`Agent::failing`]: old files could not be removed.
const REMOVING: &str = "removing";
/// Key in [`Agent::failing`]: files that were merged could not be removed.
const CLEANING: &str = "cleaning";
/// Key in [`Agent::failing`]: requests to the collector could not be spooled.
const SPOOLING: &str = "spooling";

/// The agent's state across recordings.
struct Agent<'a> {
    path: Option<&'a Path>,
    settings: Settings,
    /// The settings before the last reload, until the new ones have recorded an interval.
    previous: Option<Settings>,
    governor: Governor,
    analyst: Analyst,
    metrics: Arc<Metrics>,
    pusher: Pusher,
    orders: Receiver<Order>,
    order: Sender<Order>,
    printed: Printed,
    /// Operations that failed last time, and whose failure was printed.
    failing: BTreeSet<&'static str>,
    ended: Option<Instant>,
}

/// A configuration and what was opened for it.
struct Settings {
    config: Config,
    request: Request,
    store: Store,
    compaction: Compaction,
    collector: Option<Collector>,
}

impl Settings {
    fn new(config: Config) -> anyhow::Result<Self> {
        let store = Store::open(&config.store, &fpprof_collector::host().name)?;
        let collector = Collector::new(&config, &store)?;
        let compaction = Compaction::new(&store);
        Ok(Self { request: config.request()?, store, compaction, collector, config })
    }

    /// The strategies to send of each interval.
    fn sent(&self) -> Sent {
        match (&self.collector, self.config.push.all_strategies) {
            (None, _) => Sent::Nothing,
            (Some(_), false) => Sent::DefaultStrategy,
            (Some(_), true) => Sent::AllStrategies,
        }
    }

    /// The collector, or the size of what is left of an earlier one; says what waits and is not sent.
    fn to_send(&self) -> Result<Collector, Size> {
        let protocol = self.collector.as_ref().map(|_| self.config.push.protocol);
        let left = Spool::left(&self.store, protocol).unwrap_or_else(|error| {
            print_failure(&error, "what waits for a collector is not counted");
            None
        });
        if let Some((Size { files, .. }, samples)) = left {
            let dir = self.store.path().join("spool");
            let (whose, key) = match protocol {
                None => ("a collector", "push.url"),
                Some(_) => ("a collector of another protocol", "push.protocol"),
            };
            print_message(&format!(
                "fpprof: {samples} samples wait in {} for {whose}, in {files} files: set {key}, or remove these files",
                dir.display()
            ));
        }
        self.collector.clone().ok_or_else(|| left.map_or_else(Size::default, |(size, _)| size))
    }

    fn governor(&self) -> Governor {
        Governor::new(Effort { rate: self.config.rate, mode: self.request.mode }, self.config.limits)
    }
}

/// What to do after a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stop,
    Again,
}

/// State of a recording that is kept across intervals.
struct Counting {
    balance: Balance,
    meter: Meter,
    /// The pids of the processes that parse files.
    parsers: Vec<u32>,
    /// Intervals that ended. The first includes the cost of starting, and the last is short: neither is compared with
    /// the limits.
    n_intervals: u64,
    rate: u64,
}

/// The current interval.
struct Interval {
    start_unix_us: u64,
    since: Instant,
    ends: Instant,
}

/// Records until SIGINT or SIGTERM; returns the exit status.
///
/// # Errors
/// If recording fails, the store cannot be written, or the address is taken.
pub(crate) fn run(path: Option<&Path>, config: Config) -> anyhow::Result<u8> {
    let (order, orders) = channel();
    let metrics = Arc::new(Metrics::new());
    let settings = Settings::new(config)?;
    server::start(&settings.config.http, Arc::clone(&metrics), order.clone())?;
    let pusher = Pusher::start(Arc::clone(&metrics))?;
    pusher.send_to(settings.to_send());
    let mut agent = Agent {
        path,
        pusher,
        governor: settings.governor(),
        settings,
        previous: None,
        analyst: Analyst::default(),
        metrics,
        orders,
        order,
        printed: Printed::default(),
        failing: BTreeSet::new(),
        ended: None,
    };
    print_message(&format!("fpprof: {}", agent.settings.config.summary()?));
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
    notify(NotifyState::Stopping);
    agent.pusher.end();
    Ok(DONE)
}

impl Agent<'_> {
    /// Runs one recording until a stop, a reload or a step of effort.
    ///
    /// The recorder cannot change its rate or mode while it runs, so each change ends the recording and starts another;
    /// samples of the last, partial interval are stored too.
    fn record(&mut self) -> anyhow::Result<Next> {
        let effort = self.governor.effort();
        let session = Session::start(&self.settings.request, effort, self.order.clone(), &self.printed)?;
        if let Some(ended) = self.ended.take() {
            self.metrics.add_not_sampled(ended.elapsed());
        }
        self.metrics.set_effort(effort);
        let parsers = session.parsers();
        let (balance, meter) = (Balance::default(), Meter::new(&parsers));
        let mut counting = Counting { balance, meter, parsers, n_intervals: 0, rate: effort.rate };
        let mut interval = self.begin();
        let next = loop {
            notify(NotifyState::Watchdog);
            let left = interval.ends.saturating_duration_since(Instant::now());
            match self.orders.recv_timeout(left.min(ALIVE_EVERY)) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break Some(Next::Stop),
                Ok(Order::Reload) if self.reload() => break Some(Next::Again),
                Ok(Order::Reload) => {}
                // Nobody asked it to end.
                Ok(Order::Ended) => break None,
                Err(RecvTimeoutError::Timeout) if Instant::now() < interval.ends && !session.feed.is_filling_up() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let Some(part) = session.feed.take() else {
                        // There is no balance yet: the recorder has only just started.
                        interval.ends += self.settings.config.interval;
                        continue;
                    };
                    let ended = std::mem::replace(&mut interval, self.begin());
                    counting.parsers = session.parsers();
                    let used = self.close(part, &ended, &mut counting);
                    notify(NotifyState::Watchdog);
                    self.compact(&interval);
                    if used.is_some() {
                        // These settings work: no need to go back.
                        self.previous = None;
                    }
                    if used.is_some_and(|used| counting.n_intervals > 1 && self.steps(used)) {
                        break Some(Next::Again);
                    }
                }
            }
        };
        let ended = session.end();
        self.ended = Some(Instant::now());
        let (feed, _) = ended?;
        if let Some(part) = feed.take() {
            self.close(part, &interval, &mut counting);
        }
        match next {
            Some(Next::Again) => Ok(self.handle_orders()),
            Some(Next::Stop) => Ok(Next::Stop),
            None => bail!("the recorder has ended without being asked to"),
        }
    }

    /// Handles orders that arrived while a recording ended; `Ended` is always among them.
    fn handle_orders(&mut self) -> Next {
        let orders: Vec<Order> = self.orders.try_iter().collect();
        if orders.contains(&Order::Reload) {
            self.reload();
        }
        if orders.contains(&Order::Stop) { Next::Stop } else { Next::Again }
    }

    /// Begins an interval. Intervals end at multiples of their length since 1970, so that those of several machines
    /// coincide.
    fn begin(&self) -> Interval {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = Instant::now();
        let length = self.settings.config.interval;
        let length_ns = length.as_nanos().max(1);
        let left = length_ns - unix.as_nanos() % length_ns;
        let ends = since + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        self.metrics.interval_begins(length);
        Interval { start_unix_us: u64::try_from(unix.as_micros()).unwrap_or(0), since, ends }
    }

    /// Stores an interval and its counters; returns the agent's own cost, or `None` if there is no balance to read.
    fn close(&mut self, part: Part, interval: &Interval, counting: &mut Counting) -> Option<Used> {
        let Counting { balance, meter, parsers, n_intervals, rate } = counting;
        let span = Span {
            start_unix_us: interval.start_unix_us,
            duration: interval.since.elapsed(),
            inlines: self.settings.config.inlines,
            sent: self.settings.sent(),
            protocol: self.settings.config.push.protocol,
            labels: self.settings.config.labels().to_vec(),
        };
        let (meta, ticks) = counted(&part, balance)?;
        *n_intervals += 1;
        let mut rows = Vec::new();
        for (&event, ticks) in &ticks {
            let name = meta.events.get(usize::from(event)).map_or("", |event| &event.name);
            self.metrics.add_ticks(name, ticks);
            rows.extend(ticks.counters(name));
        }
        self.metrics.add_left_out(part.left_out);
        let recorded = ticks.values().fold(0, |sum: u64, ticks| sum.saturating_add(ticks.recorded));
        let discarded = self.store_stacks(part, recorded, span.clone());
        let stored = recorded.saturating_sub(discarded.values().sum());
        self.metrics.add_stored(stored);
        discarded.iter().for_each(|(cause, &samples)| self.metrics.add_discarded(cause, samples));
        let spent = meter.look(parsers);
        self.metrics.interval_ended(&spent);
        rows.push(counter("stored", "", stored));
        rows.extend(discarded.iter().map(|(cause, &samples)| counter("discarded", cause, samples)));
        rows.push(counter("cpu_ns", "", spent.cpu.as_nanos()));
        rows.push(counter("rss_bytes", "", spent.used.rss_bytes));
        rows.push(counter("rate_hz", "", *rate));
        self.store_counters(Counters {
            start_unix_us: span.start_unix_us,
            duration: span.duration,
            host: meta.host.name,
            counters: rows,
        });
        match self.settings.store.remove_old(SystemTime::now()) {
            Ok(size) => {
                self.failing.remove(REMOVING);
                self.metrics.set_store(size);
            }
            Err(error) => self.failed(REMOVING, &error, "old files stay"),
        }
        Some(spent.used)
    }

    /// Merges the files of an hour that was over when this interval began: what is still to be written began later.
    fn compact(&mut self, interval: &Interval) {
        match self.settings.compaction.clean(Instant::now()) {
            Ok(()) => _ = self.failing.remove(CLEANING),
            Err(error) => self.failed(CLEANING, &error, "files that were merged stay there"),
        }
        let Self { settings, analyst, .. } = self;
        if !settings.config.store.compact {
            return;
        }
        let until_us = i64::try_from(interval.start_unix_us).unwrap_or(i64::MAX);
        for (outcome, error) in settings.compaction.step(until_us, Instant::now(), |files| analyst.merge(files)) {
            self.metrics.add_compaction(outcome);
            // Only what failed is tried again, and would be reported again.
            let is_new = outcome != Outcome::Failed || self.failing.insert(outcome.name());
            if let (Some(error), true) = (error, is_new) {
                print_failure(&error, "its files are not merged");
            }
            if outcome == Outcome::Merged {
                self.failing.remove(Outcome::Failed.name());
            }
        }
    }

    /// Whether this cost changes the effort, which needs a new recording.
    fn steps(&mut self, used: Used) -> bool {
        let Some(step) = self.governor.note(used) else { return false };
        let Effort { rate, mode } = self.governor.effort();
        self.metrics.step(step);
        print_message(&format!(
            "fpprof: the agent took {:.2} % of the machine and {} MB; it goes on with {rate} Hz, {}",
            used.cpu_percent,
            used.rss_bytes / 1_000_000,
            mode_name(mode)
        ));
        true
    }

    /// Unwinds and stores the samples of an interval; returns the number of discarded samples by cause.
    ///
    /// `recorded` comes from the balance, `part.samples` from the blocks in memory: samples in neither the part nor its
    /// left-out blocks are discarded as `unknown`.
    fn store_stacks(&mut self, part: Part, recorded: u64, span: Span) -> BTreeMap<&'static str, u64> {
        let (samples, left_out) = (part.samples, part.samples_left_out);
        let mut discarded = BTreeMap::from([
            ("no_room", left_out),
            ("unknown", recorded.saturating_sub(samples).saturating_sub(left_out)),
        ]);
        if samples > 0 {
            let start_unix_us = span.start_unix_us;
            match self.analyst.analyse(part, span) {
                Ok(Output { analysed, table, requests }) => {
                    let readable = analysed.samples.min(samples);
                    discarded.insert("damaged", samples.saturating_sub(readable));
                    self.metrics.add_stacks(&analysed);
                    if !self.write(Table::Stacks, start_unix_us, &table) {
                        discarded.insert("not_written", readable);
                    }
                    self.spool(start_unix_us, &requests);
                }
                Err(error) => {
                    print_failure(&error, &format!("{samples} samples are not stored"));
                    discarded.insert("not_unwound", samples);
                }
            }
        }
        discarded.retain(|_, &mut samples| samples > 0);
        discarded
    }

    /// Adds requests to the spool.
    fn spool(&mut self, start_unix_us: u64, requests: &[request::Request]) {
        let Some(collector) = self.settings.collector.as_ref().filter(|_| !requests.is_empty()) else { return };
        let added = collector.spool.add(start_unix_us, requests);
        for (outcome, samples) in [("no_room", added.removed), ("not_written", added.not_written)] {
            if samples > 0 {
                self.metrics.add_pushed(outcome, samples);
            }
        }
        match added.error {
            None => _ = self.failing.remove(SPOOLING),
            Some(error) => {
                self.failed(SPOOLING, &anyhow::Error::msg(error), "what cannot wait is counted as not_written")
            }
        }
        self.pusher.look();
    }

    fn store_counters(&mut self, counters: Counters) {
        let mut table = Vec::new();
        match counters::write(&counters, &mut table) {
            Ok(()) => _ = self.write(Table::Counters, counters.start_unix_us, &table),
            Err(error) => {
                self.failed(Table::Counters.name(), &error.into(), "the counters of the interval are not stored")
            }
        }
    }

    fn write(&mut self, table: Table, start_unix_us: u64, bytes: &[u8]) -> bool {
        match self.settings.store.write(table, start_unix_us, bytes) {
            Ok(()) => {
                self.metrics.add_written(bytes.len());
                self.failing.remove(table.name());
                true
            }
            Err(error) => {
                self.failed(
                    table.name(),
                    &error,
                    "what cannot be stored is counted as discarded; the agent goes on trying",
                );
                false
            }
        }
    }

    /// Prints the first of several failures in a row; counts those of the store.
    fn failed(&mut self, doing: &'static str, error: &anyhow::Error, what: &str) {
        if doing != SPOOLING {
            self.metrics.store_failed();
        }
        if self.failing.insert(doing) {
            print_failure(error, what);
        }
    }

    /// Reads the configuration again; returns whether it changed. An invalid file changes nothing.
    fn reload(&mut self) -> bool {
        let settings = match Config::read(self.path).and_then(Settings::new) {
            Ok(settings) => settings,
            Err(error) => {
                print_failure(&error, "the configuration stays as it was");
                return false;
            }
        };
        if settings.config.http != self.settings.config.http {
            print_message("fpprof: [http] changes with the next start");
        }
        let summary = settings.config.summary().unwrap_or_default();
        print_message(&format!("fpprof: read the configuration again: {summary}"));
        self.governor = settings.governor();
        self.pusher.send_to(settings.to_send());
        // After two reloads in a row, only the settings before the first have recorded anything.
        let before = std::mem::replace(&mut self.settings, settings);
        self.previous.get_or_insert(before);
        true
    }

    /// Returns to the settings before the last reload, if recording with the new ones failed.
    fn restore_settings(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        let Some(previous) = self.previous.take() else { return Err(error) };
        print_failure(&error, "the previous configuration stays in effect");
        self.pusher.send_to(previous.to_send());
        self.settings = previous;
        self.governor = self.settings.governor();
        Ok(())
    }
}

/// The recorder's counters since the previous part, by event.
fn counted(part: &Part, balance: &mut Balance) -> Option<(Meta, BTreeMap<u16, Ticks>)> {
    let recording = Recording::open(Cursor::new(&part.balance)).ok()?;
    let cpus =
        recording.end().map(|end| &end.cpus).or_else(|| recording.checkpoint().map(|checkpoint| &checkpoint.cpus))?;
    Some((recording.meta().clone(), balance.note(cpus)))
}

fn counter(name: &'static str, cause: &str, value: impl TryInto<i64>) -> Counter {
    Counter { name, event: String::new(), cause: cause.to_owned(), value: value.try_into().unwrap_or(i64::MAX) }
}
