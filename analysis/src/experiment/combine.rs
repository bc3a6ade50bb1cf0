//! Combines the figures of runs: means, paired ratios, sums.
//!
//! Means and ratios use the runs that have a figure (`n` is their number); sums require all runs to have it.

use super::ends::add_counts;
use super::{BalanceCheck, Measured, ProcessStacks, Right, Run, StackEnds, Stacks, StrategyStacks};
use crate::statistics::{self, Estimate, RatioEstimate};
use std::collections::BTreeMap;

pub(super) fn metric_of(run: &Run) -> Measured<f64> {
    run.metric.clone()
}

pub(super) fn bytes_of(run: &Run) -> Measured<f64> {
    as_f64(&run.bytes)
}

pub(super) fn as_f64(count: &Measured<u64>) -> Measured<f64> {
    match count {
        #[expect(clippy::cast_precision_loss, reason = "means need no more than the 53 bits of an f64")]
        Measured::Value(count) => Measured::Value(*count as f64),
        Measured::Missing(reason) => Measured::Missing(reason.clone()),
    }
}

pub(super) fn bytes_per_sample(run: &Run) -> Measured<f64> {
    match (bytes_of(run), as_f64(&run.recorded)) {
        (Measured::Value(_), Measured::Value(0.0)) => Measured::missing("no samples were recorded"),
        (Measured::Value(bytes), Measured::Value(recorded)) => Measured::Value(bytes / recorded),
        (Measured::Missing(reason), _) | (_, Measured::Missing(reason)) => Measured::Missing(reason),
    }
}

pub(super) fn cpu_percent(run: &Run) -> Measured<f64> {
    match (&run.collector_cpu_s, &run.wall_s) {
        (Measured::Value(seconds), Measured::Value(wall_s)) if *wall_s > 0.0 => {
            Measured::Value(100.0 * seconds / wall_s)
        }
        (Measured::Value(_), Measured::Value(_)) => Measured::missing("the command took no time"),
        (Measured::Missing(reason), _) | (_, Measured::Missing(reason)) => Measured::Missing(reason.clone()),
    }
}

/// Mean over the runs with the figure; if there are none, the first run's reason.
pub(super) fn mean_of(runs: &[Run], figure: impl Fn(&Run) -> Measured<f64>) -> Measured<Estimate> {
    let mut values = Vec::with_capacity(runs.len());
    let mut reason = None;
    for run in runs {
        match figure(run) {
            Measured::Value(value) => values.push(value),
            Measured::Missing(why) => reason = reason.or(Some(why)),
        }
    }
    match statistics::mean(&values) {
        Ok(estimate) => Measured::Value(estimate),
        Err(unfit) => Measured::Missing(reason.filter(|_| values.is_empty()).unwrap_or_else(|| unfit.to_string())),
    }
}

/// Ratio to `baseline` over the rounds in which both have the figure.
pub(super) fn versus(
    runs: &[Run],
    baseline: Option<&[Run]>,
    no_baseline: &str,
    figure: impl Fn(&Run) -> Measured<f64>,
) -> Measured<RatioEstimate> {
    let Some(baseline) = baseline else { return Measured::missing(no_baseline) };
    let mut reason = None;
    let mut pairs = Vec::with_capacity(runs.len());
    for run in runs {
        let Some(partner) = baseline.iter().find(|partner| partner.repeat == run.repeat) else { continue };
        match (figure(partner), figure(run)) {
            (Measured::Value(before), Measured::Value(after)) => pairs.push((before, after)),
            (Measured::Missing(why), _) | (_, Measured::Missing(why)) => reason = reason.or(Some(why)),
        }
    }
    if pairs.is_empty() {
        return Measured::Missing(reason.unwrap_or_else(|| "no complete round together with the baseline".to_owned()));
    }
    match statistics::paired_ratio(&pairs) {
        Ok(ratio) => Measured::Value(ratio),
        Err(unfit) => Measured::missing(unfit.to_string()),
    }
}

/// Sum over all runs; missing if any run lacks the count, since a partial sum would look like the whole.
pub(super) fn total(runs: &[Run], count: impl Fn(&Run) -> &Measured<u64>) -> Measured<u64> {
    let mut sum = 0_u64;
    for run in runs {
        match count(run) {
            Measured::Value(n) => sum = sum.saturating_add(*n),
            Measured::Missing(reason) => return Measured::Missing(reason.clone()),
        }
    }
    if runs.is_empty() { Measured::missing("no runs") } else { Measured::Value(sum) }
}

pub(super) fn right(runs: &[Run]) -> Measured<Right> {
    let mut sum = Right::default();
    for run in runs {
        match &run.frame_pointers {
            Measured::Value(Right { compared, right }) => {
                sum.compared = sum.compared.saturating_add(*compared);
                sum.right = sum.right.saturating_add(*right);
            }
            Measured::Missing(reason) => return Measured::Missing(reason.clone()),
        }
    }
    if runs.is_empty() { Measured::missing("no runs") } else { Measured::Value(sum) }
}

pub(super) fn total_by_cause(runs: &[Run]) -> Measured<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for run in runs {
        match &run.lost {
            Measured::Value(lost) => add_counts(&mut sums, lost),
            Measured::Missing(reason) => return Measured::Missing(reason.clone()),
        }
    }
    if runs.is_empty() { Measured::missing("no runs") } else { Measured::Value(sums) }
}

pub(super) fn balance(runs: &[Run]) -> Measured<BalanceCheck> {
    let mut check = BalanceCheck { runs: 0, exact: 0, worst_unaccounted: 0 };
    let mut reason = None;
    for run in runs {
        match unaccounted(run) {
            Measured::Value(difference) => {
                check.runs = check.runs.saturating_add(1);
                check.exact = check.exact.saturating_add(u32::from(difference == 0));
                if difference.unsigned_abs() > check.worst_unaccounted.unsigned_abs() {
                    check.worst_unaccounted = difference;
                }
            }
            Measured::Missing(why) => reason = reason.or(Some(why)),
        }
    }
    if check.runs > 0 {
        return Measured::Value(check);
    }
    Measured::Missing(reason.unwrap_or_else(|| "no runs".to_owned()))
}

/// `fired - recorded - Σ lost - skipped - dropped` of one run.
fn unaccounted(run: &Run) -> Measured<i64> {
    let mut rest = match &run.fired {
        Measured::Value(fired) => i128::from(*fired),
        Measured::Missing(reason) => return Measured::Missing(reason.clone()),
    };
    for count in [&run.recorded, &run.skipped, &run.dropped] {
        match count {
            Measured::Value(n) => rest -= i128::from(*n),
            Measured::Missing(reason) => return Measured::Missing(reason.clone()),
        }
    }
    match &run.lost {
        Measured::Value(lost) => rest -= lost.values().map(|&n| i128::from(n)).sum::<i128>(),
        Measured::Missing(reason) => return Measured::Missing(reason.clone()),
    }
    let held = i64::try_from(rest).unwrap_or(if rest < 0 { i64::MIN } else { i64::MAX });
    Measured::Value(held)
}

/// Adds up the stacks of all runs by strategy, in order of first appearance.
pub(super) fn stacks(runs: &[Run]) -> Measured<Vec<StrategyStacks>> {
    let mut strategies: Vec<(StrategyStacks, BTreeMap<&str, StackEnds>)> = Vec::new();
    let mut reason = None;
    for run in runs {
        match &run.stacks {
            Measured::Value(given) => given.iter().for_each(|stacks| add_stacks(&mut strategies, stacks)),
            Measured::Missing(why) => reason = reason.or(Some(why.clone())),
        }
    }
    if strategies.is_empty() {
        return Measured::Missing(reason.unwrap_or_else(|| "no runs".to_owned()));
    }
    let finish = |(mut strategy, processes): (StrategyStacks, BTreeMap<&str, StackEnds>)| {
        strategy.processes =
            processes.into_iter().map(|(name, ends)| ProcessStacks { name: name.to_owned(), ends }).collect();
        strategy.processes.sort_by_key(|process| std::cmp::Reverse(process.ends.samples));
        strategy
    };
    Measured::Value(strategies.into_iter().map(finish).collect())
}

fn add_stacks<'a>(into: &mut Vec<(StrategyStacks, BTreeMap<&'a str, StackEnds>)>, stacks: &'a Stacks) {
    let same = |(strategy, _): &(StrategyStacks, _)| {
        strategy.strategy == stacks.strategy && strategy.unwound_by == stacks.unwound_by
    };
    let index = into.iter().position(same).unwrap_or_else(|| {
        let empty = StrategyStacks {
            strategy: stacks.strategy.clone(),
            unwound_by: stacks.unwound_by.clone(),
            all: StackEnds::default(),
            processes: Vec::new(),
            flame_graph: stacks.flame_graph.clone(),
        };
        into.push((empty, BTreeMap::new()));
        into.len() - 1
    });
    let Some((strategy, processes)) = into.get_mut(index) else { return };
    if strategy.flame_graph.value().is_none() {
        strategy.flame_graph = stacks.flame_graph.clone();
    }
    for (name, ends) in &stacks.processes {
        strategy.all.add(ends);
        processes.entry(name).or_default().add(ends);
    }
}
