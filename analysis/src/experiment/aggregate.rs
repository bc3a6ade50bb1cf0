//! What the runs of a mode say together.

use super::Measured;
use super::ends::{Right, StackEnds, sum};
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
