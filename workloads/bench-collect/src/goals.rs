//! Goals of the collector, and whether this run reached them.
//!
//! The goals have runs of their own, longer than those of the tables, so that the fixed cost of a recording (modules,
//! names, the machine) does not hide the cost per sample. Every round is judged.

use crate::bpf_cost::{BpfCost, MODES};
use crate::compiler;
use crate::config::RunConfig;
use crate::modes::{CallGraph, Collector, Mode, PERF_LARGEST, is_installed};
use crate::progress::print_progress;
use crate::run::{Figures, Run, run};
use crate::summary::{median, slow_down_words};
use fpprof_analysis::statistics::{RatioEstimate, paired_ratio};
use serde::Serialize;
use std::collections::BTreeMap;

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Goal {
    pub(crate) goal: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) measured: String,
    /// `None` if it was not measured.
    pub(crate) is_reached: Option<bool>,
}

const FP: Mode = Mode::Ours { collector: Collector::Ebpf, call_graph: CallGraph::Fp };
/// Chunks large enough for every stack of the workload.
const DWARF: Mode = Mode::Ours { collector: Collector::Ebpf, call_graph: CallGraph::Dwarf(65_536) };
const PERF: Mode = Mode::Perf { call_graph: CallGraph::Dwarf(PERF_LARGEST), zips: false };

/// The rates for which goals are set, in Hz.
const USUAL: u64 = 999;
const FAST: u64 = 4999;

/// The runs for the goals.
#[derive(Debug, Serialize)]
pub(crate) struct GoalRuns {
    pub(crate) rounds: u32,
    pub(crate) seconds: u64,
    pub(crate) runs: Vec<Run>,
    /// Stacks of a rustc compilation: (all, complete).
    pub(crate) rustc: Option<(u64, u64)>,
}

impl GoalRuns {
    /// Runs the modes in turn.
    pub(crate) fn measure(config: &RunConfig, is_quick: bool) -> Self {
        let (rounds, seconds) = if is_quick { (1, 2) } else { (5, 5) };
        let config = RunConfig { seconds, ..config.clone() };
        let mut wanted = vec![(USUAL, Mode::None), (USUAL, FP), (USUAL, DWARF), (FAST, FP), (FAST, DWARF)];
        wanted.extend(is_installed("perf").then_some((USUAL, PERF)));
        let mut runs = Vec::new();
        for round in 0..rounds {
            let turn = round as usize % wanted.len();
            for &(rate, mode) in wanted.iter().cycle().skip(turn).take(wanted.len()) {
                print_progress(&format!("goals, round {} of {rounds}: {mode} at {rate} Hz", round + 1));
                runs.push(run(&config, mode, rate, round, true));
            }
        }
        let rustc = compiler::complete(&config).inspect_err(|error| print_progress(&format!("rustc: {error:#}"))).ok();
        Self { rounds, seconds, runs, rustc }
    }

    /// Evaluates all goals.
    pub(crate) fn goals(&self, bpf: &[BpfCost]) -> Vec<Goal> {
        let mut goals = self.size();
        goals.extend([
            self.memory(),
            self.picture(),
            self.lost(USUAL),
            self.lost(FAST),
            self.cpu(),
            self.slow_down(bpf),
        ]);
        let wanted = [(4096, "both", 1500.0), (65_536, "dwarf", 2500.0), (4096, "cfi", 2000.0)];
        goals.extend(wanted.map(|(bytes, mode, most_ns)| bpf_goal(bpf, bytes, mode, most_ns)));
        goals.extend([self.rustc(), self.brief("start", |one| one.start_s), self.brief("stop", |one| one.stop_s)]);
        goals
    }

    fn figures(&self, mode: Mode, rate: u64) -> impl Iterator<Item = &Figures> {
        let is_meant = move |run: &&Run| run.key == mode && run.rate == rate;
        self.runs.iter().filter(is_meant).filter_map(|run| run.figures.as_ref())
    }

    /// One value per round that has it.
    fn values(&self, mode: Mode, rate: u64, of: impl Fn(&Figures) -> Option<f64>) -> Spread {
        Spread(self.figures(mode, rate).filter_map(of).collect())
    }

    fn size(&self) -> Vec<Goal> {
        let bytes = |one: &Figures| ratio(Some(one.bytes), one.judged.recorded);
        let complete = |one: &Figures| ratio(one.judged.complete, one.judged.stacks).map(|share| share * 100.0);
        let (complete, dwarf, fp) =
            (self.values(DWARF, USUAL, complete), self.values(DWARF, USUAL, bytes), self.values(FP, USUAL, bytes));
        vec![
            complete.goal("complete stacks of nbdkit and fio, dwarf", "≥ 99.9 %", " %", 2, |value| value >= 99.9),
            dwarf.goal("their bytes a sample on disk", "≤ 150 B", " B", 1, |value| value <= 150.0),
            fp.goal("bytes a sample on disk, fp", "≤ 12 B", " B", 1, |value| value <= 12.0),
        ]
    }

    fn memory(&self) -> Goal {
        let largest = |one: &Figures| Some(one.max_rss_bytes as f64 / 1e6);
        self.values(DWARF, FAST, largest)
            .goal("peak RSS at 4999 Hz, dwarf", "≤ 64 MB", " MB", 1, |value| value <= 64.0)
    }

    fn picture(&self) -> Goal {
        let seconds = |one: &Figures| Some(one.stop_s + one.svg_s?);
        let goal = "end of the command to the flame graph, dwarf, 999 Hz";
        let mut goal = self.values(DWARF, USUAL, seconds).goal(goal, "≤ 0.3 s", " s", 2, |value| value <= 0.3);
        goal.beside("perf with perf script and inferno", &self.values(PERF, USUAL, seconds), " s", 2);
        goal
    }

    /// Sums over all rounds: a loss in any round counts.
    fn lost(&self, rate: u64) -> Goal {
        let (mut recorded, mut lost) = (None, 0);
        let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
        for judged in self.figures(DWARF, rate).map(|one| &one.judged) {
            recorded = recorded.unwrap_or(Some(0)).zip(judged.recorded).map(|(all, one)| Some(all + one));
            lost += judged.lost.unwrap_or(0);
            for (cause, n) in &judged.lost_by_cause {
                *causes.entry(cause).or_default() += n;
            }
        }
        let (goal, wanted, most) = if rate == FAST {
            ("lost at 4999 Hz, dwarf", "≤ 0.1 %", 0.001)
        } else {
            ("lost at 999 Hz, dwarf", "0", 0.0)
        };
        let n = self.figures(DWARF, rate).count();
        let Some(recorded) = recorded.flatten().filter(|_| n > 0) else { return Goal::unmeasured(goal, wanted) };
        let share = lost as f64 / (recorded + lost).max(1) as f64;
        let by_cause: Vec<String> = causes.iter().map(|(cause, n)| format!("{n} {cause}")).collect();
        let by_cause = if by_cause.is_empty() { String::new() } else { format!(" ({})", by_cause.join(", ")) };
        let percent = share * 100.0;
        let measured = format!("{lost} of {}{by_cause}, {percent:.3} %, {n} rounds together", recorded + lost);
        Goal { goal, wanted, measured, is_reached: Some(share <= most) }
    }

    fn cpu(&self) -> Goal {
        let (goal, wanted) = ("CPU of the collector, dwarf, 999 Hz", "≤ 1/2 of perf's");
        let cpu = |one: &Figures| Some(one.cpu_s);
        let (ours, perfs) = (self.values(DWARF, USUAL, cpu), self.values(PERF, USUAL, cpu));
        let Some((ours_s, perfs_s)) = ours.median().zip(perfs.median()) else { return Goal::unmeasured(goal, wanted) };
        let measured = format!("{} beside {}", ours.text(" s", 2), perfs.text(" s", 2));
        Goal { goal, wanted, measured, is_reached: Some(ours_s <= perfs_s / 2.0) }
    }

    /// Compares operations per second in `fp` mode with those in `dwarf` mode, and with the difference that the longer
    /// BPF program explains.
    fn slow_down(&self, bpf: &[BpfCost]) -> Goal {
        let (goal, wanted) = ("slow-down by dwarf over fp, 999 Hz", "none within the interval, or explained");
        let iops = |mode: Mode, round| {
            let run = self.runs.iter().find(|run| (run.key, run.rate, run.round) == (mode, USUAL, round))?;
            run.figures.as_ref().map(|one| one.iops)
        };
        let of = |mode| -> Option<RatioEstimate> {
            let pairs = (0..self.rounds).filter_map(|round| iops(DWARF, round).zip(iops(mode, round)));
            paired_ratio(&pairs.collect::<Vec<_>>()).ok()
        };
        let Some(estimate) = of(FP) else { return Goal::unmeasured(goal, wanted) };
        let explained = bpf
            .iter()
            .find(|cost| cost.stack_bytes == 65_536)
            .and_then(|cost| Some((cost.median_ns("dwarf")? - cost.median_ns("fp")?) * 1e-9 * USUAL as f64));
        let mut measured = format!("{}, n = {}", slow_down_words(estimate), estimate.n);
        if let Some(explained) = explained {
            measured.push_str(&format!("; ns of 64 KiB × rate explain up to {:+.2} %", explained * 100.0));
        }
        if let Some(whole) = of(Mode::None) {
            measured.push_str(&format!("; over none {}", slow_down_words(whole)));
        }
        let is_reached = estimate.interval.map(|interval| interval.low <= 1.0 + explained.unwrap_or(0.0));
        Goal { goal, wanted, measured, is_reached }
    }

    fn rustc(&self) -> Goal {
        let (goal, wanted) = ("complete stacks of rustc, dwarf,1M", "≥ 99 %");
        let Some((stacks, complete)) = self.rustc else { return Goal::unmeasured(goal, wanted) };
        let percent = complete as f64 / stacks.max(1) as f64 * 100.0;
        let measured = format!("{percent:.2} % of {stacks}, one run");
        Goal { goal, wanted, measured, is_reached: Some(stacks > 0 && percent >= 99.0) }
    }

    fn brief(&self, what: &'static str, of: fn(&Figures) -> f64) -> Goal {
        let mut goal =
            self.values(DWARF, USUAL, |one| Some(of(one))).goal(what, "< 0.3 s", " s", 3, |value| value < 0.3);
        goal.beside("perf", &self.values(PERF, USUAL, |one| Some(of(one))), " s", 3);
        goal
    }
}

fn bpf_goal(bpf: &[BpfCost], bytes: u64, mode: &str, most_ns: f64) -> Goal {
    let (goal, wanted) = match mode {
        "both" => ("BPF program, paired sample of 4 KiB and 23 frames", "≤ 1.5 µs"),
        "cfi" => ("BPF program, walk of 23 frames by call frame information", "≤ 2 µs"),
        _ => ("BPF program, chunk of 64 KiB", "≤ 2.5 µs"),
    };
    let Some(cost) = bpf.iter().find(|cost| cost.stack_bytes == bytes) else { return Goal::unmeasured(goal, wanted) };
    let spread = Spread(cost.rounds_of(mode).to_vec());
    let mut goal = spread.goal(goal, wanted, " ns", 0, |ns| ns <= most_ns);
    goal.beside("memcpy of as much", &Spread(cost.memcpy_ns.clone()), " ns", 0);
    goal
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    part.zip(whole).filter(|&(_, whole)| whole > 0).map(|(part, whole)| part as f64 / whole as f64)
}

/// The values of all rounds.
struct Spread(Vec<f64>);

impl Spread {
    fn median(&self) -> Option<f64> {
        median(self.0.clone())
    }

    /// Formats as `0.12 s (0.11–0.14, n = 5)`.
    fn text(&self, unit: &str, digits: usize) -> String {
        let Some(middle) = self.median() else { return "–".to_owned() };
        let (least, most) = self.0.iter().fold((middle, middle), |(low, high), &v| (low.min(v), high.max(v)));
        format!("{middle:.digits$}{unit} ({least:.digits$}–{most:.digits$}, n = {})", self.0.len())
    }

    fn goal(
        &self,
        goal: &'static str,
        wanted: &'static str,
        unit: &str,
        digits: usize,
        reaches: impl Fn(f64) -> bool,
    ) -> Goal {
        Goal { goal, wanted, measured: self.text(unit, digits), is_reached: self.median().map(reaches) }
    }
}

impl Goal {
    fn unmeasured(goal: &'static str, wanted: &'static str) -> Self {
        Self { goal, wanted, measured: "–".to_owned(), is_reached: None }
    }

    fn beside(&mut self, who: &str, spread: &Spread, unit: &str, digits: usize) {
        if !spread.0.is_empty() {
            self.measured = format!("{}; {who}: {}", self.measured, spread.text(unit, digits));
        }
    }

    /// The row of the table.
    pub(crate) fn line(&self) -> String {
        let verdict = match self.is_reached {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "not measured",
        };
        format!("| {} | {} | {} | {verdict} |\n", self.goal, self.wanted, self.measured)
    }
}

impl BpfCost {
    /// The rounds of one of [`MODES`], by the prefix of its name.
    fn rounds_of(&self, mode: &str) -> &[f64] {
        let place = MODES.iter().position(|name| name.split(',').next() == Some(mode));
        place.and_then(|place| self.ns_per_sample.get(place)).map_or(&[], Vec::as_slice)
    }

    fn median_ns(&self, mode: &str) -> Option<f64> {
        median(self.rounds_of(mode).to_vec())
    }
}

#[cfg(test)]
mod tests;
