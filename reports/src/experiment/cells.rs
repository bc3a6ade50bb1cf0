//! The cells of the table, the same in every format. Names are raw: each format escapes them in its own way.

use crate::figures::{bytes, change, count, nanoseconds, number, share};
use crate::verdict::is_large;
use fpprof_analysis::experiment::{Experiment, ExperimentMethod, ExperimentRow, Measured, StackEnds, StrategyStacks};
use fpprof_analysis::statistics::{Estimate, RatioEstimate};
use std::collections::BTreeMap;

/// The whole table.
pub(super) struct Sheet {
    /// The heading of the metric's column.
    pub(super) metric: String,
    pub(super) lines: Vec<Line>,
    /// Reasons for missing figures; [`Figure::note`] is an index into them.
    pub(super) notes: Vec<String>,
}

/// One mode.
pub(super) struct Line {
    pub(super) mode: String,
    pub(super) bytes: Figure,
    pub(super) bytes_per_sample: Figure,
    pub(super) times_fp: Figure,
    /// The balance in one cell.
    pub(super) samples: Figure,
    /// The balance in columns.
    pub(super) balance: Balance,
    pub(super) lost_chunks: Figure,
    pub(super) cpu: Figure,
    pub(super) bpf: Figure,
    /// The cost that the recordings attribute to themselves, in per cent of the target's CPU time.
    pub(super) attributed: Figure,
    pub(super) metric: Figure,
    /// The metric relative to the baseline, for drawings.
    pub(super) ratio: Option<RatioEstimate>,
    /// How stacks ended, by strategy; a single figure with a note if that is unknown.
    pub(super) stacks: Result<Vec<StrategyLine>, Figure>,
}

/// The parts of the balance.
#[derive(Default)]
pub(super) struct Balance {
    pub(super) fired: Figure,
    pub(super) recorded: Figure,
    /// The detail is by cause, such as `ring_full 40, throttled 4`; empty if nothing was lost or no cause is known.
    pub(super) lost: Figure,
    pub(super) skipped: Figure,
    pub(super) dropped: Figure,
    /// Whether the balance held, in words; empty if that cannot be checked.
    pub(super) check: String,
    /// Whether the balance held wherever it could be checked.
    pub(super) holds: bool,
}

/// A figure, its detail, and the note that says why it is missing.
#[derive(Default)]
pub(super) struct Figure {
    pub(super) text: String,
    pub(super) detail: String,
    pub(super) note: Option<usize>,
}

/// How stacks ended under one strategy.
pub(super) struct StrategyLine {
    /// The strategy, and the unwinder where that is not obvious.
    pub(super) label: String,
    /// All processes of the target first (if there are several), then each.
    pub(super) processes: Vec<ProcessLine>,
    /// Name of the file next to the report.
    pub(super) flame_graph: Result<String, Figure>,
}

/// How the stacks of one process name ended.
pub(super) struct ProcessLine {
    pub(super) name: String,
    pub(super) ends: StackEnds,
    /// The most frequent reasons, such as `chunk_end 44.1 %`; empty if all stacks are complete.
    pub(super) reasons: Vec<String>,
}

/// The most reasons named for one process.
const MAX_REASONS: usize = 3;

impl Line {
    /// Whether this mode records anything.
    pub(super) fn records(&self) -> bool {
        !self.balance.recorded.text.is_empty()
    }
}

impl Sheet {
    /// Builds the cells of every row.
    pub(super) fn new(experiment: &Experiment) -> Self {
        let mut notes = Notes::default();
        let lines = experiment.rows.iter().map(|row| line(experiment, row, &mut notes)).collect();
        Self { metric: metric_title(experiment), lines, notes: notes.0 }
    }
}

/// The letter of a note: a, b, … z, then aa, ab, …
pub(super) fn note_letter(note: usize) -> String {
    let mut rest = note;
    let mut letters = String::new();
    loop {
        let letter = u8::try_from(rest % 26).map_or('?', |n| char::from(b'a'.saturating_add(n)));
        letters.insert(0, letter);
        if rest < 26 {
            return letters;
        }
        rest = rest / 26 - 1;
    }
}

/// Reasons for missing figures, without duplicates.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn missing(&mut self, reason: &str) -> Figure {
        let known = self.0.iter().position(|note| note == reason);
        let note = known.unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        });
        Figure { text: "–".to_owned(), detail: String::new(), note: Some(note) }
    }

    fn figure<T>(&mut self, measured: &Measured<T>, show: impl FnOnce(&T) -> Figure) -> Figure {
        match measured {
            Measured::Value(value) => show(value),
            Measured::Missing(reason) => self.missing(reason),
        }
    }
}

fn plain(text: impl Into<String>) -> Figure {
    Figure { text: text.into(), ..Figure::default() }
}

fn with_detail(text: impl Into<String>, detail: impl Into<String>) -> Figure {
    Figure { text: text.into(), detail: detail.into(), note: None }
}

fn line(experiment: &Experiment, row: &ExperimentRow, notes: &mut Notes) -> Line {
    let sums = &row.aggregate;
    let ratio = if experiment.metric.is_some() { &sums.metric_vs_none } else { &sums.wall_vs_none }.value().copied();
    // Nothing is recorded in this row, so its empty cells need no note.
    if row.method == ExperimentMethod::None {
        let empty = || plain("");
        return Line {
            mode: row.mode.clone(),
            bytes: empty(),
            bytes_per_sample: empty(),
            times_fp: empty(),
            samples: empty(),
            balance: Balance { holds: true, ..Balance::default() },
            lost_chunks: empty(),
            cpu: empty(),
            bpf: empty(),
            attributed: empty(),
            metric: metric(experiment, row, notes),
            ratio,
            stacks: Err(empty()),
        };
    }
    let balance = balance(row, notes);
    Line {
        mode: row.mode.clone(),
        bytes: notes.figure(&sums.bytes, |size| plain(bytes(size.mean))),
        bytes_per_sample: notes.figure(&sums.bytes_per_sample, |size| plain(bytes(size.mean))),
        times_fp: if row.method == ExperimentMethod::Fp && sums.bytes_vs_fp.value().is_none() {
            plain("1×")
        } else {
            notes.figure(&sums.bytes_vs_fp, |times| plain(format!("{}×", number(times.ratio))))
        },
        samples: samples(&balance),
        balance,
        lost_chunks: notes.figure(&sums.lost_chunks, |&chunks| plain(count(chunks))),
        cpu: cpu(row, notes),
        bpf: notes.figure(&sums.bpf_ns_per_sample, |time| plain(nanoseconds(time.mean))),
        attributed: attributed(row, notes),
        metric: metric(experiment, row, notes),
        ratio,
        stacks: match &sums.stacks {
            Measured::Value(strategies) => Ok(strategies.iter().map(|stacks| strategy(stacks, notes)).collect()),
            Measured::Missing(reason) => Err(notes.missing(reason)),
        },
    }
}

/// The balance `fired = recorded + lost by cause + skipped + dropped`, as far as the tool reports it.
fn balance(row: &ExperimentRow, notes: &mut Notes) -> Balance {
    let samples = &row.aggregate.samples;
    let mut number = |measured| notes.figure(measured, |&n| plain(count(n)));
    let (fired, recorded) = (number(&samples.fired), number(&samples.recorded));
    let (skipped, dropped) = (number(&samples.skipped), number(&samples.dropped));
    let lost = notes.figure(&samples.lost, |lost| {
        let causes: Vec<_> = lost.iter().filter(|&(_, &n)| n > 0).collect();
        let by_cause = match causes.as_slice() {
            [] => String::new(),
            [(cause, _)] if *cause == "lost" => String::new(),
            [(cause, _)] => (*cause).clone(),
            several => {
                several.iter().map(|(cause, n)| format!("{cause} {}", count(**n))).collect::<Vec<_>>().join(", ")
            }
        };
        let all = causes.iter().fold(0_u64, |sum, &(_, &n)| sum.saturating_add(n));
        with_detail(count(all), by_cause)
    });
    let check = row.aggregate.balance.value();
    let holds = check.is_none_or(|check| check.exact == check.runs);
    let check = check.map_or(String::new(), |check| {
        let (exact, runs, worst) = (check.exact, check.runs, check.worst_unaccounted);
        if holds {
            format!("exact in {exact}/{runs}")
        } else {
            format!("exact in only {exact}/{runs}, up to {worst} unaccounted")
        }
    });
    Balance { fired, recorded, lost, skipped, dropped, check, holds }
}

/// The balance in one cell; terms that are 0 are left out.
fn samples(balance: &Balance) -> Figure {
    let sign = if balance.holds { "=" } else { "≠" };
    let mut text = format!("{} {sign} {} + {} lost", balance.fired.text, balance.recorded.text, balance.lost.text);
    if !balance.lost.detail.is_empty() {
        text.push_str(&format!(" ({})", balance.lost.detail));
    }
    for (word, figure) in [("skipped", &balance.skipped), ("dropped", &balance.dropped)] {
        if figure.note.is_none() && figure.text != "0" {
            text.push_str(&format!(" + {} {word}", figure.text));
        }
    }
    let note = balance.fired.note.or(balance.recorded.note).or(balance.lost.note);
    Figure { text, detail: balance.check.clone(), note }
}

fn cpu(row: &ExperimentRow, notes: &mut Notes) -> Figure {
    let sums = &row.aggregate;
    notes.figure(&sums.collector_cpu_percent, |percent| {
        let mut detail = sums.collector_cpu_s.value().map_or(String::new(), |time| format!("{:.2} s", time.mean));
        if let Some(after) = sums.collector_stop_cpu_s.value() {
            detail.push_str(&format!(" ({:.2} s after)", after.mean));
        }
        with_detail(format!("{} %", number(percent.mean)), detail)
    })
}

/// Attributed cost such as `1.2 % to 3.5 %`: in the target itself, and including the collector.
fn attributed(row: &ExperimentRow, notes: &mut Notes) -> Figure {
    let sums = &row.aggregate;
    notes.figure(&sums.attributed_on_target_percent, |on_target| {
        let all = sums.attributed_percent.value().map_or(on_target.mean, |all| all.mean);
        plain(format!("{} % to {} %", number(on_target.mean), number(all)))
    })
}

fn metric_title(experiment: &Experiment) -> String {
    match &experiment.metric {
        Some(metric) if metric.unit.is_empty() => metric.name.clone(),
        Some(metric) => format!("{} ({})", metric.name, metric.unit),
        None => "wall time (s)".to_owned(),
    }
}

fn metric(experiment: &Experiment, row: &ExperimentRow, notes: &mut Notes) -> Figure {
    let sums = &row.aggregate;
    let (value, ratio) = match experiment.metric {
        Some(_) => (&sums.metric, &sums.metric_vs_none),
        None => (&sums.wall_s, &sums.wall_vs_none),
    };
    let is_baseline = experiment
        .rows
        .iter()
        .find(|other| other.method == ExperimentMethod::None)
        .is_some_and(|none| std::ptr::eq(none, row));
    let detail = match ratio {
        _ if is_baseline => "baseline".to_owned(),
        Measured::Value(ratio) => change_with_interval(ratio),
        Measured::Missing(_) => String::new(),
    };
    let mut figure = notes.figure(value, |value: &Estimate| with_detail(number(value.mean), detail));
    if let Some(reason) = ratio.reason().filter(|_| !is_baseline && figure.note.is_none()) {
        figure.note = notes.missing(reason).note;
    }
    figure
}

/// A change with its interval, such as `−3.1 % [−5.0 %, −1.2 %]`.
pub(super) fn change_with_interval(ratio: &RatioEstimate) -> String {
    match ratio.interval {
        Some(interval) => format!("{} [{}, {}]", change(ratio.ratio), change(interval.low), change(interval.high)),
        None => format!("{} (one run)", change(ratio.ratio)),
    }
}

fn strategy(stacks: &StrategyStacks, notes: &mut Notes) -> StrategyLine {
    let label = match &stacks.unwound_by {
        Some(by) => format!("{}, unwound by {by}", stacks.strategy),
        None => stacks.strategy.clone(),
    };
    let (large, small): (Vec<_>, Vec<_>) =
        stacks.processes.iter().partition(|process| is_large(process.ends.samples, stacks.all.samples));
    let mut processes: Vec<_> = large.iter().map(|process| process_line(&process.name, &process.ends)).collect();
    if stacks.processes.len() != 1 {
        processes.insert(0, process_line("all", &stacks.all));
    }
    if !small.is_empty() {
        let mut ends = StackEnds::default();
        small.iter().for_each(|process| ends.add(&process.ends));
        processes.push(process_line(&format!("({} more)", small.len()), &ends));
    }
    let flame_graph = match &stacks.flame_graph {
        Measured::Value(file) => Ok(file.clone()),
        Measured::Missing(reason) => Err(notes.missing(reason)),
    };
    StrategyLine { label, processes, flame_graph }
}

fn process_line(name: &str, ends: &StackEnds) -> ProcessLine {
    ProcessLine { name: name.to_owned(), ends: ends.clone(), reasons: reasons(ends) }
}

/// The most frequent reasons of truncated and broken stacks together.
fn reasons(ends: &StackEnds) -> Vec<String> {
    let named = |class: &'static str, counts: &BTreeMap<String, u64>| {
        counts.iter().filter(|&(_, &n)| n > 0).map(|(reason, &n)| (n, class, reason.clone())).collect::<Vec<_>>()
    };
    let mut all = named("truncated", &ends.truncated);
    all.extend(named("broken", &ends.broken));
    // Names break ties: the order is deterministic.
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    let mut lines: Vec<_> =
        all.iter().take(MAX_REASONS).map(|(n, _, reason)| format!("{reason} {}", share(*n, ends.samples))).collect();
    let rest = all.get(MAX_REASONS..).unwrap_or_default();
    if !rest.is_empty() {
        let n = rest.iter().fold(0_u64, |sum, (n, ..)| sum.saturating_add(*n));
        lines.push(format!("{} more {}", rest.len(), share(n, ends.samples)));
    }
    lines
}

/// The shares `complete / truncated / broken` in per cent.
pub(super) fn shares(ends: &StackEnds) -> [String; 3] {
    [ends.complete, ends.n_truncated(), ends.n_broken()].map(|n| share(n, ends.samples))
}
