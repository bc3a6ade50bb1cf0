//! How stacks end, and what was lost, over time.

use super::error::StoreError;
use super::facets::seconds;
use super::filter::{Facet, Filter};
use super::rows::Rows;
use super::series::Series;
use crate::escape::visible;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Adds up stacks by how they end, and ticks by what became of them.
#[derive(Debug)]
pub struct Quality {
    filter: Arc<Filter>,
    /// By strategy and class.
    stacks: Series<(String, String), u64>,
    /// By strategy, class and end, over all time.
    ends: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>,
    /// By counter and cause.
    ticks: Series<(String, String), i64>,
}

/// How stacks end, and what was lost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QualityAnswer {
    /// Length of a bucket of stacks, seconds.
    pub stacks_bucket_s: f64,
    /// Samples by bucket.
    pub stacks: Vec<StackCount>,
    /// Samples by strategy, class and end.
    pub ends: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>,
    /// Length of a bucket of ticks, seconds.
    pub ticks_bucket_s: f64,
    /// Ticks by bucket. They are counted of a whole machine: only the filters of time, host and event apply.
    pub ticks: Vec<TickCount>,
}

/// Stacks of a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackCount {
    /// Its begin, seconds since 1970.
    pub time: f64,
    /// How they were unwound.
    pub strategy: String,
    /// `complete`, `truncated`, `broken` or `no_stack`.
    pub stack: String,
    /// How many.
    pub samples: u64,
}

/// Ticks of a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TickCount {
    /// Its begin, seconds since 1970.
    pub time: f64,
    /// What became of them, see [`crate::parquet::counters::Counter::name`].
    pub counter: String,
    /// Why, of those that were lost or discarded.
    pub cause: String,
    /// How many; of unread ones negative where those of an earlier interval were read.
    pub value: i64,
}

/// What a balance has; the other counters are of the agent's own cost.
const TICKS: [&str; 8] = ["fired", "recorded", "lost", "skipped", "dropped", "unread", "stored", "discarded"];

impl Quality {
    /// None yet, under this filter.
    #[must_use]
    pub fn new(filter: Arc<Filter>) -> Self {
        Self { filter, stacks: Series::default(), ends: BTreeMap::new(), ticks: Series::default() }
    }

    /// The columns of stacks that it needs.
    pub const STACKS: [&str; 6] = ["time", "duration_us", "strategy", "stack", "stack_end", "samples"];
    /// The columns of counters that it needs. It filters them by itself.
    pub const COUNTERS: [&str; 7] = ["time", "duration_us", "host", "event", "counter", "cause", "value"];

    /// Adds rows of stacks that pass the filter.
    ///
    /// # Errors
    /// If a column is missing, and then nothing of the rows was added; if there are too many intervals.
    pub fn add_stacks(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations) = (rows.times()?, rows.numbers("duration_us")?);
        let [strategies, classes, ends] = [rows.words("strategy")?, rows.words("stack")?, rows.words("stack_end")?];
        let samples = rows.counts("samples")?;
        // Most rows have the same names: those are added up first.
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
    /// As [`Self::add_stacks`].
    pub fn add_counters(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations, values) = (rows.times()?, rows.numbers("duration_us")?, rows.numbers("value")?);
        let (hosts, events) = (rows.words("host")?.names(), rows.words("event")?.names());
        let (counters, causes) = (rows.words("counter")?.names(), rows.words("cause")?.names());
        let rows = times.iter().zip(durations).zip(hosts.zip(events)).zip(counters.zip(causes)).zip(values);
        for ((((&time, &duration), (host, event)), (counter, cause)), value) in rows {
            let passes = self.filter.has_time(time)
                && self.filter.has_name(Facet::Host, host)
                && (event.is_empty() || self.filter.has_name(Facet::Event, event));
            if passes && TICKS.contains(&counter) {
                let of = (counter.to_owned(), visible(cause).into_owned());
                let sum = self.ticks.at(time, duration, of)?;
                *sum = sum.saturating_add(*value);
            }
        }
        Ok(())
    }

    /// How stacks end, and what was lost.
    #[must_use]
    pub fn finish(self) -> QualityAnswer {
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
