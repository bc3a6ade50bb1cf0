//! Environment and method in words, the same in every format.

use crate::figures::{byte_count, plural, processors, system};
use fpprof_analysis::experiment::Experiment;

/// The machine and software of the experiment as (label, text), without empty entries.
pub(super) fn environment(experiment: &Experiment) -> Vec<(&'static str, String)> {
    let environment = &experiment.environment;
    let cpus = processors(environment.cpus, &environment.cpu_model);
    let versions: Vec<_> =
        environment.versions.iter().map(|version| format!("{} {}", version.program, version.version)).collect();
    let system = system(&environment.kernel, &environment.distribution);
    let memory = if environment.memory_bytes == 0 { String::new() } else { byte_count(environment.memory_bytes) };
    [
        ("date", environment.date.clone()),
        ("machine", environment.machine.clone()),
        ("CPU", cpus),
        ("memory", memory),
        ("system", system),
        ("programs", versions.join(", ")),
        ("sampling", format!("{} at {}", experiment.event, experiment.rate)),
        (
            "runs",
            format!(
                "{} mode{} × {} round{}",
                experiment.rows.len(),
                plural(experiment.rows.len() as u64),
                experiment.repeats,
                plural(experiment.repeats.into())
            ),
        ),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .collect()
}

/// How the experiment was run and how to read the columns.
pub(super) fn method(experiment: &Experiment) -> String {
    let metric = match &experiment.metric {
        Some(metric) => format!("the workload's own {}", metric.name),
        None => "wall time".to_owned(),
    };
    let time = match &experiment.metric {
        Some(_) => "",
        None => {
            "Wall time is from the start of the command to the end of its last thread; without a profiler, its memory is freed \
             in that time, too. "
        }
    };
    let rounds = match experiment.order.len().checked_div(experiment.rows.len()) {
        None | Some(0) => "The first round, of every mode once in random order, was interrupted.".to_owned(),
        Some(1) => "One round ran every mode once, in random order.".to_owned(),
        Some(n) => format!("Each of the {n} rounds ran every mode once, in random order."),
    };
    let has_failed = experiment.rows.iter().any(|row| row.runs.len() < experiment.repeats as usize);
    let failed = if has_failed { " Runs that failed are left out." } else { "" };
    format!(
        "{time}{rounds}{failed} Bytes, bytes per sample, CPU and {metric} are means over runs; \
         samples, gaps and stacks are sums over runs. Ratios are geometric means of the ratios within each round, \
         with their 95 % t interval [in brackets]. “Detectable” is the slow-down that these runs would find with a \
         chance of 80 %. “× fp” is the size relative to the same tool's frame-pointer row. CPU is the collector's \
         CPU time, from its start to its end (in parentheses: after the last sample), in % of the wall time of the \
         command, so that it may be over 100 % if that is short. “Attributed” \
         is the cost that fpprof's recordings count themselves, in % of the target's CPU time: from interrupts and \
         BPF alone, which slow the target itself, to those plus the collector's threads. A gap is a run of \
         consecutive lost samples (perf's “lost chunks”)."
    )
}
