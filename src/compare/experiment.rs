//! Runs an experiment, and groups its runs into rows.

use super::config::RunConfig;
use super::mode::{Mode, PerfMode};
use super::recorded::Recorded;
use super::run::{self, Ran};
use super::{environment, order};
use crate::output::print_message;
use crate::values;
use fpprof_analysis::experiment::{
    BetterWhen, Experiment, ExperimentEnvironment, ExperimentMethod, ExperimentRow, Measured, Metric, Run, SCHEMA, Tool,
};
use fpprof_collector::StopFlag;
use fpprof_recording::model::{CaptureMode, Collector};
use std::process::Command;

/// The modes, the number of repeats, and the seed of the order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) modes: Vec<Mode>,
    pub(crate) repeats: u32,
    pub(crate) seed: u64,
    pub(crate) metric_name: String,
    pub(crate) lower_is_better: bool,
}

/// Runs every mode, until `stop` is set; a failed run is noted and the others continue.
///
/// # Errors
/// If no run succeeded.
pub(crate) fn run(config: &RunConfig, plan: &Plan, stop: &StopFlag) -> anyhow::Result<Experiment> {
    let mut notes = Vec::new();
    let modes = available(&plan.modes, &mut notes);
    // It has the date, which is that of the beginning.
    let environment = environment(config, &modes);
    let mut runs: Vec<Vec<Run>> = modes.iter().map(|_| Vec::new()).collect();
    let (mut ran, mut event, mut has_own) = (Vec::new(), None, false);
    let rounds = (0..plan.repeats).map(|repeat| (repeat, order::shuffled(modes.len(), plan.seed, u64::from(repeat))));
    let order: Vec<(u32, usize)> =
        rounds.flat_map(|(repeat, round)| round.into_iter().map(move |n| (repeat, n))).collect();
    let mut n_rounds = 0;
    for &(repeat, index) in &order {
        let (Some(&mode), Some(runs)) = (modes.get(index), runs.get_mut(index)) else { continue };
        let n = ran.len() + 1;
        print_message(&format!("[{n}/{}] {mode}", order.len()));
        let done = run::run(config, mode, repeat, stop);
        if stop.signal().is_some() {
            notes.push(format!("interrupted in run {n} of {}, which does not count", order.len()));
            break;
        }
        ran.push(mode.to_string());
        // Failed runs count: whoever reads the figures must see that some are missing.
        n_rounds = u32::try_from(ran.len() / modes.len()).unwrap_or(u32::MAX);
        let note = match done {
            Ok(Ran { run, recorded }) => {
                if let (Measured::Missing(why), Some(_)) = (&run.metric, &config.metric) {
                    note_once(format!("{mode}, round {}: no {}: {why}", repeat + 1, plan.metric_name), &mut notes);
                }
                runs.push(run);
                let note = recorded.as_ref().and_then(|recorded| fallback(mode, recorded));
                if let Some(recorded) = recorded {
                    // fpprof's own, if there is one: perf may name or choose another.
                    let is_own = matches!(mode, Mode::Fpprof(_));
                    if event.is_none() || (is_own && !std::mem::replace(&mut has_own, true)) {
                        event = Some(recorded.event);
                    }
                }
                note
            }
            Err(error) => Some(format!("{mode}, round {}: failed: {error:#}", repeat + 1)),
        };
        note.into_iter().for_each(|note| note_once(note, &mut notes));
    }
    if runs.iter().all(Vec::is_empty) {
        let why = if stop.signal().is_some() { "it was interrupted before a run had ended" } else { "all runs failed" };
        anyhow::bail!("{why}; see {}", config.dir.display());
    }
    let rows: Vec<ExperimentRow> = modes.iter().zip(runs).map(|(&mode, runs)| row(mode, runs)).collect();
    let mut experiment = Experiment {
        schema: SCHEMA,
        environment,
        command: config.command.clone(),
        rate: format!("{} Hz", config.freq),
        event: event.unwrap_or_else(|| "unknown".to_owned()),
        repeats: n_rounds.max(1),
        order: ran,
        metric: metric(config, plan),
        rows,
        notes,
    };
    experiment.complete();
    Ok(experiment)
}

fn note_once(note: String, notes: &mut Vec<String>) {
    if !notes.contains(&note) {
        print_message(&note);
        notes.push(note);
    }
}

/// What fpprof did instead of what the mode says, as this user or kernel does not allow that.
fn fallback(mode: Mode, recorded: &Recorded) -> Option<String> {
    let Mode::Fpprof(asked) = mode else { return None };
    let other_mode = (asked != recorded.mode).then(|| format!(" as {}", values::mode_name(recorded.mode)));
    let other_collector =
        (recorded.collector != Collector::Ebpf).then(|| " with perf events instead of eBPF".to_owned());
    let other: String = other_mode.into_iter().chain(other_collector).collect();
    (!other.is_empty()).then(|| format!("{mode} was recorded{other}; `fpprof doctor` says why"))
}

/// The modes whose tool is installed.
fn available(modes: &[Mode], notes: &mut Vec<String>) -> Vec<Mode> {
    let has_perf = Command::new("perf").arg("--version").output().is_ok_and(|output| output.status.success());
    let (here, gone): (Vec<_>, Vec<_>) = modes.iter().partition(|mode| has_perf || !matches!(mode, Mode::Perf(_)));
    if !gone.is_empty() {
        let names: Vec<_> = gone.iter().map(ToString::to_string).collect();
        notes.push(format!("perf is not installed; skipping modes {}", names.join(", ")));
    }
    here
}

fn row(mode: Mode, runs: Vec<Run>) -> ExperimentRow {
    let (tool, method, stack_bytes) = match mode {
        Mode::None | Mode::NoneAgain => (Tool::Nobody, ExperimentMethod::None, None),
        Mode::Fpprof(CaptureMode::Fp) => (Tool::Fpprof, ExperimentMethod::Fp, None),
        Mode::Fpprof(CaptureMode::Dwarf { stack_bytes }) => (Tool::Fpprof, ExperimentMethod::Dwarf, Some(stack_bytes)),
        Mode::Fpprof(CaptureMode::Both { stack_bytes, .. }) => {
            (Tool::Fpprof, ExperimentMethod::Both, Some(stack_bytes))
        }
        Mode::Fpprof(CaptureMode::Cfi { stack_bytes, .. }) => (Tool::Fpprof, ExperimentMethod::Cfi, Some(stack_bytes)),
        Mode::Perf(PerfMode::Fp) => (Tool::Perf, ExperimentMethod::Fp, None),
        Mode::Perf(PerfMode::Dwarf(stack_bytes)) => (Tool::Perf, ExperimentMethod::Dwarf, Some(stack_bytes)),
    };
    ExperimentRow::new(mode.to_string(), tool, method, stack_bytes.map(u64::from), runs)
}

fn metric(config: &RunConfig, plan: &Plan) -> Option<Metric> {
    let finder = config.metric.as_ref()?;
    let better_when = if plan.lower_is_better { BetterWhen::Lower } else { BetterWhen::Higher };
    let regex = finder.pattern().to_owned();
    Some(Metric { name: plan.metric_name.clone(), unit: String::new(), regex, better_when })
}

/// The environment with the versions that matter: perf if it takes part, the command itself, and, since the command is
/// often a script around them, nbdkit and fio if installed.
fn environment(config: &RunConfig, modes: &[Mode]) -> ExperimentEnvironment {
    let mut programs = Vec::new();
    if modes.iter().any(|mode| matches!(mode, Mode::Perf(_))) {
        programs.push("perf");
    }
    let command = config.command.join(" ");
    programs.extend(["nbdkit", "fio"].into_iter().filter(|program| command.contains(program)));
    environment::look(&programs)
}
