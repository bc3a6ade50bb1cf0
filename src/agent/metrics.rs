//! The agent's metrics, for Prometheus.
//!
//! # Sources
//! The text format `OpenMetrics` 1.0; <https://prometheus.io/docs/practices/naming/>

use super::answer::Analysed;
use super::compaction::Outcome;
use super::cost::Spent;
use super::counted::Ticks;
use super::effort::{Effort, Step};
use super::store::Size;
use crate::worker::Owners;
use fpprof_recording::model::LossCause;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

/// All metrics, and the state of the health check.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    fired: Counters,
    recorded: Counters,
    lost: Counters,
    skipped: Counters,
    dropped: Counters,
    unread: Family<Labels, Gauge>,
    stored: Counter,
    discarded: Counters,
    stacks: Counters,
    misses: Counters,
    labels_left_out: Counters,
    intervals: Counter,
    fewer_files: Counters,
    steps: Counters,
    rate: Gauge<i64, AtomicI64>,
    cpu: Counter<f64, AtomicU64>,
    rss: Gauge<i64, AtomicI64>,
    store_bytes: Gauge<i64, AtomicI64>,
    store_files: Gauge<i64, AtomicI64>,
    store_errors: Counter,
    written_bytes: Counter,
    not_sampled: Counter<f64, AtomicU64>,
    pushed: Counters,
    push_retries: Counters,
    spool_bytes: Gauge<i64, AtomicI64>,
    spool_files: Gauge<i64, AtomicI64>,
    left_out: Counter,
    compactions: Counters,
    debug_files: Counters,
    /// Label sets that came from workers, limited to [`MAX_KNOWN`].
    known: Mutex<BTreeSet<Labels>>,
    /// Deadline for the end of the current interval; the agent is unhealthy after it.
    due: Mutex<Instant>,
}

/// Time allowed for analysing and storing an interval after its end.
const PATIENCE: Duration = Duration::from_secs(150);

/// What becomes of samples that are to be sent.
const PUSH_OUTCOMES: [&str; 8] =
    ["accepted", "partly_refused", "refused", "unreadable", "too_many", "no_room", "not_written", "expired"];
/// Why recorded samples are not stored.
const DISCARD_CAUSES: [&str; 5] = ["no_room", "unknown", "damaged", NOT_WRITTEN, "not_unwound"];
/// Of samples: the store could not be written.
pub(crate) const NOT_WRITTEN: &str = "not_written";

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect()
}

/// The most label sets accepted from workers: some strategies, each with some dozens of ends.
const MAX_KNOWN: usize = 1000;

/// Whether all values are as short as this program's own names.
fn is_short(labels: &Labels) -> bool {
    labels.iter().all(|(_, value)| value.len() <= 64)
}

impl Metrics {
    #[rustfmt::skip]
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("fpprof");
        let all = Self {
            fired: Family::default(), recorded: Family::default(), lost: Family::default(),
            skipped: Family::default(), dropped: Family::default(), unread: Family::default(),
            stored: Counter::default(), discarded: Family::default(), stacks: Family::default(),
            misses: Family::default(), labels_left_out: Family::default(), intervals: Counter::default(), fewer_files: Family::default(), steps: Family::default(), rate: Gauge::default(),
            cpu: Counter::default(), rss: Gauge::default(), store_bytes: Gauge::default(), store_files: Gauge::default(),
            store_errors: Counter::default(), written_bytes: Counter::default(), not_sampled: Counter::default(),
            left_out: Counter::default(), compactions: Family::default(), pushed: Family::default(), push_retries: Family::default(),
            debug_files: Family::default(), spool_bytes: Gauge::default(), spool_files: Gauge::default(), known: Mutex::default(),
            due: Mutex::new(Instant::now() + PATIENCE), registry: Registry::default(),
        };
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "This program", version);
        registry.register("ticks_fired", "Ticks of the sampling event", all.fired.clone());
        registry.register("samples_recorded", "Ticks that became samples", all.recorded.clone());
        registry.register("samples_lost", "Ticks without a sample, by cause", all.lost.clone());
        registry.register("ticks_skipped", "Ticks in what is not profiled", all.skipped.clone());
        registry.register("samples_dropped", "Samples that could not be kept until the end of an interval", all.dropped.clone());
        registry.register("samples_unread", "Ticks whose samples were not read yet at the end of the last interval", all.unread.clone());
        registry.register("blocks_dropped", "Blocks of samples, process events or bytes of files for which there was no room in memory", all.left_out.clone());
        registry.register("samples_stored", "Samples in the store", all.stored.clone());
        registry.register("samples_discarded", "Recorded samples that are not in the store, by cause", all.discarded.clone());
        registry.register("stacks", "Stacks by strategy, and by how they end", all.stacks.clone());
        registry.register("kernel_walk_misses", "Walks in the kernel that were given up, by reason: the stack was copied", all.misses.clone());
        registry.register("labels_left_out", "Samples whose label was left out, by label and cause", all.labels_left_out.clone());
        registry.register("intervals", "Intervals that ended", all.intervals.clone());
        registry.register("intervals_with_fewer_files", "Intervals analysed with the ELF files of these owners only, because analysis with all failed or took too long", all.fewer_files.clone());
        registry.register("effort_steps", "Steps to stay below the limits (down) and back (up)", all.steps.clone());
        registry.register("sampling_rate_hertz", "Samples per second on each CPU", all.rate.clone());
        registry.register_with_unit("agent_cpu", "CPU time of the agent's processes", Unit::Seconds, all.cpu.clone());
        registry.register_with_unit("agent_resident_memory", "Resident memory of the agent's processes", Unit::Bytes, all.rss.clone());
        registry.register_with_unit("store", "Size of the store", Unit::Bytes, all.store_bytes.clone());
        registry.register("store_files", "Files of the store", all.store_files.clone());
        registry.register("store_errors", "Failures to write or remove files of the store", all.store_errors.clone());
        registry.register_with_unit("store_written", "Bytes written to the store", Unit::Bytes, all.written_bytes.clone());
        registry.register("store_compactions", "Hours by what became of their files; for shared, days", all.compactions.clone());
        registry.register_with_unit("not_sampled", "Time between recordings, while the agent starts again", Unit::Seconds, all.not_sampled.clone());
        registry.register("pushed_samples", "Samples that were to be sent, by outcome", all.pushed.clone());
        registry.register("push_retries", "Requests that were not accepted and are sent again, by status of the answer", all.push_retries.clone());
        registry.register("debug_files", "Requests of missing debug information, by outcome", all.debug_files.clone());
        registry.register_with_unit("spool", "Size of what waits to be sent", Unit::Bytes, all.spool_bytes.clone());
        registry.register("spool_files", "Requests that wait to be sent", all.spool_files.clone());
        let all = Self { registry, ..all };
        all.begin();
        all
    }

    /// Begins series at zero whose labels are known: a change from nothing to a first value is none to Prometheus.
    fn begin(&self) {
        let of_outcome = |name| labels([("outcome", name)]);
        let begin = |family: &Counters, labels: Labels| drop(family.get_or_create(&labels));
        PUSH_OUTCOMES.into_iter().for_each(|name| begin(&self.pushed, of_outcome(name)));
        Outcome::ALL.into_iter().for_each(|outcome| begin(&self.compactions, of_outcome(outcome.name())));
        DISCARD_CAUSES.into_iter().for_each(|cause| begin(&self.discarded, labels([("cause", cause)])));
        ["down", "up"].into_iter().for_each(|direction| begin(&self.steps, labels([("direction", direction)])));
        let owners = [Owners::Root, Owners::Nobody].into_iter().filter_map(Owners::limited);
        owners.for_each(|owners| begin(&self.fewer_files, labels([("owners", owners)])));
    }

    /// Encodes all metrics as `OpenMetrics` text.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub(super) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Whether the last interval ended in time.
    pub(super) fn is_healthy(&self) -> bool {
        Instant::now() < *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the deadline for an interval of this length that begins now.
    pub(super) fn interval_begins(&self, interval: Duration) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + interval + PATIENCE;
    }

    pub(super) fn add_ticks(&self, event: &str, ticks: &Ticks) {
        let of_event = labels([("event", event)]);
        self.fired.get_or_create(&of_event).inc_by(ticks.fired);
        self.recorded.get_or_create(&of_event).inc_by(ticks.recorded);
        self.skipped.get_or_create(&of_event).inc_by(ticks.skipped);
        self.dropped.get_or_create(&of_event).inc_by(ticks.dropped);
        self.unread.get_or_create(&of_event).inc_by(ticks.unread());
        for cause in [LossCause::RingFull, LossCause::Throttled] {
            drop(self.lost.get_or_create(&labels([("event", event), ("cause", cause.name())])));
        }
        for (cause, &n) in &ticks.lost {
            self.lost.get_or_create(&labels([("event", event), ("cause", cause)])).inc_by(n);
        }
    }

    pub(super) fn add_stacks(&self, analysed: &Analysed) {
        for (strategy, counts) in &analysed.stacks {
            for count in counts {
                let labels = labels([("strategy", strategy), ("stack", &count.stack), ("end", &count.end)]);
                self.add(&self.stacks, labels, count.samples);
            }
        }
        for (reason, &n) in &analysed.misses {
            self.add(&self.misses, labels([("reason", reason)]), n);
        }
        for (label, causes) in &analysed.labels_left_out {
            for (cause, &samples) in causes {
                self.add(&self.labels_left_out, labels([("label", label), ("cause", cause)]), samples);
            }
        }
    }

    /// Adds a count from a worker. Hostile files may have taken the worker over, so the number and length of its labels
    /// are limited.
    fn add(&self, counters: &Counters, labels: Labels, n: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&labels) || (known.len() < MAX_KNOWN && is_short(&labels)) {
            counters.get_or_create(&labels).inc_by(n);
            known.insert(labels);
        }
    }

    pub(super) fn add_left_out(&self, blocks: u64) {
        self.left_out.inc_by(blocks);
    }

    pub(super) fn add_interval_with_fewer_files(&self, owners: &str) {
        self.fewer_files.get_or_create(&labels([("owners", owners)])).inc();
    }

    pub(super) fn add_stored(&self, samples: u64) {
        self.stored.inc_by(samples);
    }

    pub(super) fn add_discarded(&self, cause: &str, samples: u64) {
        self.discarded.get_or_create(&labels([("cause", cause)])).inc_by(samples);
    }

    pub(super) fn add_written(&self, bytes: usize) {
        self.written_bytes.inc_by(bytes as u64);
    }

    pub(super) fn add_compaction(&self, outcome: Outcome) {
        self.compactions.get_or_create(&labels([("outcome", outcome.name())])).inc();
    }

    pub(super) fn store_failed(&self) {
        self.store_errors.inc();
    }

    pub(super) fn set_store(&self, size: Size) {
        self.store_bytes.set(i64::try_from(size.bytes).unwrap_or(i64::MAX));
        self.store_files.set(i64::try_from(size.files).unwrap_or(i64::MAX));
    }

    pub(super) fn add_debug_file(&self, outcome: &str) {
        self.debug_files.get_or_create(&labels([("outcome", outcome)])).inc();
    }

    pub(super) fn add_pushed(&self, outcome: &str, samples: u64) {
        self.pushed.get_or_create(&labels([("outcome", outcome)])).inc_by(samples);
    }

    /// Counts a request that is sent again after an answer with this status, or without an answer.
    pub(super) fn add_push_retry(&self, status: Option<u16>) {
        let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.push_retries.get_or_create(&labels([("status", &status)])).inc();
    }

    pub(super) fn set_spool(&self, size: Size) {
        self.spool_bytes.set(i64::try_from(size.bytes).unwrap_or(i64::MAX));
        self.spool_files.set(i64::try_from(size.files).unwrap_or(i64::MAX));
    }

    pub(super) fn interval_ended(&self, spent: &Spent) {
        self.intervals.inc();
        self.cpu.inc_by(spent.cpu.as_secs_f64());
        self.rss.set(i64::try_from(spent.used.rss_bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn step(&self, step: Step) {
        let direction = match step {
            Step::Down => "down",
            Step::Up | Step::Undone => "up",
        };
        self.steps.get_or_create(&labels([("direction", direction)])).inc();
    }

    pub(super) fn set_effort(&self, effort: Effort) {
        self.rate.set(i64::try_from(effort.rate).unwrap_or(i64::MAX));
    }

    pub(super) fn add_not_sampled(&self, time: Duration) {
        self.not_sampled.inc_by(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Check that names follow the conventions, and that counts appear in the text.
    #[test]
    fn metrics_are_text() {
        let metrics = Metrics::new();
        let lost = BTreeMap::from([("ring_full", 2)]);
        metrics.add_ticks("cpu-clock", &Ticks { fired: 10, recorded: 7, lost, skipped: 0, dropped: 0 });
        metrics.add_discarded("not_written", 3);
        let text = metrics.text().expect("text");
        for line in [
            "fpprof_ticks_fired_total{event=\"cpu-clock\"} 10",
            "fpprof_samples_lost_total{event=\"cpu-clock\",cause=\"ring_full\"} 2",
            "fpprof_samples_unread{event=\"cpu-clock\"} 1",
            "fpprof_samples_discarded_total{cause=\"not_written\"} 3",
            "fpprof_agent_cpu_seconds_total 0.0",
            "fpprof_store_bytes 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(metrics.is_healthy());
    }

    /// Check that a first loss, step or refusal is a change from zero.
    #[test]
    fn counters_begin_at_zero() {
        let metrics = Metrics::new();
        metrics.add_ticks("cpu-clock", &Ticks::default());
        let text = metrics.text().expect("text");
        for line in [
            "fpprof_samples_lost_total{event=\"cpu-clock\",cause=\"throttled\"} 0",
            "fpprof_samples_discarded_total{cause=\"not_unwound\"} 0",
            "fpprof_effort_steps_total{direction=\"down\"} 0",
            "fpprof_pushed_samples_total{outcome=\"expired\"} 0",
            "fpprof_store_compactions_total{outcome=\"damaged\"} 0",
            "fpprof_intervals_with_fewer_files_total{owners=\"root\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    /// Check that the shipped alerts use only existing metrics.
    #[test]
    fn alerts_are_on_metrics() {
        let metrics = Metrics::new();
        let of_event = labels([("event", "cpu-clock")]);
        metrics.add_ticks("cpu-clock", &Ticks { lost: BTreeMap::from([("ring_full", 1)]), ..Ticks::default() });
        let families = [
            &metrics.compactions,
            &metrics.discarded,
            &metrics.fewer_files,
            &metrics.stacks,
            &metrics.steps,
            &metrics.pushed,
            &metrics.push_retries,
        ];
        for family in families {
            family.get_or_create(&of_event).inc();
        }
        let text = metrics.text().expect("text");
        let alerts = include_str!("../../packaging/alerts.yml");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named: BTreeSet<&str> = alerts.split(|c| !is_name(c)).filter(|name| name.starts_with("fpprof_")).collect();
        assert!(named.len() > 8, "{named:?}");
        for name in named {
            let is_sample = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
            assert!(text.lines().any(is_sample), "{name}: {text}");
        }
    }
}
