//! The verdict: a few sentences computed from the numbers by a rule that is printed with them.
//!
//! ```text
//! usable(mode)  = all samples, at least 100, and every process name with >= 1 % and 100 of them, have >= 99 % complete
//!                 stacks,
//!                 of frame pointers alone >= 99 % have every frame of DWARF's and no wrong one (in the mode `both`),
//!                 lost and dropped samples <= 0.1 % of those that should be there,
//!                 and the balance holds in every run that can be checked
//! verdict       = the usable mode with the fewest bytes a sample
//! slower(mode)  = the 95 % interval of its slow-down lies above none
//! ```

use super::cells::change_with_interval;
use crate::figures::{bytes, change, count, number, plural, share};
use crate::finding::{Finding, Judgement};
use crate::verdict::{MAX_LOST, MIN_SAMPLES, is_good, is_judged, is_large};
use fpprof_analysis::experiment::{
    Experiment, ExperimentMethod, ExperimentRow, Measured, Right, StackEnds, StrategyStacks, Tool,
};
use fpprof_analysis::statistics::RatioEstimate;

/// The rule in words.
pub(super) const RULE: &str = "A mode is usable if it has at least 100 stacks, and at least 99 % of them are complete, overall and in \
    every process with at least 100 samples and 1 % of the target's samples; if at most 0.1 % of the samples are lost or \
    dropped; and if the balance holds in every run where it can be checked. The verdict is the usable mode with the \
    fewest bytes per sample. A complete frame-pointer stack can still miss the caller of its leaf, so frame pointers are \
    usable only if, where both kinds of stack were taken in the same samples, at least 99 % of their stacks have every \
    frame of DWARF's and no wrong one. A slow-down counts only if its 95 % interval excludes none; each mode is judged by itself, so of twenty \
    modes that cost nothing, about one is expected to differ by chance.";

/// The sentences of the verdict, the most important first.
pub(super) fn findings(experiment: &Experiment) -> Vec<Finding> {
    let mut findings = vec![headline(experiment)];
    findings.extend(frame_pointers(experiment));
    findings.extend(unusable(experiment));
    findings.extend(against_perf(experiment));
    findings.extend(slow_downs(experiment));
    findings.extend(attribution(experiment));
    findings.extend(again(experiment));
    findings.extend(balance(experiment));
    findings
}

/// A mode, judged by one of its strategies.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    row: &'a ExperimentRow,
    stacks: &'a StrategyStacks,
    bytes_per_sample: Option<f64>,
    /// How many frame-pointer stacks are right, if a mode can tell.
    right: Option<Right>,
    /// The number of runs that each mode should have.
    n_planned: u32,
}

impl<'a> Candidate<'a> {
    /// The strategy of `row` with the most complete stacks. A mode that records more than frame pointers is not judged by
    /// these: their stacks can be more complete than those of the chunks, and yet miss callers.
    fn of(experiment: &Experiment, row: &'a ExperimentRow) -> Option<Self> {
        let strategies = row.aggregate.stacks.value()?;
        let is_judged = |stacks: &&StrategyStacks| row.method == ExperimentMethod::Fp || stacks.strategy != "fp";
        let stacks = strategies
            .iter()
            .filter(is_judged)
            .reduce(|best, next| if complete(next) > complete(best) { next } else { best })?;
        let bytes_per_sample = row.aggregate.bytes_per_sample.value().map(|size| size.mean);
        let (right, n_planned) = (frame_pointers_right(experiment), experiment.repeats);
        Some(Self { row, stacks, bytes_per_sample, right, n_planned })
    }

    fn lost_share(&self) -> Option<f64> {
        self.row.aggregate.samples.lost_share()
    }

    /// Reasons why the candidate is not usable; empty if it is.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let StrategyStacks { all, processes, .. } = self.stacks;
        let n_runs = u32::try_from(self.row.runs.len()).unwrap_or(u32::MAX);
        if n_runs < self.n_planned {
            faults.push(format!("{} of {} runs failed", self.n_planned - n_runs, self.n_planned));
        }
        if all.samples < MIN_SAMPLES {
            faults.push(format!("only {} stack{}", count(all.samples), plural(all.samples)));
        }
        let is_complete = |ends: &StackEnds| is_good(ends.complete, ends.samples);
        let judged = processes.iter().filter(|process| is_judged(process.ends.samples, all.samples));
        for process in judged.filter(|process| !is_complete(&process.ends)) {
            faults.push(format!("{} {} complete", process.name, share(process.ends.complete, process.ends.samples)));
        }
        if faults.is_empty() && !is_complete(all) {
            faults.push(format!("overall {} complete", share(all.complete, all.samples)));
        }
        if self.stacks.strategy == "fp" {
            match self.right {
                Some(Right { compared, right }) if !is_good(right, compared) => {
                    let wrong = compared.saturating_sub(right);
                    faults.push(format!("{} with missing or wrong frames", share(wrong, compared)));
                }
                Some(_) => {}
                None => faults.push("not compared with complete DWARF stacks, as mode both does".to_owned()),
            }
        }
        match self.lost_share().map(|lost| lost * 100.0) {
            Some(lost) if lost > MAX_LOST => faults.push(format!("{} % lost", number(lost))),
            Some(_) => {}
            None => faults.push("lost samples unknown".to_owned()),
        }
        if self.row.aggregate.balance.value().is_some_and(|balance| balance.exact < balance.runs) {
            faults.push("the balance does not hold".to_owned());
        }
        faults
    }
}

fn complete(stacks: &StrategyStacks) -> f64 {
    crate::figures::percent(stacks.all.complete, stacks.all.samples)
}

/// How many frame-pointer stacks are right, according to the mode with the largest chunks of those with both kinds of
/// stack; `None` if there is none, or if its DWARF stacks are no valid reference.
fn frame_pointers_right(experiment: &Experiment) -> Option<Right> {
    let has_stacks = |row: &&ExperimentRow| row.aggregate.stacks.value().is_some();
    let rows = experiment.rows.iter().filter(|row| row.method == ExperimentMethod::Both).filter(has_stacks);
    let both = rows.max_by_key(|row| row.stack_bytes)?;
    let dwarf = both.aggregate.stacks.value()?.iter().find(|stacks| stacks.strategy == "dwarf")?;
    let right = both.aggregate.frame_pointers.value().filter(|right| right.compared > 0);
    right.copied().filter(|_| is_good(dwarf.all.complete, dwarf.all.samples))
}

fn candidates(experiment: &Experiment) -> impl Iterator<Item = Candidate<'_>> {
    let rows = experiment.rows.iter().filter(|row| row.method != ExperimentMethod::None);
    rows.filter_map(|row| Candidate::of(experiment, row))
}

/// Mode, ends and file of the flame graphs to embed: frame pointers first, then the most complete other mode.
pub(super) fn pictured(experiment: &Experiment) -> Vec<(&str, &StackEnds, &str)> {
    let drawn = |candidate: Candidate<'_>| candidate.stacks.flame_graph.value().is_some();
    let fp = candidates(experiment).find(|candidate| candidate.row.method == ExperimentMethod::Fp && drawn(*candidate));
    let other = candidates(experiment)
        .filter(|candidate| candidate.row.method != ExperimentMethod::Fp && drawn(*candidate))
        .reduce(|best, next| if complete(next.stacks) > complete(best.stacks) { next } else { best });
    [fp, other]
        .into_iter()
        .flatten()
        .filter_map(|candidate| {
            let Candidate { row, stacks, .. } = candidate;
            Some((row.mode.as_str(), &stacks.all, stacks.flame_graph.value()?.as_str()))
        })
        .collect()
}

fn headline(experiment: &Experiment) -> Finding {
    let size = |candidate: &Candidate<'_>| candidate.bytes_per_sample.unwrap_or(f64::INFINITY);
    let usable = candidates(experiment)
        .filter(|candidate| candidate.bytes_per_sample.is_some() && candidate.faults().is_empty())
        .reduce(|best, next| if size(&next) < size(&best) { next } else { best });
    if let Some(best) = usable {
        let lost = best.lost_share().map_or("–".to_owned(), |lost| number(lost * 100.0));
        let ends = &best.stacks.all;
        return Finding::new(Judgement::Good).name(&best.row.mode).words(format!(
            " is the cheapest usable mode for this workload: {} of the stacks complete, {lost} % of the samples \
             lost, {} per sample.",
            share(ends.complete, ends.samples),
            best.bytes_per_sample.map_or("–".to_owned(), bytes),
        ));
    }
    let best = candidates(experiment)
        .reduce(|best, next| if complete(next.stacks) > complete(best.stacks) { next } else { best });
    match best {
        Some(best) => Finding::new(Judgement::Bad)
            .words("No mode is usable for this workload. ")
            .name(&best.row.mode)
            .words(" has the most complete stacks (")
            .words(share(best.stacks.all.complete, best.stacks.all.samples))
            .words("), but: ")
            .words(best.faults().join(", "))
            .words("."),
        None => Finding::new(Judgement::Bad).words("There are no stacks."),
    }
}

/// The result of frame pointers alone.
fn frame_pointers(experiment: &Experiment) -> Option<Finding> {
    let row = experiment.rows.iter().find(|row| row.method == ExperimentMethod::Fp && row.tool == Tool::Fpprof)?;
    let candidate = Candidate::of(experiment, row)?;
    let (stacks, usable) = (candidate.stacks, candidate.faults().is_empty());
    let by_process = stacks
        .processes
        .iter()
        .filter(|process| is_large(process.ends.samples, stacks.all.samples))
        .map(|process| (process.name.as_str(), format!(" {}", share(process.ends.complete, process.ends.samples))));
    let finding = Finding::new(if usable { Judgement::Good } else { Judgement::Bad })
        .words(format!("Frame pointers complete {} of the stacks: ", share(stacks.all.complete, stacks.all.samples)))
        .list(by_process);
    let finding = match candidate.right {
        Some(Right { compared, right }) => finding.words(format!(
            "; {} have missing or wrong frames, complete or not",
            share(compared.saturating_sub(right), compared)
        )),
        None => finding,
    };
    let worst = stacks.all.truncated.iter().chain(&stacks.all.broken).max_by_key(|&(_, &n)| n);
    Some(match worst {
        Some((reason, &n)) if n > 0 => finding
            .words("; the most common other end is ")
            .name(reason)
            .words(format!(" ({}).", share(n, stacks.all.samples))),
        _ => finding.words("."),
    })
}

/// The modes with copied stacks that fail, and why.
fn unusable(experiment: &Experiment) -> Option<Finding> {
    let failing: Vec<_> = candidates(experiment)
        .filter(|candidate| candidate.row.method != ExperimentMethod::Fp)
        .map(|candidate| (candidate.row.mode.as_str(), candidate.faults()))
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(mode, faults)| (mode, format!(" ({})", faults.join(", "))))
        .collect();
    let finding = Finding::new(Judgement::Bad).words("Not usable: ");
    (!failing.is_empty()).then(|| finding.list(failing).words("."))
}

/// Compares fpprof's largest chunk with perf's largest.
fn against_perf(experiment: &Experiment) -> Option<Finding> {
    let largest = |tool| {
        candidates(experiment)
            .filter(|candidate| candidate.row.tool == tool && candidate.row.method == ExperimentMethod::Dwarf)
            .max_by_key(|candidate| candidate.row.stack_bytes)
    };
    let (ours, perf) = (largest(Tool::Fpprof)?, largest(Tool::Perf)?);
    let (our_size, perf_size) = (ours.bytes_per_sample?, perf.bytes_per_sample?);
    let ends = |candidate: &Candidate<'_>| share(candidate.stacks.all.complete, candidate.stacks.all.samples);
    let finding = Finding::new(Judgement::Neutral)
        .name(&ours.row.mode)
        .words(format!(" takes {} per sample and completes {} of its stacks; ", bytes(our_size), ends(&ours)))
        .name(&perf.row.mode)
        .words(format!(" takes {} and completes {}: ", bytes(perf_size), ends(&perf)));
    Some(if perf_size >= our_size {
        finding.words(format!("{}× the bytes.", number(perf_size / our_size)))
    } else {
        finding.words(format!("fpprof takes {}× the bytes.", number(our_size / perf_size)))
    })
}

/// Slow-down relative to the command alone; above 1 is slower.
fn slow_down<'a>(experiment: &Experiment, row: &'a ExperimentRow) -> &'a Measured<RatioEstimate> {
    if experiment.metric.is_some() { &row.aggregate.slow_down } else { &row.aggregate.wall_vs_none }
}

/// The most slow-downs listed one by one; of more, only the smallest and the largest.
const MAX_LISTED: usize = 3;

/// The measured slow-downs, or the smallest and the largest of many, and the effect that was detectable otherwise.
fn slow_downs(experiment: &Experiment) -> Option<Finding> {
    let by = experiment.metric.as_ref().map_or("wall time", |metric| metric.name.as_str());
    let ratios: Vec<_> = experiment
        .rows
        .iter()
        .filter(|row| row.method != ExperimentMethod::None)
        .filter_map(|row| Some((row, slow_down(experiment, row).value()?)))
        .collect();
    let n = ratios.iter().map(|(_, ratio)| ratio.n).max()?;
    let finding = Finding::new(Judgement::Neutral).words("Slow-down by ").name(by).words(": ");
    if n < 2 {
        return Some(finding.words(match experiment.repeats {
            1 => "unknown, as a single run has no interval; use --repeat 3 or more.",
            _ => "unknown, as in fewer than two rounds both a mode and the command alone gave a value.",
        }));
    }
    let by_ratio = |a: &&&(&ExperimentRow, &RatioEstimate), b: &&&(&ExperimentRow, &RatioEstimate)| {
        a.1.ratio.total_cmp(&b.1.ratio)
    };
    let differing: Vec<_> = ratios.iter().filter(|(_, ratio)| ratio.differs()).collect();
    let rest: Vec<_> = ratios.iter().filter(|(_, ratio)| !ratio.differs()).collect();
    let mut finding = if differing.is_empty() {
        finding.words("no mode was measurably slower")
    } else if differing.len() <= MAX_LISTED {
        finding
            .list(differing.iter().map(|(row, ratio)| (row.mode.as_str(), format!(" {}", change_with_interval(ratio)))))
    } else {
        let differ = if differing.iter().all(|(_, ratio)| ratio.ratio > 1.0) {
            "were measurably slower"
        } else {
            "differed measurably"
        };
        let finding = finding.words(format!("{} of {} modes {differ}, from ", differing.len(), ratios.len()));
        let ends = [differing.iter().min_by(by_ratio), differing.iter().max_by(by_ratio)];
        ends.into_iter().flatten().enumerate().fold(finding, |finding, (index, (row, ratio))| {
            let finding = if index > 0 { finding.words(" to ") } else { finding };
            finding.name(&row.mode).words(format!(" {}", change_with_interval(ratio)))
        })
    };
    if !rest.is_empty() && !differing.is_empty() {
        finding = finding.words("; no other mode differed measurably");
    }
    let mdes = || rest.iter().filter_map(|(_, ratio)| ratio.mde);
    if let (Some(least), Some(most)) = (mdes().reduce(f64::min), mdes().reduce(f64::max)) {
        let (least, most) = (change(1.0 + least), change(1.0 + most));
        let size = if least == most { least } else { format!("{least} to {most}") };
        finding = finding.words(format!(" (n = {n}, detectable: {size})"));
    }
    Some(finding.words("."))
}

/// The largest detectable slow-down with which it says something that none contradicts the attributed cost.
const MOST_UNSEEN: f64 = 0.1;

/// Whether the measured slow-downs lie within the attributed range: from the cost in the target itself to that plus the
/// collector's threads.
fn attribution(experiment: &Experiment) -> Option<Finding> {
    let seen: Vec<_> = experiment.rows.iter().filter_map(|row| Some((row, compared(experiment, row)?))).collect();
    let disagreeing: Vec<_> =
        seen.iter().filter_map(|(row, words)| Some((row.mode.as_str(), words.clone()?))).collect();
    let largest = seen.iter().filter_map(|(row, _)| slow_down(experiment, row).value()?.mde).reduce(f64::max);
    let is_shown = disagreeing.is_empty() && largest.is_some_and(|mde| mde <= MOST_UNSEEN);
    let finding = Finding::new(if is_shown { Judgement::Good } else { Judgement::Neutral });
    match (seen.len(), disagreeing.is_empty()) {
        (0, _) => None,
        (_, true) => {
            let unseen = largest
                .map_or_else(String::new, |mde| format!(" (detectable: at most {} in each mode)", change(1.0 + mde)));
            Some(finding.words(format!("No measured slow-down contradicts the attributed cost{unseen}.")))
        }
        (_, false) => Some(
            finding
                .words("Measured slow-down and attributed cost disagree: ")
                .list(disagreeing)
                .words(". Cold caches can make the slow-down larger; a target that often waits can make it smaller."),
        ),
    }
}

/// How the interval of a row's slow-down misses the attributed cost, in words; inner `None` if it does not, outer
/// `None` if either is unknown.
fn compared(experiment: &Experiment, row: &ExperimentRow) -> Option<Option<String>> {
    let slow_down = slow_down(experiment, row).value()?;
    let interval = slow_down.interval?;
    let least = 1.0 + row.aggregate.attributed_on_target_percent.value()?.mean / 100.0;
    let most = 1.0 + row.aggregate.attributed_percent.value()?.mean / 100.0;
    let side = match interval {
        above if above.low > most => "more",
        below if below.high < least => "less",
        _ => return Some(None),
    };
    let (seen, least, most) = (change_with_interval(slow_down), change(least), change(most));
    Some(Some(format!(" {seen}, {side} than the {least} to {most} attributed")))
}

/// Compares the baseline with itself, if it was run twice.
fn again(experiment: &Experiment) -> Option<Finding> {
    let row = experiment.rows.iter().filter(|row| row.method == ExperimentMethod::None).nth(1)?;
    let ratio = slow_down(experiment, row).value()?;
    let (judgement, words) = if ratio.interval.is_none() {
        (Judgement::Neutral, "may differ by chance, which one run does not show: ")
    } else if ratio.differs() {
        (Judgement::Bad, "differs measurably, so do not trust the slow-downs above: ")
    } else if ratio.mde.is_some_and(|mde| mde <= MOST_UNSEEN) {
        (Judgement::Good, "shows no measurable difference, as expected: ")
    } else {
        (Judgement::Neutral, "shows no measurable difference, but these runs would only find a large one: ")
    };
    Some(
        Finding::new(judgement)
            .words(
                "The command without a profiler, run twice, \
        ",
            )
            .words(words)
            .words("slow-down ")
            .words(change_with_interval(ratio))
            .words("."),
    )
}

fn balance(experiment: &Experiment) -> Option<Finding> {
    let checks = || experiment.rows.iter().filter_map(|row| row.aggregate.balance.value());
    let runs = checks().fold(0_u32, |sum, check| sum.saturating_add(check.runs));
    let exact = checks().fold(0_u32, |sum, check| sum.saturating_add(check.exact));
    if runs == 0 {
        return None;
    }
    let judgement = if exact == runs { Judgement::Good } else { Judgement::Bad };
    let words = if exact == runs {
        format!("fired = recorded + lost + skipped + dropped holds exactly in all {runs} recordings.")
    } else {
        format!("fired = recorded + lost + skipped + dropped holds in only {exact} of {runs} recordings.")
    };
    Some(Finding::new(judgement).words(words))
}
