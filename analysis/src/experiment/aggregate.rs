//! What the runs of a mode say together.

use super::combine::{
    as_f64, balance, bytes_of, bytes_per_sample, cpu_percent, mean_of, metric_of, right, stacks, total, total_by_cause,
    versus,
};
use super::model::sum;
use super::{BetterWhen, Experiment, Measured, Method, Right, Row, Run, StackEnds, Tool};
use crate::statistics::{Estimate, RatioEstimate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the runs of a mode say together. Means are over runs, counts are sums over runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Runs.
    pub n: u32,
    /// Wall time of the command, seconds.
    pub wall_s: Measured<Estimate>,
    /// The same against the baseline, paired by round.
    pub wall_vs_none: Measured<RatioEstimate>,
    /// The workload's own metric.
    pub metric: Measured<Estimate>,
    /// The same against the baseline, paired by round: the metric's own ratio, whichever way is good.
    pub metric_vs_none: Measured<RatioEstimate>,
    /// How many times slower than the baseline, by the metric: above 1 is worse, whichever way the metric points.
    pub slow_down: Measured<RatioEstimate>,
    /// Size of the recording, bytes.
    pub bytes: Measured<Estimate>,
    /// The same for each recorded sample.
    pub bytes_per_sample: Measured<Estimate>,
    /// Size against the same tool's frame-pointer row, paired by round.
    pub bytes_vs_fp: Measured<RatioEstimate>,
    /// Samples, over all runs.
    pub samples: SampleCounts,
    /// Whether `fired = recorded + Σ lost + skipped + dropped` held.
    pub balance: Measured<BalanceCheck>,
    /// Lost chunks in perf's sense, over all runs.
    pub lost_chunks: Measured<u64>,
    /// CPU of the collector, seconds a run.
    pub collector_cpu_s: Measured<Estimate>,
    /// The same in per cent of one CPU over the wall time of the command.
    pub collector_cpu_percent: Measured<Estimate>,
    /// Part of it after the last sample, seconds a run.
    pub collector_stop_cpu_s: Measured<Estimate>,
    /// Mean nanoseconds inside the BPF program for each tick.
    pub bpf_ns_per_sample: Measured<Estimate>,
    /// What the recordings attribute to what hits the target itself, in per cent of its CPU time.
    pub attributed_on_target_percent: Measured<Estimate>,
    /// What they attribute to themselves altogether, likewise.
    pub attributed_percent: Measured<Estimate>,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: Measured<Estimate>,
    /// How the stacks of the target's processes ended, by strategy, over all runs.
    pub stacks: Measured<Vec<StrategyStacks>>,
    /// How many frame-pointer stacks are right, by the DWARF stacks of the same samples, over all runs.
    pub frame_pointers: Measured<Right>,
}

/// Samples over all runs; a count is missing when a single run does not give it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Ticks of the sampling event.
    pub fired: Measured<u64>,
    /// Samples in the recordings.
    pub recorded: Measured<u64>,
    /// Samples lost, by cause.
    pub lost: Measured<BTreeMap<String, u64>>,
    /// Ticks in something that was not to be profiled.
    pub skipped: Measured<u64>,
    /// Samples thrown away.
    pub dropped: Measured<u64>,
}

impl SampleCounts {
    /// Samples lost, whatever the cause.
    #[must_use]
    pub fn n_lost(&self) -> Option<u64> {
        self.lost.value().map(sum)
    }

    /// Share of the samples that should be in the recordings and are not: lost and dropped, of recorded, lost and
    /// dropped. A tool that has no count of dropped samples is taken to drop none. `None` where recorded or lost is
    /// missing, and where there are no samples at all.
    #[must_use]
    pub fn lost_share(&self) -> Option<f64> {
        let gone = u128::from(self.n_lost()?) + u128::from(self.dropped.value().copied().unwrap_or(0));
        let all = gone + u128::from(*self.recorded.value()?);
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than the 53 bits of an f64")]
        (all > 0).then(|| gone as f64 / all as f64)
    }
}

/// Whether the balance held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceCheck {
    /// Runs that give all counts.
    pub runs: u32,
    /// Runs where it held exactly.
    pub exact: u32,
    /// The difference that is farthest from 0: `fired - recorded - Σ lost - skipped - dropped`.
    pub worst_unaccounted: i64,
}

/// How stacks ended under one strategy, over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyStacks {
    /// The strategy.
    pub strategy: String,
    /// Who unwound, when not the row's tool.
    pub unwound_by: Option<String>,
    /// All processes of the target.
    pub all: StackEnds,
    /// By process name, most samples first.
    pub processes: Vec<ProcessStacks>,
    /// The flame graph of the first run that has one: a file beside the report.
    pub flame_graph: Measured<String>,
}

/// How the stacks of processes of one name ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStacks {
    /// Process name.
    pub name: String,
    /// How they ended.
    pub ends: StackEnds,
}

/// What a row is compared with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Baselines<'a> {
    /// Runs of the command alone; `None` for the baseline itself, or when there is none.
    pub none: Option<&'a [Run]>,
    /// Frame-pointer runs of the same tool; `None` for those themselves, or when there are none.
    pub fp: Option<&'a [Run]>,
    /// Which way of the metric is good; `None` without a metric.
    pub better_when: Option<BetterWhen>,
}

impl Experiment {
    /// Makes the aggregate of every row from its runs.
    ///
    /// The baseline of slow-downs is the first row of [`Method::None`]; a second one is compared with it (A/A).
    /// The baseline of sizes is the first [`Method::Fp`] row of the same tool.
    pub fn complete(&mut self) {
        let better_when = self.metric.as_ref().map(|metric| metric.better_when);
        let first = |tool: Option<Tool>, method| {
            self.rows.iter().position(|row| row.method == method && tool.is_none_or(|tool| row.tool == tool))
        };
        let none = first(None, Method::None);
        let aggregates: Vec<_> = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let runs_of = |other: Option<usize>| {
                    other.filter(|&other| other != index).and_then(|other| Some(self.rows.get(other)?.runs.as_slice()))
                };
                let fp = first(Some(row.tool), Method::Fp);
                Aggregate::new(&row.runs, &Baselines { none: runs_of(none), fp: runs_of(fp), better_when })
            })
            .collect();
        for (row, aggregate) in self.rows.iter_mut().zip(aggregates) {
            row.aggregate = aggregate;
        }
    }
}

impl Row {
    /// A row of raw runs, not yet compared with any other ([`Experiment::complete`] does that).
    #[must_use]
    pub fn new(mode: String, tool: Tool, method: Method, stack_bytes: Option<u64>, runs: Vec<Run>) -> Self {
        let aggregate = Aggregate::new(&runs, &Baselines::default());
        Self { mode, tool, method, stack_bytes, runs, aggregate }
    }
}

impl Aggregate {
    /// Sums up `runs` and compares them with `baselines`, round by round.
    #[must_use]
    pub fn new(runs: &[Run], baselines: &Baselines<'_>) -> Self {
        let slow_down = match baselines.better_when {
            None => Measured::missing("no metric was asked for"),
            Some(BetterWhen::Lower) => versus(runs, baselines.none, "no baseline", metric_of),
            Some(BetterWhen::Higher) => match versus(runs, baselines.none, "no baseline", metric_of) {
                Measured::Value(ratio) => Measured::Value(ratio.inverse()),
                missing @ Measured::Missing(_) => missing,
            },
        };
        Self {
            n: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            wall_s: mean_of(runs, |run| Measured::Value(run.wall_s)),
            wall_vs_none: versus(runs, baselines.none, "no baseline", |run| Measured::Value(run.wall_s)),
            metric: mean_of(runs, metric_of),
            metric_vs_none: versus(runs, baselines.none, "no baseline", metric_of),
            slow_down,
            bytes: mean_of(runs, bytes_of),
            bytes_per_sample: mean_of(runs, bytes_per_sample),
            bytes_vs_fp: versus(runs, baselines.fp, "no frame-pointer row of the same tool", bytes_of),
            samples: SampleCounts {
                fired: total(runs, |run| &run.fired),
                recorded: total(runs, |run| &run.recorded),
                lost: total_by_cause(runs),
                skipped: total(runs, |run| &run.skipped),
                dropped: total(runs, |run| &run.dropped),
            },
            balance: balance(runs),
            lost_chunks: total(runs, |run| &run.lost_chunks),
            collector_cpu_s: mean_of(runs, |run| run.collector_cpu_s.clone()),
            collector_cpu_percent: mean_of(runs, cpu_percent),
            collector_stop_cpu_s: mean_of(runs, |run| run.collector_stop_cpu_s.clone()),
            bpf_ns_per_sample: mean_of(runs, |run| run.bpf_ns_per_sample.clone()),
            attributed_on_target_percent: mean_of(runs, |run| {
                run.attributed.as_ref().map(|part| part.on_target_percent)
            }),
            attributed_percent: mean_of(runs, |run| run.attributed.as_ref().map(|part| part.all_percent)),
            max_rss_bytes: mean_of(runs, |run| as_f64(&run.max_rss_bytes)),
            stacks: stacks(runs),
            frame_pointers: right(runs),
        }
    }
}
