//! Aggregates of all runs of a mode.

use super::Measured;
use super::ends::{Right, StackEnds, sum};
use crate::statistics::{Estimate, RatioEstimate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Aggregates of all runs of a mode. Means are over runs, counts are sums over runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Number of runs.
    pub n: u32,
    /// Wall time of the command, seconds.
    pub wall_s: Measured<Estimate>,
    /// Wall time relative to the baseline, paired by round.
    pub wall_vs_none: Measured<RatioEstimate>,
    /// The workload's own metric.
    pub metric: Measured<Estimate>,
    /// The metric relative to the baseline, paired by round; whether higher is better is not taken into account.
    pub metric_vs_none: Measured<RatioEstimate>,
    /// Slow-down relative to the baseline according to the metric: above 1 is always worse.
    pub slow_down: Measured<RatioEstimate>,
    /// Size of the recording, bytes.
    pub bytes: Measured<Estimate>,
    /// Bytes per recorded sample.
    pub bytes_per_sample: Measured<Estimate>,
    /// Size relative to the same tool's frame-pointer row, paired by round.
    pub bytes_vs_fp: Measured<RatioEstimate>,
    /// Samples, over all runs.
    pub samples: SampleCounts,
    /// Whether `fired = recorded + Σ lost + skipped + dropped` held.
    pub balance: Measured<BalanceCheck>,
    /// Lost chunks as perf counts them, over all runs.
    pub lost_chunks: Measured<u64>,
    /// CPU time of the collector, seconds per run.
    pub collector_cpu_s: Measured<Estimate>,
    /// The same, in per cent of one CPU over the wall time of the command.
    pub collector_cpu_percent: Measured<Estimate>,
    /// CPU time of the collector after the last sample, seconds per run.
    pub collector_stop_cpu_s: Measured<Estimate>,
    /// Mean time inside the BPF program per tick, nanoseconds.
    pub bpf_ns_per_sample: Measured<Estimate>,
    /// Overhead that recordings attribute to interrupts and BPF programs on the target, in per cent of its CPU time.
    pub attributed_on_target_percent: Measured<Estimate>,
    /// All overhead that recordings attribute to themselves, in the same unit.
    pub attributed_percent: Measured<Estimate>,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: Measured<Estimate>,
    /// How the stacks of the target's processes ended, by strategy, over all runs.
    pub stacks: Measured<Vec<StrategyStacks>>,
    /// How many frame-pointer stacks are right according to the DWARF stacks of the same samples, over all runs.
    pub frame_pointers: Measured<Right>,
}

/// Samples over all runs; a count is missing if any run lacks it.
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
    /// Samples discarded after they were taken.
    pub dropped: Measured<u64>,
}

impl SampleCounts {
    /// Samples lost, for any cause.
    #[must_use]
    pub fn n_lost(&self) -> Option<u64> {
        self.lost.value().map(sum)
    }

    /// Share of samples that are missing from the recordings: lost and dropped, of recorded, lost and dropped. A tool
    /// without a count of dropped samples is assumed to drop none. `None` if recorded or lost is missing, or if there
    /// are no samples at all.
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
    /// Runs with all counts.
    pub runs: u32,
    /// Runs where it held exactly.
    pub exact: u32,
    /// The largest difference by absolute value: `fired - recorded - Σ lost - skipped - dropped`.
    pub worst_unaccounted: i64,
}

/// How stacks ended under one strategy, over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyStacks {
    /// The strategy.
    pub strategy: String,
    /// The unwinding program, if not the row's tool.
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
