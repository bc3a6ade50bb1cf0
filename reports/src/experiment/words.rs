//! Environment and method in words, the same in every form.

use crate::figures::byte_count;
use fpprof_analysis::experiment::Experiment;

/// What the experiment ran on and with, as (label, text); nothing empty.
pub(super) fn environment(experiment: &Experiment) -> Vec<(&'static str, String)> {
    let environment = &experiment.environment;
    let cpus = format!("{} × {}", environment.cpus, environment.cpu_model);
    let versions: Vec<_> =
        environment.versions.iter().map(|version| format!("{} {}", version.program, version.version)).collect();
    let system = match environment.distribution.as_str() {
        "" => format!("Linux {}", environment.kernel),
        distribution => format!("Linux {}, {distribution}", environment.kernel),
    };
    let memory = if environment.memory_bytes == 0 { String::new() } else { byte_count(environment.memory_bytes) };
    [
        ("date", environment.date.clone()),
        ("machine", environment.machine.clone()),
        ("CPU", cpus),
        ("memory", memory),
        ("system", system),
        ("programs", versions.join(", ")),
        ("sampling", format!("{} at {}", experiment.event, experiment.rate)),
        ("runs", format!("{} modes × {} rounds", experiment.rows.len(), experiment.repeats)),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .collect()
}

/// How it was done and how to read the columns.
pub(super) fn method(experiment: &Experiment) -> String {
    let metric = match &experiment.metric {
        Some(metric) => format!("the workload's own {}", metric.name),
        None => "wall time".to_owned(),
    };
    format!(
        "Every round ran every mode once, in an order of its own ({} rounds). Bytes, CPU and {metric} are means over \
         runs; samples, lost chunks and stacks are sums over runs. Ratios are geometric means of ratios taken within \
         a round, [in brackets] with their 95 % t interval. “× fp” is the size against the same tool's frame-pointer \
         row. CPU is the collector's, from its start to its end (after the last sample in parentheses), over the \
         wall time, in per cent of one CPU. Attributed is what our recordings count of their own cost in per cent of the \
         target's CPU time: interrupts and BPF, which hit the target itself, to those with the collector's threads. Lost chunks count runs of lost samples, as perf does; the samples themselves stand \
         beside recorded, by cause.",
        experiment.repeats
    )
}
