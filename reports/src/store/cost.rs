//! The agents' own cost over time.

use super::error::StoreError;
use super::facets::seconds;
use super::filter::{Facet, Filter};
use super::rows::Rows;
use super::series::Series;
use crate::escape::visible;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most machines in an answer.
const MAX_HOSTS: usize = 20;

/// Adds up the cost of agents.
#[derive(Debug)]
pub struct Cost {
    filter: Arc<Filter>,
    by_host: Series<String, Spent>,
}

/// The cost of an agent in some intervals.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    cpu_ns: i64,
    cpu_during_us: i64,
    rss_bytes: i64,
    rate_hz: Option<i64>,
    stored: i64,
}

/// The cost of agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostAnswer {
    /// Width of a bucket, seconds.
    pub bucket_s: f64,
    /// Costs by bucket and machine.
    pub points: Vec<CostPoint>,
    /// The number of machines left out; their agents took less CPU time.
    pub hosts_left_out: usize,
}

/// The cost of an agent in a bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostPoint {
    /// Start of the bucket, seconds since 1970.
    pub time: f64,
    /// The machine.
    pub host: String,
    /// CPU time, per cent of one CPU.
    pub cpu_percent: f64,
    /// The largest resident memory at the end of an interval, bytes.
    pub rss_bytes: i64,
    /// The lowest sampling rate, samples per second on each CPU.
    pub rate_hz: Option<i64>,
    /// Samples that were stored.
    pub stored: i64,
}

impl Cost {
    /// Starts with no rows.
    #[must_use]
    pub fn new(filter: Arc<Filter>) -> Self {
        Self { filter, by_host: Series::default() }
    }

    /// The columns of counters that [`Self::add`] needs. It applies the filter itself: read the rows without one.
    pub const COUNTERS: [&str; 5] = ["time", "duration_us", "host", "counter", "value"];

    /// Adds rows of counters.
    ///
    /// # Errors
    /// If a column is missing (then no row was added), or if there are too many intervals.
    pub fn add(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let (times, durations, values) = (rows.times()?, rows.numbers("duration_us")?, rows.numbers("value")?);
        let (hosts, counters) = (rows.words("host")?.names(), rows.words("counter")?.names());
        for ((((&time, &duration), host), counter), &value) in
            times.iter().zip(durations).zip(hosts).zip(counters).zip(values)
        {
            let is_cost = ["cpu_ns", "rss_bytes", "rate_hz", "stored"].contains(&counter);
            if is_cost && self.filter.has_time(time) && self.filter.has_name(Facet::Host, host) {
                let spent = self.by_host.at(time, duration, visible(host).into_owned())?;
                spent.add(&Spent::of(counter, value, duration));
            }
        }
        Ok(())
    }

    /// Finishes the answer. Machines beyond the limit are those whose agents took the least CPU time.
    #[must_use]
    pub fn finish(self) -> CostAnswer {
        let buckets = self.by_host.buckets(Spent::add);
        let mut cpu: BTreeMap<&str, i64> = BTreeMap::new();
        for ((_, host), spent) in &buckets {
            let sum = cpu.entry(host).or_default();
            *sum = sum.saturating_add(spent.cpu_ns);
        }
        let mut hosts: Vec<(&str, i64)> = cpu.into_iter().collect();
        hosts.sort_by_key(|&(_, cpu)| Reverse(cpu));
        let shown: BTreeSet<&str> = hosts.iter().take(MAX_HOSTS).map(|&(host, _)| host).collect();
        let points = buckets.iter().filter(|((_, host), _)| shown.contains(host.as_str()));
        CostAnswer {
            bucket_s: seconds(self.by_host.width_us()),
            points: points
                .map(|((time, host), spent)| CostPoint {
                    time: seconds(*time),
                    host: host.clone(),
                    cpu_percent: spent.cpu_ns as f64 / 10.0 / spent.cpu_during_us.max(1) as f64,
                    rss_bytes: spent.rss_bytes,
                    rate_hz: spent.rate_hz,
                    stored: spent.stored,
                })
                .collect(),
            hosts_left_out: hosts.len().saturating_sub(MAX_HOSTS),
        }
    }
}

impl Spent {
    fn of(counter: &str, value: i64, duration_us: i64) -> Self {
        match counter {
            "cpu_ns" => Self { cpu_ns: value, cpu_during_us: duration_us, ..Self::default() },
            "rss_bytes" => Self { rss_bytes: value, ..Self::default() },
            "rate_hz" => Self { rate_hz: Some(value), ..Self::default() },
            _ => Self { stored: value, ..Self::default() },
        }
    }

    fn add(&mut self, more: &Self) {
        self.cpu_ns = self.cpu_ns.saturating_add(more.cpu_ns);
        self.cpu_during_us = self.cpu_during_us.saturating_add(more.cpu_during_us);
        self.rss_bytes = self.rss_bytes.max(more.rss_bytes);
        self.rate_hz = [self.rate_hz, more.rate_hz].into_iter().flatten().min();
        self.stored = self.stored.saturating_add(more.stored);
    }
}
