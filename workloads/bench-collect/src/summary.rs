//! Sums up all rounds of a mode at a rate.

use crate::modes::Mode;
use crate::run::{Figures, Run};
use fpprof_analysis::statistics::{Estimate, RatioEstimate, mean, paired_ratio};
use serde::Serialize;

/// One row of a table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) mode: String,
    pub(crate) rate: u64,
    pub(crate) runs: usize,
    /// Errors of rounds without results.
    pub(crate) errors: Vec<String>,
    pub(crate) bytes_per_sample: Option<f64>,
    pub(crate) recorded: u64,
    pub(crate) lost: Option<u64>,
    pub(crate) lost_percent: Option<f64>,
    /// Share of complete stacks of nbdkit and fio, in the first round; or the median of what the profiler itself reports.
    pub(crate) complete_percent: Option<f64>,
    pub(crate) stacks_judged: Option<u64>,
    pub(crate) cpu_s: Option<Estimate>,
    /// Ratio of IOPS without a profiler to IOPS with it, within a round: 1.05 is 5 % slower.
    pub(crate) slow_down: Option<RatioEstimate>,
    /// CPU time or wall time in addition to that of the same tool with frame pointers in the same round, in per cent of
    /// the run without a profiler.
    pub(crate) over_fp: Option<Estimate>,
    pub(crate) max_rss_bytes: u64,
    /// Medians, here and below, in the unit that the name says.
    pub(crate) start_s: Option<f64>,
    pub(crate) stop_s: Option<f64>,
    pub(crate) svg_s: Option<f64>,
    pub(crate) bpf_ns_per_tick: Option<f64>,
    pub(crate) start_cpu_s: Option<f64>,
    pub(crate) map_bytes: Option<f64>,
}

/// The rows of one rate, in the order in which modes were first run.
pub(crate) fn rows(runs: &[Run], rate: u64) -> Vec<Row> {
    let of_rate: Vec<&Run> = runs.iter().filter(|run| run.rate == rate).collect();
    let mut modes: Vec<Mode> = Vec::new();
    for run in &of_rate {
        if !modes.contains(&run.key) {
            modes.push(run.key);
        }
    }
    let of_mode = |mode: Mode| of_rate.iter().copied().filter(|run| run.key == mode).collect::<Vec<_>>();
    let none = of_mode(Mode::None);
    let with_fp = |mode: Mode| Row {
        over_fp: mode.by_frame_pointers().and_then(|fp| over_fp(&of_mode(mode), &of_mode(fp), &none)),
        ..row(mode, rate, &of_mode(mode), &none)
    };
    modes.into_iter().map(with_fp).collect()
}

fn row(mode: Mode, rate: u64, runs: &[&Run], none: &[&Run]) -> Row {
    let figures: Vec<&Figures> = runs.iter().filter_map(|run| run.figures.as_ref()).collect();
    let sum = |of: fn(&Figures) -> Option<u64>| figures.iter().filter_map(|one| of(one)).reduce(|a, b| a + b);
    let median_of = |of: fn(&Figures) -> Option<f64>| median(figures.iter().filter_map(|one| of(one)).collect());
    let (recorded, lost) = (sum(|one| one.judged.recorded).unwrap_or(0), sum(|one| one.judged.lost));
    let (stacks, complete) = (sum(|one| one.judged.stacks), sum(|one| one.judged.complete));
    let bytes = sum(|one| Some(one.bytes)).unwrap_or(0);
    let cpu: Vec<f64> = figures.iter().map(|one| one.cpu_s).collect();
    Row {
        mode: mode.to_string(),
        rate,
        runs: figures.len(),
        errors: runs.iter().filter_map(|run| run.error.clone()).collect(),
        bytes_per_sample: (recorded > 0).then(|| bytes as f64 / recorded as f64),
        recorded,
        lost,
        lost_percent: lost.filter(|lost| recorded + lost > 0).map(|lost| percent(lost, recorded + lost)),
        complete_percent: stacks
            .zip(complete)
            .filter(|&(all, _)| all > 0)
            .map(|(all, part)| percent(part, all))
            .or_else(|| median_of(|one| one.judged.own_complete_percent)),
        stacks_judged: stacks,
        cpu_s: if mode == Mode::None { None } else { mean(&cpu).ok() },
        slow_down: slow_down(mode, runs, none),
        over_fp: None,
        max_rss_bytes: figures.iter().map(|one| one.max_rss_bytes).max().unwrap_or(0),
        start_s: median_of(|one| Some(one.start_s)),
        stop_s: median_of(|one| Some(one.stop_s)),
        svg_s: median_of(|one| one.svg_s),
        bpf_ns_per_tick: median_of(|one| one.judged.bpf_ns_per_tick),
        start_cpu_s: median_of(|one| one.judged.start_cpu_s),
        map_bytes: median_of(|one| one.judged.map_bytes),
    }
}

/// The difference to frame pointers, computed within rounds: its interval is narrower than that of a difference of two
/// slow-downs.
fn over_fp(runs: &[&Run], fp: &[&Run], none: &[&Run]) -> Option<Estimate> {
    let points = runs.iter().filter_map(|run| {
        let fp = fp.iter().find(|fp| fp.round == run.round)?;
        let ratio = |run| pair(run, none).map(|(without, with)| without / with);
        Some((ratio(run)? - ratio(fp)?) * 100.0)
    });
    mean(&points.collect::<Vec<_>>()).ok()
}

/// The slow-down, computed within rounds, so that changes between rounds cancel out. Without a profiler there is one
/// only of workloads that measure it: how much equal work differs.
fn slow_down(mode: Mode, runs: &[&Run], none: &[&Run]) -> Option<RatioEstimate> {
    let is_measured = runs.iter().filter_map(|run| run.figures.as_ref()).any(|one| one.iops_without.is_some());
    if mode == Mode::None && !is_measured {
        return None;
    }
    let pairs = runs.iter().filter_map(|run| pair(run, none)).map(|(without, with)| (with, without));
    paired_ratio(&pairs.collect::<Vec<_>>()).ok()
}

/// Operations per second without and with the profiler: in the run itself if the workload measures both, else in the
/// same round. The time for the same work is inversely proportional to them.
fn pair(run: &Run, none: &[&Run]) -> Option<(f64, f64)> {
    let figures = run.figures.as_ref()?;
    let of_round = || none.iter().find(|none| none.round == run.round)?.figures.as_ref().map(|none| none.iops);
    Some((figures.iops_without.or_else(of_round)?, figures.iops))
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 100.0
}

/// The median; for an even number, the mean of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 { Some(upper) } else { values.get(middle - 1).map(|lower| f64::midpoint(*lower, upper)) }
}

pub(crate) fn slow_down_words(ratio: RatioEstimate) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    match ratio.interval {
        Some(interval) => {
            format!("{:+.1} % ({:+.1} to {:+.1})", percent(ratio.ratio), percent(interval.low), percent(interval.high))
        }
        None => format!("{:+.1} % (one run)", percent(ratio.ratio)),
    }
}

pub(crate) fn points_words(points: Estimate) -> String {
    match points.interval {
        Some(interval) => format!("{:+.2} ({:+.2} to {:+.2})", points.mean, interval.low, interval.high),
        None => format!("{:+.2} (one run)", points.mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judged;
    use crate::modes::CallGraph;

    fn run(key: Mode, round: u32, iops: f64, bytes: u64, recorded: u64, lost: u64) -> Run {
        let judged = Judged {
            recorded: Some(recorded),
            lost: Some(lost),
            stacks: (round == 0).then_some(recorded),
            complete: (round == 0).then_some(recorded / 2),
            ..Judged::default()
        };
        let figures = Some(Figures { iops, bytes, cpu_s: 0.5, judged, ..Figures::default() });
        Run { key, mode: key.to_string(), rate: 999, round, figures, error: None }
    }

    /// Check that the difference to frame pointers is computed within rounds, in per cent of the run without a
    /// profiler.
    #[test]
    fn what_is_above_frame_pointers() {
        let perf = |call_graph| Mode::Perf { call_graph, zips: false };
        let at = |mode, round, time_s: f64| run(mode, round, 1.0 / time_s, 0, 0, 0);
        let (fp, dwarf) = (perf(CallGraph::Fp), perf(CallGraph::Dwarf(8)));
        let runs = [
            at(Mode::None, 0, 2.0),
            at(fp, 0, 2.2),
            at(dwarf, 0, 2.3),
            at(Mode::None, 1, 4.0),
            at(fp, 1, 4.0),
            at(dwarf, 1, 4.6),
        ];
        let rows = rows(&runs, 999);
        let over = rows.iter().find_map(|row| row.over_fp).expect("of one row");
        assert!((over.mean - 10.0).abs() < 1e-9 && over.n == 2, "{over:?}: 5 and 15");
    }

    /// Check that a workload that measures itself without the profiler is compared with that, also without any profiler.
    #[test]
    fn workloads_may_measure_both() {
        let mut runs = [run(Mode::None, 0, 100.0, 0, 0, 0), run(Mode::Bpftrace, 0, 80.0, 0, 0, 0)];
        for (run, without) in runs.iter_mut().zip([100.0, 120.0]) {
            run.figures.as_mut().expect("figures").iops_without = Some(without);
        }
        let ratios: Vec<f64> = rows(&runs, 999).iter().filter_map(|row| Some(row.slow_down?.ratio)).collect();
        assert!(matches!(ratios[..], [none, profiled] if (none - 1.0).abs() < 1e-9 && (profiled - 1.5).abs() < 1e-9));
    }

    /// Check that counts are summed over rounds, shares are of the judged stacks, and slow-downs are computed within a
    /// round.
    #[test]
    fn rounds_are_summed_up() {
        let perf = Mode::Perf { call_graph: CallGraph::Fp, zips: true };
        let mut runs = vec![
            run(Mode::None, 0, 200.0, 0, 0, 0),
            run(perf, 0, 100.0, 3000, 90, 10),
            run(Mode::None, 1, 400.0, 0, 0, 0),
            run(perf, 1, 200.0, 5000, 110, 0),
        ];
        runs.push(Run { figures: None, error: Some("it broke".to_owned()), ..run(perf, 2, 0.0, 0, 0, 0) });
        let rows = rows(&runs, 999);
        let [none, perf] = &rows[..] else { panic!("two rows: {rows:?}") };
        assert_eq!((none.slow_down, none.cpu_s, none.bytes_per_sample), (None, None, None));
        assert_eq!((perf.bytes_per_sample, perf.complete_percent), (Some(40.0), Some(50.0)));
        assert_eq!((perf.lost, perf.stacks_judged, perf.runs, perf.errors.len()), (Some(10), Some(90), 2, 1));
        assert!((perf.slow_down.expect("pairs").ratio - 2.0).abs() < 1e-9);
        assert_eq!(perf.over_fp, None, "it is the one by frame pointers");
        assert!((perf.lost_percent.expect("a share") - 100.0 * 10.0 / 210.0).abs() < 1e-9);
    }

    /// Check the median of odd, even and no values.
    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
