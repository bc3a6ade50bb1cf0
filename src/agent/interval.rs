//! Stores intervals: their stacks and their counters.

use super::analyst::{Analyst, Sent, Span};
use super::answer::{MAX_REQUESTS, Output};
use super::config::Protocol;
use super::cost::{Meter, Spent};
use super::counted::{Balance, Ticks};
use super::effort::Used;
use super::labels::LabelRule;
use super::metrics::{Metrics, NOT_WRITTEN};
use super::s3;
use super::stopping::Stopping;
use super::store::Store;
use crate::exit::print_failure;
use crate::live::Part;
use crate::output::print_message;
use crate::tables::Table;
use crate::worker::Owners;
use fpprof_collector::parse::FileParser;
use fpprof_collector::{return_freed_memory, unmap_code};
use fpprof_recording::Recording;
use fpprof_recording::model::Meta;
use fpprof_reports::parquet::counters::{self, Counter, Counters};
use fpprof_reports::profile::request::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Key in [`Failures`]: an interval had too many requests.
const SENDING: &str = "sending";

/// The current interval.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) start_unix_us: u64,
    pub(super) since: Instant,
    pub(super) ends: Instant,
    /// When it ended; `None` for just now.
    pub(super) ended: Option<Instant>,
}

/// State of a recording that is kept across intervals.
#[derive(Debug)]
pub(super) struct Counting {
    balance: Balance,
    meter: Meter,
    /// Parses files for the recorder.
    parser: Arc<dyn FileParser>,
    /// Intervals that ended. The first includes the cost of starting, and the last is short: neither is compared with
    /// the limits.
    pub(super) n_intervals: u64,
    /// Samples per second on each CPU; `None` if not every tick is the same time.
    rate: Option<u64>,
}

/// How intervals are analysed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options<'a> {
    pub(super) store: &'a Store,
    pub(super) inlines: bool,
    pub(super) sent: Sent,
    pub(super) protocol: Protocol,
    pub(super) labels: &'a [LabelRule],
}

/// A stored interval.
#[derive(Debug)]
pub(super) struct Stored {
    /// CPU time of the recorder and of unwinding.
    pub(super) cpu: Duration,
    /// The same in per cent, and memory.
    pub(super) used: Used,
    /// Bytes written to the store.
    pub(super) bytes: usize,
    /// Samples in the store by event.
    by_event: BTreeMap<String, u64>,
    /// Recorded samples that are not in the store, by cause.
    pub(super) discarded: BTreeMap<&'static str, u64>,
    /// What is to be sent.
    pub(super) requests: Vec<Request>,
    /// The owners of the files that were read.
    owners: Owners,
}

/// Writes intervals into a store, and counts what becomes of them.
#[derive(Debug)]
pub(super) struct IntervalWriter {
    pub(super) analyst: Analyst,
    pub(super) metrics: Arc<Metrics>,
    pub(super) failures: Failures,
}

/// Operations that failed last time, and whose failure was printed.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeSet<&'static str>);

impl Interval {
    /// Begins an interval. Intervals end at multiples of their length since 1970, so that those of several machines
    /// coincide.
    pub(super) fn begin(length: Duration) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = Instant::now();
        let length_ns = length.as_nanos().max(1);
        let left = length_ns - unix.as_nanos() % length_ns;
        let ends = since + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        Self { start_unix_us: u64::try_from(unix.as_micros()).unwrap_or(0), since, ends, ended: None }
    }
}

impl Counting {
    pub(super) fn new(parser: Arc<dyn FileParser>, rate: Option<u64>, writer: &IntervalWriter) -> Self {
        let meter = Meter::new(parser.cpu_time() + writer.analyst.cpu_time());
        Self { balance: Balance::default(), meter, parser, n_intervals: 0, rate }
    }
}

impl IntervalWriter {
    pub(super) fn new(metrics: Arc<Metrics>, stopping: Arc<Stopping>) -> Self {
        Self { analyst: Analyst::new(stopping), metrics, failures: Failures::default() }
    }

    /// Stores an interval and its counters; `None` if there is no balance to read.
    pub(super) fn store(
        &mut self,
        part: Part,
        interval: &Interval,
        counting: &mut Counting,
        options: Options<'_>,
    ) -> Option<Stored> {
        let Counting { balance, meter, parser, n_intervals, rate } = counting;
        let span = Span {
            start_unix_us: interval.start_unix_us,
            duration: interval.ended.unwrap_or_else(Instant::now).saturating_duration_since(interval.since),
            inlines: options.inlines,
            sent: options.sent,
            protocol: options.protocol,
            labels: options.labels.to_vec(),
        };
        let (start_unix_us, duration) = (span.start_unix_us, span.duration);
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
        // Before the process that analyses starts, so that not all are in memory at once.
        parser.end_idle();
        // Starting, and storing the interval before, needed other code than going on does.
        unmap_code();
        let mut stored = self.store_stacks(part, recorded, span, options);
        // The interval, its tables and requests were large for a moment.
        return_freed_memory();
        let n_stored = recorded.saturating_sub(stored.discarded.values().sum());
        self.metrics.add_stored(n_stored);
        stored.discarded.iter().for_each(|(cause, &samples)| self.metrics.add_discarded(cause, samples));
        let Spent { cpu, used } = meter.look(parser.cpu_time() + self.analyst.cpu_time(), &parser.pids());
        self.metrics.interval_ended(&Spent { cpu, used });
        (stored.cpu, stored.used) = (cpu, used);
        let names = ticks.keys().map(|&event| meta.events.get(usize::from(event)).map_or("", |event| &event.name));
        rows.extend(of_samples(&names.collect::<Vec<_>>(), n_stored, &stored));
        rows.push(counter("cpu_ns", "", cpu.as_nanos()));
        rows.push(counter("rss_bytes", "", used.rss_bytes));
        rows.extend(rate.map(|rate| counter("rate_hz", "", rate)));
        if let Some(owners) = stored.owners.limited() {
            self.metrics.add_interval_with_fewer_files(owners);
            rows.push(counter("fewer_files", owners, 1));
        }
        let counters = Counters { start_unix_us, duration, host: meta.host.name, counters: rows };
        self.store_counters(&counters, options, &mut stored);
        Some(stored)
    }

    /// Unwinds and stores the samples of an interval; its own cost is not yet known.
    ///
    /// `recorded` comes from the balance, `part.samples` from the blocks in memory: samples in neither the part nor its
    /// left-out blocks are discarded as `unknown`.
    fn store_stacks(&mut self, part: Part, recorded: u64, span: Span, options: Options<'_>) -> Stored {
        let (samples, left_out) = (part.samples, part.samples_left_out);
        let mut discarded = BTreeMap::from([
            ("no_room", left_out),
            ("unknown", recorded.saturating_sub(samples).saturating_sub(left_out)),
        ]);
        let used = Used { cpu_percent: 0.0, rss_bytes: 0 };
        let mut stored = Stored {
            cpu: Duration::ZERO,
            used,
            bytes: 0,
            by_event: BTreeMap::new(),
            discarded: BTreeMap::new(),
            requests: Vec::new(),
            owners: Owners::All,
        };
        if samples > 0 {
            let start_unix_us = span.start_unix_us;
            match self.analyst.analyse(part, span) {
                Ok(Output { analysed, table, requests, owners }) => {
                    stored.owners = owners;
                    let readable = analysed.samples.values().fold(0, |sum: u64, &n| sum.saturating_add(n)).min(samples);
                    discarded.insert("damaged", samples.saturating_sub(readable));
                    self.metrics.add_stacks(&analysed);
                    self.note_not_sent(analysed.not_sent);
                    if self.write(options.store, Table::Stacks, start_unix_us, &table) {
                        stored.bytes = table.len();
                        stored.by_event.clone_from(&analysed.samples);
                    } else {
                        discarded.insert(NOT_WRITTEN, readable);
                    }
                    // A bucket gets the table alone: a request names its object, and hostile files may have taken over the
                    // process.
                    stored.requests = if options.sent == Sent::Tables { Vec::new() } else { requests };
                    stored.requests.extend(self.object(options, Table::Stacks, start_unix_us, readable, &table));
                }
                Err(error) => {
                    print_failure(&error, &format!("{samples} samples are not stored"));
                    discarded.insert("not_unwound", samples);
                }
            }
        }
        discarded.retain(|_, &mut samples| samples > 0);
        Stored { discarded, ..stored }
    }

    /// Counts the samples of requests beyond the limit, and prints the first of several times in a row.
    fn note_not_sent(&mut self, samples: u64) {
        if samples == 0 {
            return self.failures.works(SENDING);
        }
        self.metrics.add_pushed("too_many", samples);
        let error = anyhow::anyhow!("an interval would be sent as more than {MAX_REQUESTS} requests");
        self.failures.failed(SENDING, &error, "the rest is not sent, and counted as too_many");
    }

    fn store_counters(&mut self, counters: &Counters, options: Options<'_>, stored: &mut Stored) {
        let mut table = Vec::new();
        if let Err(error) = counters::write(counters, &mut table) {
            let what = "the counters of the interval are not stored";
            self.failures.failed(Table::Counters.name(), &error.into(), what);
            self.metrics.store_failed();
            return;
        }
        if self.write(options.store, Table::Counters, counters.start_unix_us, &table) {
            stored.bytes += table.len();
        }
        stored.requests.extend(self.object(options, Table::Counters, counters.start_unix_us, 0, &table));
    }

    /// The request that puts a table into the bucket, if there is one.
    fn object(
        &mut self,
        options: Options<'_>,
        table: Table,
        start_unix_us: u64,
        samples: u64,
        bytes: &[u8],
    ) -> Option<Request> {
        let is_sent = options.sent == Sent::Tables;
        let request = is_sent.then(|| s3::request(table, start_unix_us, options.store.host(), samples, bytes))?;
        request.inspect_err(|error| print_failure(error, "a table is not put into the bucket")).ok()
    }

    fn write(&mut self, store: &Store, table: Table, start_unix_us: u64, bytes: &[u8]) -> bool {
        match store.write(table, start_unix_us, bytes) {
            Ok(()) => {
                self.metrics.add_written(bytes.len());
                if self.failures.0.contains(table.name()) {
                    print_message(&format!("fpprof: {} are stored again", table.name()));
                }
                self.failures.works(table.name());
                true
            }
            Err(error) => {
                self.metrics.store_failed();
                let what = "what cannot be stored is counted as discarded; recording goes on";
                self.failures.failed(table.name(), &error, what);
                false
            }
        }
    }
}

impl Failures {
    /// Prints the first of several failures in a row.
    pub(super) fn failed(&mut self, doing: &'static str, error: &anyhow::Error, what: &str) {
        if self.begins(doing) {
            print_failure(error, what);
        }
    }

    /// Records a failure; returns whether it is the first in a row.
    pub(super) fn begins(&mut self, doing: &'static str) -> bool {
        self.0.insert(doing)
    }

    pub(super) fn works(&mut self, doing: &str) {
        self.0.remove(doing);
    }
}

/// What became of the recorded samples of these events. What is discarded is not known by event if there are several.
fn of_samples(events: &[&str], n_stored: u64, stored: &Stored) -> Vec<Counter> {
    let of = |event: &str, counter| Counter { event: event.to_owned(), ..counter };
    let sole = if let [event] = events { event } else { "" };
    let discarded = stored.discarded.iter().map(|(cause, &samples)| of(sole, counter("discarded", cause, samples)));
    // Not by what a process says that hostile files may have taken over, if that is more than was recorded.
    let by_event: Vec<_> =
        events.iter().map(|&event| (event, stored.by_event.get(event).copied().unwrap_or(0))).collect();
    let is_known = by_event.iter().try_fold(0_u64, |sum, (_, n)| sum.checked_add(*n)) == Some(n_stored);
    let by_event = if is_known { by_event } else { vec![(sole, n_stored)] };
    by_event.into_iter().map(|(event, n)| of(event, counter("stored", "", n))).chain(discarded).collect()
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
