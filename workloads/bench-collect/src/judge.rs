//! Evaluates a profiler's file: samples, losses, complete stacks, and the time it takes to draw a flame graph.

use crate::config::RunConfig;
use crate::modes::Mode;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The content of a file.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Judged {
    /// Number of samples; `None` if the file does not say.
    pub(crate) recorded: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// Losses by cause.
    pub(crate) lost_by_cause: BTreeMap<String, u64>,
    /// Judged user stacks of nbdkit and fio, and how many of them are complete; only of thorough runs.
    pub(crate) stacks: Option<u64>,
    pub(crate) complete: Option<u64>,
    /// Share of complete stacks of the whole machine, as the profiler itself reports it.
    pub(crate) own_complete_percent: Option<f64>,
    /// Run time of fpprof's BPF programs per tick, in nanoseconds.
    pub(crate) bpf_ns_per_tick: Option<f64>,
    /// CPU seconds before sampling began, and bytes of memory of maps, as fpprof reports them.
    pub(crate) start_cpu_s: Option<f64>,
    pub(crate) map_bytes: Option<f64>,
}

/// Reads a file, and judges its stacks if `judges_stacks`, which takes most of the time.
pub(crate) fn judge(config: &RunConfig, mode: Mode, file: &Path, judges_stacks: bool) -> anyhow::Result<Judged> {
    match (mode, mode.strategy()) {
        (Mode::Ours { .. }, Some(strategy)) => {
            let summary = report(config, file, strategy)?;
            let causes = summary.get("lost").and_then(Value::as_object).context("lost")?;
            let lost_by_cause: BTreeMap<String, u64> =
                causes.iter().filter_map(|(cause, n)| Some((cause.clone(), n.as_u64().filter(|&n| n > 0)?))).collect();
            let mut judged = Judged {
                recorded: summary.get("recorded").and_then(Value::as_u64),
                lost: Some(lost_by_cause.values().sum()),
                lost_by_cause,
                bpf_ns_per_tick: summary.pointer("/cost/bpf_ns_per_tick").and_then(Value::as_f64),
                start_cpu_s: summary.pointer("/cost/start_cpu_s").and_then(Value::as_f64),
                map_bytes: summary.pointer("/cost/map_bytes").and_then(Value::as_f64),
                ..Judged::default()
            };
            if judges_stacks {
                (judged.stacks, judged.complete) = complete_of(&summary, strategy, config.names);
            }
            Ok(judged)
        }
        (Mode::Perf { .. }, Some(strategy)) => perf(config, file, strategy, judges_stacks),
        (Mode::Bpftrace, _) => Ok(bpftrace(&std::fs::read_to_string(file)?)),
        _ => Ok(Judged::default()),
    }
}

pub(crate) fn report(config: &RunConfig, file: &Path, strategy: &str) -> anyhow::Result<Value> {
    let mut command = Command::new(&config.fpprof);
    command.arg("report").arg(file).args(["--json", "--strategy", strategy]);
    Ok(serde_json::from_slice(&output(&mut command)?)?)
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {}: {}", command.get_args(), output.status, said.trim());
    Ok(output.stdout)
}

/// Stacks of the processes whose names have one of these prefixes: (all, complete).
pub(crate) fn complete_of(summary: &Value, strategy: &str, names: &[&str]) -> (Option<u64>, Option<u64>) {
    let is_meant = |process: &&Value| {
        process.get("comm").and_then(Value::as_str).is_some_and(|comm| names.iter().any(|name| comm.starts_with(name)))
    };
    let processes = || summary.get("processes").and_then(Value::as_array).into_iter().flatten().filter(is_meant);
    let sum = |key: &str| {
        processes()
            .filter_map(|process| process.pointer(&format!("/strategies/{strategy}/{key}")).and_then(Value::as_u64))
            .sum()
    };
    (Some(sum("samples")), Some(sum("complete")))
}

/// Evaluates a perf.data file through fpprof's import, which counts perf's losses.
fn perf(config: &RunConfig, file: &Path, strategy: &str, judges_stacks: bool) -> anyhow::Result<Judged> {
    let imported = config.dir.join("imported");
    let mut command = Command::new(&config.fpprof);
    command.arg("import").arg(file).arg("-o").arg(&imported);
    let said = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.success(), "importing perf's file: {text}");
    let (recorded, lost) = imported_counts(&text).with_context(|| format!("what import says: {text}"))?;
    let mut judged = Judged { recorded: Some(recorded), lost: Some(lost), ..Judged::default() };
    if judges_stacks {
        (judged.stacks, judged.complete) = complete_of(&report(config, &imported, strategy)?, strategy, config.names);
    }
    std::fs::remove_file(&imported)?;
    Ok(judged)
}

/// The counts in `imported  N samples; perf lost M samples in …`.
fn imported_counts(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|line| line.starts_with("imported"))?;
    let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// Names of functions without a caller.
const ROOTS: [&str; 4] = ["_start", "clone3", "__clone3", "__clone"];

/// bpftrace prints each distinct stack, leaf first, with its count. It has only symbols, so a stack counts as complete
/// if its outermost function is one without a caller. Stacks without symbols are not judged: bpftrace resolves names at
/// its end, when the processes are gone.
fn bpftrace(text: &str) -> Judged {
    let (mut samples, mut named, mut complete) = (0u64, 0u64, 0u64);
    let mut outermost = "";
    for line in text.lines() {
        if let Some(count) = line.rsplit_once("]: ").and_then(|(_, count)| count.trim().parse::<u64>().ok()) {
            samples += count;
            named += if outermost.is_empty() || outermost.starts_with("0x") { 0 } else { count };
            complete += if ROOTS.contains(&outermost) { count } else { 0 };
            outermost = "";
        } else if let Some(frame) = line.split_whitespace().nth(1) {
            // The frame has the form "ADDRESS NAME+OFFSET (FILE)".
            outermost = frame.split('+').next().unwrap_or(frame);
        }
    }
    let judged = |n| (named > 0).then_some(n);
    Judged { recorded: Some(samples), stacks: judged(named), complete: judged(complete), ..Judged::default() }
}

/// The longest that a user would wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wall seconds from the file to a flame graph; `None` if that is not possible, or takes longer than a minute.
pub(crate) fn time_to_svg(config: &RunConfig, mode: Mode, file: &Path) -> anyhow::Result<Option<f64>> {
    let svg = config.dir.join("picture.svg");
    let started = Instant::now();
    match mode {
        Mode::Ours { .. } => {
            output(Command::new(&config.fpprof).arg("flamegraph").arg(file).arg("-o").arg(&svg))?;
        }
        Mode::Perf { .. } => {
            let mut perf = Command::new("timeout");
            perf.arg(PATIENCE.as_secs().to_string()).args(["perf", "script", "--no-inline", "-i"]).arg(file);
            let mut perf = perf.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let text = perf.stdout.take().context("perf's output")?;
            let mut draw = Command::new(std::env::current_exe()?);
            let drawn =
                draw.arg("svg").stdin(text).stderr(Stdio::null()).stdout(std::fs::File::create(&svg)?).status()?;
            if !perf.wait()?.success() || !drawn.success() {
                return Ok(None);
            }
        }
        Mode::None | Mode::Bpftrace | Mode::Samply | Mode::Lightswitch | Mode::OtelProfiler => return Ok(None),
    }
    Ok(Some(started.elapsed().as_secs_f64()))
}

/// Does the same as `inferno-collapse-perf | inferno-flamegraph`.
pub(crate) fn svg() -> anyhow::Result<()> {
    use inferno::collapse::Collapse as _;
    let mut folded = Vec::new();
    inferno::collapse::perf::Folder::default().collapse(std::io::stdin().lock(), &mut folded)?;
    let mut options = inferno::flamegraph::Options::default();
    Ok(inferno::flamegraph::from_reader(&mut options, folded.as_slice(), std::io::stdout().lock())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bpftrace's stacks are judged by their outermost function, and weighted by their counts.
    #[test]
    fn bpftraces_stacks() {
        let text = "Attaching 1 probe...\n\n\n@[fio, \n\t7f12 read+11 (/lib/libc.so.6)\n]: 7\n@[nbdkit, \n\
                    \t55aa work+5 (/usr/sbin/nbdkit)\n\t55bb _start+33 (/usr/sbin/nbdkit)\n]: 30\n@[fio, ]: 3\n";
        let judged = bpftrace(text);
        assert_eq!((judged.recorded, judged.stacks, judged.complete), (Some(40), Some(37), Some(30)));
        let nameless = bpftrace("@[fio, \n\t7f12 0x7f12 ([unknown])\n]: 7\n");
        assert_eq!((nameless.recorded, nameless.stacks, nameless.complete), (Some(7), None, None));
    }

    /// Check that the counts of an import are parsed.
    #[test]
    fn imports_are_counted() {
        assert_eq!(imported_counts("imported  120 samples; perf lost 7 samples in 2 chunks\n"), Some((120, 7)));
        assert_eq!(imported_counts("nothing"), None);
    }
}
