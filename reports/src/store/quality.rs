//! How stacks end and what became of ticks, over time.

use super::error::StoreError;
use super::facets::seconds;
use super::filter::{Facet, Filter};
use super::rows::Rows;
use super::series::Series;
use crate::escape::visible;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Adds up stacks by how they end, and ticks by what became of them.
#[derive(Debug)]
pub struct Quality {
    filter: Arc<Filter>,
    /// Samples by strategy and class.
    stacks: Series<(String, String), u64>,
    /// Samples by strategy, class and end, not divided by time.
    ends: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>,
    /// Ticks by counter and cause.
    ticks: Series<(String, String), i64>,
    /// Ticks of no single event: time, duration, counter and cause, and their number.
    ticks_of_all: Vec<(i64, i64, (String, String), i64)>,
    /// The events whose ticks are counted.
    events: BTreeSet<String>,
}

/// How stacks end and what became of ticks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QualityAnswer {
    /// Width of a bucket of stacks, seconds.
    pub stacks_bucket_s: f64,
    /// Samples by bucket, strategy and class.
    pub stacks: Vec<StackCount>,
    /// Samples by strategy, class and end.
    pub ends: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>,
    /// Width of a bucket of ticks, seconds.
    pub ticks_bucket_s: f64,
    /// Ticks by bucket. They are counted for whole machines: only the filters of time, host and event apply.
    pub ticks: Vec<TickCount>,
}

/// Stacks of a class in a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackCount {
    /// Start of the bucket, seconds since 1970.
    pub time: f64,
    /// The strategy of unwinding.
    pub strategy: String,
    /// `complete`, `truncated`, `broken` or `no_stack`.
    pub stack: String,
    /// The number of samples.
    pub samples: u64,
}

/// Ticks of a counter in a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TickCount {
    /// Start of the bucket, seconds since 1970.
    pub time: f64,
    /// The counter, see [`crate::parquet::counters::Counter::name`].
    pub counter: String,
    /// The cause, for lost and discarded; else empty.
    pub cause: String,
    /// The number of ticks. Negative for `unread` if samples of an earlier interval were read.
    pub value: i64,
}

/// The counters of a balance; all others are the agent's own cost.
const TICKS: [&str; 8] = ["fired", "recorded", "lost", "skipped", "dropped", "unread", "stored", "discarded"];

/// The most rows of ticks of no single event.
const MAX_ROWS: usize = 1_000_000;

impl Quality {
    /// Starts with no rows.
    #[must_use]
    pub fn new(filter: Arc<Filter>) -> Self {
        let (stacks, ends, ticks, ticks_of_all, events) = Default::default();
        Self { filter, stacks, ends, ticks, ticks_of_all, events }
    }

    /// The columns of stacks that [`Self::add_stacks`] needs.
    pub const STACKS: [&str; 6] = ["time", "duration_us", "strategy", "stack", "stack_end", "samples"];
    /// The columns of counters that [`Self::add_counters`] needs. It applies the filter itself: read the rows without
    /// one.
    pub const COUNTERS: [&str; 7] = ["time", "duration_us", "host", "event", "counter", "cause", "value"];

    /// Adds rows of stacks that pass the filter.
    ///
    /// # Errors
    /// If a column is missing (then no row was added), or if there are too many intervals.
    pub fn add_stacks(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations) = (rows.times()?, rows.numbers("duration_us")?);
        let [strategies, classes, ends] = [rows.words("strategy")?, rows.words("stack")?, rows.words("stack_end")?];
        let samples = rows.counts("samples")?;
        // Most rows share their names: sum by dictionary index first, to look up each name once.
        let mut sums: BTreeMap<(i64, i64, usize, usize, usize), u64> = BTreeMap::new();
        let keys = strategies.numbers().zip(classes.numbers()).zip(ends.numbers());
        for (((&time, &duration), ((strategy, class), end)), samples) in
            times.iter().zip(durations).zip(keys).zip(samples)
        {
            let sum = sums.entry((time, duration, strategy, class, end)).or_default();
            *sum = sum.saturating_add(samples);
        }
        for ((time, duration, strategy, class, end), samples) in sums {
            let [strategy, class, end] = [(strategies, strategy), (classes, class), (ends, end)]
                .map(|(words, number)| visible(words.value(number)).into_owned());
            let sum = self.stacks.at(time, duration, (strategy.clone(), class.clone()))?;
            *sum = sum.saturating_add(samples);
            let sum = self.ends.entry(strategy).or_default().entry(class).or_default().entry(end).or_default();
            *sum = sum.saturating_add(samples);
        }
        Ok(())
    }

    /// Adds rows of counters.
    ///
    /// # Errors
    /// Those of [`Self::add_stacks`].
    pub fn add_counters(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations, values) = (rows.times()?, rows.numbers("duration_us")?, rows.numbers("value")?);
        let (hosts, events) = (rows.words("host")?.names(), rows.words("event")?.names());
        let (counters, causes) = (rows.words("counter")?.names(), rows.words("cause")?.names());
        let rows = times.iter().zip(durations).zip(hosts.zip(events)).zip(counters.zip(causes)).zip(values);
        for ((((&time, &duration), (host, event)), (counter, cause)), value) in rows {
            let passes = self.filter.has_time(time) && self.filter.has_name(Facet::Host, host);
            if !passes || !TICKS.contains(&counter) {
                continue;
            }
            let of = (counter.to_owned(), visible(cause).into_owned());
            if event.is_empty() {
                if self.ticks_of_all.len() >= MAX_ROWS {
                    return Err(StoreError::TooMany(MAX_ROWS));
                }
                self.ticks_of_all.push((time, duration, of, *value));
                continue;
            }
            if !self.events.contains(event) {
                self.events.insert(event.to_owned());
            }
            if self.filter.has_name(Facet::Event, event) {
                let sum = self.ticks.at(time, duration, of)?;
                *sum = sum.saturating_add(*value);
            }
        }
        Ok(())
    }

    /// Finishes the answer. Where several events are counted, samples of no single one that are stored are left out, as they would
    /// be added to those of another event; what is discarded is shown with each event.
    #[must_use]
    pub fn finish(mut self) -> QualityAnswer {
        let is_sole = self.events.len() <= 1;
        for (time, duration, of, value) in std::mem::take(&mut self.ticks_of_all) {
            if !is_sole && of.0 == "stored" {
                continue;
            }
            // Other counters of the same interval are there, so that there is room.
            if let Ok(sum) = self.ticks.at(time, duration, of) {
                *sum = sum.saturating_add(value);
            }
        }
        let stacks = self.stacks.buckets(|sum, value| *sum = sum.saturating_add(*value)).into_iter();
        let ticks = self.ticks.buckets(|sum, value| *sum = sum.saturating_add(*value)).into_iter();
        QualityAnswer {
            stacks_bucket_s: seconds(self.stacks.width_us()),
            stacks: stacks
                .map(|((time, (strategy, stack)), samples)| StackCount {
                    time: seconds(time),
                    strategy,
                    stack,
                    samples,
                })
                .collect(),
            ends: self.ends,
            ticks_bucket_s: seconds(self.ticks.width_us()),
            ticks: ticks
                .map(|((time, (counter, cause)), value)| TickCount { time: seconds(time), counter, cause, value })
                .collect(),
        }
    }
}
