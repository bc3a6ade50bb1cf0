//! Recordings: the quality of stacks that a profiler gets from a binary, by fpprof's own `record` and `report`.

use super::build::binary_name;
use super::manifest::Recording;
use super::supervisor::{Run, Supervisor};
use anyhow::Context as _;
use fpprof_analysis::accuracy::{Agreement, Relation};
use fpprof_analysis::agreement::Disagreement;
use fpprof_analysis::flags::{FlagsQuality, StrategyQuality};
use fpprof_analysis::statistics::percent;
use fpprof_analysis::summary::{self, Summary};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records `run` in `dir` with frame pointers and with copied stacks, and judges the samples of the latter under every
/// strategy.
pub(super) fn quality(
    spec: &Recording,
    run: &Run,
    has_sframe: bool,
    dir: &Path,
    supervisor: &mut Supervisor,
) -> anyhow::Result<FlagsQuality> {
    let profiler = match &spec.profiler {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("finding fpprof itself")?,
    };
    let file = dir.join("recording.fpprof");
    record(&profiler, spec, "fp", run, &file, supervisor)?;
    let fp: Summary = json(&profiler, &["report", "--json", "--strategy", "fp"], &file)?;
    let both = format!("both,{}", spec.stack_bytes);
    let mut strategies = vec!["fp".to_owned(), "dwarf".to_owned()];
    strategies
        .extend(spec.chunks.iter().filter(|chunk| **chunk < spec.stack_bytes).map(|chunk| format!("dwarf@{chunk}")));
    strategies.extend(has_sframe.then(|| "sframe".to_owned()));
    record(&profiler, spec, &both, run, &file, supervisor)?;
    let dwarf: Summary = json(&profiler, &["report", "--json", "--strategy", &strategies.join(",")], &file)?;
    let lost = [&fp, &dwarf].into_iter().map(lost).fold(0, u64::saturating_add);
    // Not what fired: that includes the ticks of idle CPUs.
    let all = fp.recorded.saturating_add(dwarf.recorded).saturating_add(lost);
    let mut quality = FlagsQuality {
        fp_samples: fp.recorded,
        fp_bytes_per_sample: ratio(fp.file_bytes, fp.recorded),
        dwarf_samples: dwarf.recorded,
        dwarf_bytes_per_sample: ratio(dwarf.file_bytes, dwarf.recorded),
        lost_percent: percent(lost, all).unwrap_or(0.0),
        fp_profiler_percent: cpu_percent(&fp),
        dwarf_profiler_percent: cpu_percent(&dwarf),
        ..FlagsQuality::default()
    };
    let folded = |name: &str| -> anyhow::Result<String> {
        let folded = output(&profiler, &["export", "--format", "folded", "--strategy", name], &file)?;
        Ok(String::from_utf8_lossy(&folded).into_owned())
    };
    // Start functions of threads come from the largest chunks, which cut off the fewest stacks.
    let whole = folded("dwarf")?;
    let starts = starts(&whole);
    for (name, of) in &dwarf.strategies {
        let without_stack = of.no_stack.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let reach_main = reach_main(&folded(name)?, &starts, without_stack);
        let of = StrategyQuality { reach_main, ..strategy(of) };
        quality.strategies.insert(name.clone(), of);
    }
    let difference: Disagreement = json(&profiler, &["diff", "--json", "--strategies", "dwarf,fp"], &file)?;
    if let Some(fp) = quality.strategies.get_mut("fp") {
        // A walk by frame pointers may find the caller of `main`, and end there.
        let ends = starts.union(&callers(&whole, &starts)).copied().collect();
        fp.frame_exact = Some(exact(&difference.agreement, &ends));
        fp.caller_dropped = difference.agreement.relations.get(&Relation::LeafCallerMissing).copied().or(Some(0));
        fp.breaking_files = breaking_files(&difference.agreement, &ends);
    }
    fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    Ok(quality)
}

fn record(
    profiler: &Path,
    spec: &Recording,
    mode: &str,
    run: &Run,
    file: &Path,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    // Remove the recording of an interrupted run, so that `record` does not move it aside.
    let _ = fs::remove_file(file);
    let mut args: Vec<OsString> =
        ["record", "--quiet", "-F", &spec.freq.to_string(), "--call-graph", mode, "-o"].map(Into::into).into();
    args.extend([file.into(), "--".into(), run.program.clone()]);
    args.extend(run.args.iter().cloned());
    let log = run.dir.join("record.log");
    let recording = Run { program: profiler.into(), args, env: None, output: Some(log.clone()), ..run.clone() };
    supervisor.run(&recording).map(drop).with_context(|| {
        let stderr = fs::read(&log).unwrap_or_default();
        format!("recording with {mode}: {}", String::from_utf8_lossy(&stderr).trim())
    })
}

fn output(profiler: &Path, args: &[&str], file: &Path) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(profiler).args(args).arg(file).output();
    let output = output.with_context(|| format!("starting {}", profiler.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}: {}", args.first().unwrap_or(&""), stderr.trim());
    Ok(output.stdout)
}

/// Parses a command's output into the model it was written from, so that a removed key is an error.
fn json<T: DeserializeOwned>(profiler: &Path, args: &[&str], file: &Path) -> anyhow::Result<T> {
    serde_json::from_slice(&output(profiler, args, file)?).with_context(|| format!("what {} printed", args.join(" ")))
}

/// The program's own outermost functions: `main`, and the start functions of its threads, according to the stacks of
/// the largest chunks.
fn starts(folded: &str) -> HashSet<&str> {
    let mut starts = HashSet::from(["main"]);
    for line in folded.lines() {
        let Some((stack, _)) = line.rsplit_once(' ') else { continue };
        starts.extend(stack.split(';').skip_while(|frame| *frame != "start_thread").nth(1));
    }
    starts
}

/// The functions that call `starts`: those of libc, beyond which nothing of the program is.
fn callers<'a>(folded: &'a str, starts: &HashSet<&str>) -> HashSet<&'a str> {
    let mut callers = HashSet::new();
    for line in folded.lines() {
        let Some((stack, _)) = line.rsplit_once(' ') else { continue };
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        let is_whole = !frames.first().is_some_and(|first| is_end(first));
        if let Some(start) = frames.iter().position(|frame| starts.contains(frame)).filter(|_| is_whole) {
            callers.extend(frames.get(..start).unwrap_or_default());
        }
    }
    callers
}

/// Whether a folded frame stands for the end of a stack that does not reach its root.
fn is_end(frame: &str) -> bool {
    frame.starts_with("[broken") || frame.starts_with("[truncated")
}

/// Samples whose stack contains one of `starts`, or is complete. Samples without a stack, as in a process that exits,
/// are excluded.
fn reach_main(folded: &str, starts: &HashSet<&str>, without_stack: u64) -> u64 {
    let mut sum = 0_u64;
    for line in folded.lines() {
        let Some((stack, n)) = line.rsplit_once(' ') else { continue };
        let mut frames = stack.split(';');
        let is_whole = !frames.clone().any(is_end);
        if is_whole || frames.any(|frame| starts.contains(frame)) {
            sum = sum.saturating_add(n.parse().unwrap_or(0));
        }
    }
    sum.saturating_sub(without_stack)
}

fn strategy(of: &summary::Quality) -> StrategyQuality {
    let mut quality = StrategyQuality { samples: of.samples, complete: of.complete, ..StrategyQuality::default() };
    for (class, counts) in [("truncated", &of.truncated), ("broken", &of.broken)] {
        quality.reasons.extend(counts.iter().map(|(reason, &n)| (format!("{class}: {reason}"), n)));
    }
    quality
}

/// The number of stacks with every frame up to their root, or to one of `ends`: the starts of the program's own code and
/// their callers.
fn exact(agreement: &Agreement, ends: &HashSet<&str>) -> u64 {
    let to_a_start = agreement.functions.iter().filter(|function| ends.contains(function.name.as_str()));
    to_a_start
        .filter_map(|start| start.relations.get(&Relation::Prefix))
        .fold(agreement.both_complete_same, |sum, &n| sum.saturating_add(n))
}

/// Files after whose code the frame-pointer stacks go wrong. The binary under test has a generated name, so it is
/// called "the program itself". Stacks that end at one of `ends` do not count.
fn breaking_files(agreement: &Agreement, ends: &HashSet<&str>) -> BTreeMap<String, u64> {
    let harmless = |module: &str| {
        let here = agreement.functions.iter().filter(|function| function.module == module);
        let at_start = here.filter(|function| ends.contains(function.name.as_str()));
        at_start
            .filter_map(|start| start.relations.get(&Relation::Prefix))
            .fold(0, |sum: u64, &n| sum.saturating_add(n))
    };
    let mut files = BTreeMap::new();
    for file in &agreement.modules {
        let samples = file.samples.saturating_sub(harmless(&file.module));
        if samples > 0 {
            let name = if file.module == binary_name(0) { "the program itself" } else { &file.module };
            files.insert(name.to_owned(), samples);
        }
    }
    files
}

fn lost(summary: &Summary) -> u64 {
    summary.lost.values().fold(summary.dropped, |sum, &n| sum.saturating_add(n))
}

/// CPU time of the profiler relative to the duration of its recording, per cent.
fn cpu_percent(summary: &Summary) -> Option<f64> {
    summary.cost.as_ref().map(|cost| cost.collector_cpu_percent)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_analysis::accuracy::DisputedFunction;

    /// Check that a stack counts, weighted by its samples, if it contains `main` or a thread's start function, or is
    /// complete.
    #[test]
    fn stacks_with_a_start_count() {
        let whole = "bin;_start;main;f 3\nbin;clone3;start_thread;work;f 4\n";
        let folded = "bin;[broken: ra_not_exec];main;f 3\nbin;[broken: ra_not_exec];f 5\nbin;_start;main;f 7\nbin;x 1\n\
            bin;[truncated: no_cfi];work;f 20\n";
        assert_eq!(reach_main(folded, &starts(whole), 0), 31);
        assert_eq!(reach_main(folded, &starts(""), 0), 11);
        let above = [whole, "bin;[truncated: chunk_end];x;main;f 3\n"].concat();
        assert_eq!(callers(&above, &starts(whole)), HashSet::from(["_start", "clone3", "start_thread"]));
        let exiting = format!("{folded}bin;do_exit_[k] 2\n");
        assert_eq!(reach_main(&exiting, &starts(whole), 2), 31);
    }

    /// Check that a stack is exact only if it has all frames up to its root or to `main`, not if its few frames are
    /// right.
    #[test]
    fn a_few_right_frames_are_not_exact() {
        let after = |name: &str, prefix| DisputedFunction {
            name: name.to_owned(),
            module: "bin-00".to_owned(),
            samples: prefix,
            relations: BTreeMap::from([(Relation::Prefix, prefix)]),
        };
        let agreement = Agreement {
            samples: 100,
            same: 9,
            both_complete_same: 7,
            relations: BTreeMap::from([(Relation::Prefix, 91), (Relation::Same, 9)]),
            functions: vec![after("leaf", 71), after("main", 20)],
            ..Agreement::default()
        };
        assert_eq!(exact(&agreement, &HashSet::from(["main"])), 27);
    }

    /// Check that a broken chain is attributed to the file after whose code it broke, and that a stack which only ends
    /// at `main`'s caller does not count.
    #[test]
    fn files_that_break_chains_are_named() {
        let behind = |name: &str, module: &str, samples, prefix| DisputedFunction {
            name: name.to_owned(),
            module: module.to_owned(),
            samples,
            relations: BTreeMap::from([(Relation::Prefix, prefix), (Relation::WrongFrame, samples - prefix)]),
        };
        let agreement = Agreement {
            functions: vec![behind("main", "bin-00", 70, 60), behind("memcpy", "libc.so.6", 30, 0)],
            modules: vec![behind("", "bin-00", 75, 62), behind("", "libc.so.6", 30, 0)],
            ..Agreement::default()
        };
        let expected = BTreeMap::from([("the program itself".to_owned(), 15), ("libc.so.6".to_owned(), 30)]);
        assert_eq!(breaking_files(&agreement, &HashSet::from(["main"])), expected);
    }
}
