//! Computes the aggregates of every row from its runs.

use super::combine::{
    as_f64, balance, bytes_of, bytes_per_sample, cpu_percent, mean_of, metric_of, right, stacks, total, total_by_cause,
    versus,
};
use super::{Aggregate, BetterWhen, Experiment, ExperimentMethod, ExperimentRow, Measured, Run, SampleCounts, Tool};

/// The baselines of a row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Baselines<'a> {
    /// Runs of the command alone; `None` for the baseline itself, or when there is none.
    pub none: Option<&'a [Run]>,
    /// Frame-pointer runs of the same tool; `None` for those themselves, or when there are none.
    pub fp: Option<&'a [Run]>,
    /// Which direction of the metric is better; `None` without a metric.
    pub better_when: Option<BetterWhen>,
}

impl Experiment {
    /// Computes the aggregate of every row from its runs.
    ///
    /// The baseline of slow-downs is the first row of [`ExperimentMethod::None`]; a second such row is compared with it
    /// (A/A). The baseline of sizes is the first [`ExperimentMethod::Fp`] row of the same tool.
    pub fn complete(&mut self) {
        let better_when = self.metric.as_ref().map(|metric| metric.better_when);
        let first = |tool: Option<Tool>, method| {
            self.rows.iter().position(|row| row.method == method && tool.is_none_or(|tool| row.tool == tool))
        };
        let none = first(None, ExperimentMethod::None);
        let aggregates: Vec<_> = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let runs_of = |other: Option<usize>| {
                    other.filter(|&other| other != index).and_then(|other| Some(self.rows.get(other)?.runs.as_slice()))
                };
                let fp = first(Some(row.tool), ExperimentMethod::Fp);
                Aggregate::new(&row.runs, &Baselines { none: runs_of(none), fp: runs_of(fp), better_when })
            })
            .collect();
        for (row, aggregate) in self.rows.iter_mut().zip(aggregates) {
            row.aggregate = aggregate;
        }
    }
}

impl ExperimentRow {
    /// Creates a row from raw runs, without comparisons ([`Experiment::complete`] adds them).
    #[must_use]
    pub fn new(mode: String, tool: Tool, method: ExperimentMethod, stack_bytes: Option<u64>, runs: Vec<Run>) -> Self {
        let aggregate = Aggregate::new(&runs, &Baselines::default());
        Self { mode, tool, method, stack_bytes, runs, aggregate }
    }
}

impl Aggregate {
    /// Aggregates `runs` and compares them with `baselines`, round by round.
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
            wall_s: mean_of(runs, |run| run.wall_s.clone()),
            wall_vs_none: versus(runs, baselines.none, "no baseline", |run| run.wall_s.clone()),
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
