//! Overhead of profilers on a CPU-bound program: its CPU time for the same work with and without them.
//!
//! What affects the program is part of its own time: interrupts, BPF programs, cold caches afterwards. The profiler's
//! processes run on another CPU, and their time is listed separately. In each round every profiler runs once per shape
//! of the stack and rate. Within a run, its perf events are enabled and disabled in turns of some milliseconds
//! (programs/alternate.c), since whole runs differ by more than profilers take; without any, that shows how much equal
//! turns differ.

use crate::bpf_cost::ns_per_sample;
use crate::config::RunConfig;
use crate::modes::{CallGraph, Collector, Mode, PERF_LARGEST, is_installed};
use crate::otel;
use crate::progress::print_progress;
use crate::report::figure;
use crate::run::{self, Run};
use crate::summary::{Row, median, points_words, rows, slow_down_words};
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where recordings are kept for a while and results go
    #[arg(long, default_value = "target/bench-overhead")]
    dir: PathBuf,
    /// The fpprof that records
    #[arg(long, default_value = "target/release/fpprof")]
    fpprof: PathBuf,
    /// Samples a second and CPU
    #[arg(long, value_delimiter = ',', default_values_t = [999, 4999])]
    rates: Vec<u64>,
    /// Shapes of the stack: KiB and frames
    #[arg(long, value_delimiter = ',', default_values_t = ["20:16".to_owned(), "59:50".to_owned(), "600:200".to_owned()])]
    shapes: Vec<String>,
    /// Seconds of each run; half of them with the profiler's events
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Rounds go on until every interval is as narrow as this, in points to either side, or the time is over
    #[arg(long, default_value_t = 1.0)]
    points: f64,
    /// No further round begins that would end later than this after the start
    #[arg(long, default_value_t = 20)]
    minutes: u64,
}

/// The shape of a stack.
#[derive(Debug, Clone, Copy, Serialize)]
struct Shape {
    kib: u64,
    frames: u32,
}

/// The program with a shape, the same as measured in turns, and a script that runs that for the seconds it is given.
struct Built {
    program: PathBuf,
    in_turns: PathBuf,
    script: PathBuf,
}

/// What is measured with one shape.
struct Subject {
    shape: Shape,
    config: RunConfig,
    /// Wrong stacks of each strategy, see [`wrong_percents`].
    wrong_percent: BTreeMap<&'static str, f64>,
    /// Nanoseconds of our BPF programs for a sample, by mode.
    bpf_ns: BTreeMap<String, f64>,
}

/// The runs with one shape.
#[derive(Debug, Serialize)]
struct OfShape {
    #[serde(flatten)]
    shape: Shape,
    /// By mode; no other than ours is known.
    wrong_percent: BTreeMap<String, f64>,
    /// Nanoseconds of BPF programs for a sample, by mode; no other than ours is known.
    bpf_ns: BTreeMap<String, f64>,
    rows: Vec<Row>,
}

/// How often the time of the BPF programs is measured.
const BPF_ROUNDS: u32 = 5;
/// Name of the program.
const PROGRAM: &str = "frames";
/// Instructions of the program that are stepped to find wrong stacks: the first ones are its start.
const SKIPPED: u32 = 200_000;
const STEPPED: u32 = 500_000;

/// All modes compared at a rate.
fn modes(rate: u64) -> Vec<Mode> {
    let ours = |call_graph| Mode::Ours { collector: Collector::Ebpf, call_graph };
    let perf = |call_graph| Mode::Perf { call_graph, zips: false };
    let large = 1 << 20;
    let mut modes = vec![Mode::None];
    modes.extend([CallGraph::Fp, CallGraph::Cfi, CallGraph::Dwarf(large), CallGraph::Both(large)].map(ours));
    if is_installed("perf") {
        modes.extend([CallGraph::Fp, CallGraph::Dwarf(PERF_LARGEST)].map(perf));
    }
    // lightswitch needs tracefs, and supports at most 1001 samples per second.
    if rate == 999 && is_installed("lightswitch") {
        modes.push(Mode::Lightswitch);
    }
    modes.extend(otel::is_available().then_some(Mode::OtelProfiler));
    modes
}

impl Shape {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let parsed = text.split_once(':').and_then(|(kib, frames)| Some((kib.parse().ok()?, frames.parse().ok()?)));
        let (kib, frames) = parsed.with_context(|| format!("`{text}`: expected KIB:FRAMES, such as 59:50"))?;
        ensure!(frames > 0, "`{text}`: at least one frame");
        Ok(Self { kib, frames })
    }

    fn bytes(self) -> u64 {
        self.kib << 10
    }

    fn build(self, dir: &Path) -> anyhow::Result<Built> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let (program, in_turns, script) = (dir.join(PROGRAM), dir.join("turns").join(PROGRAM), dir.join("workload"));
        std::fs::create_dir_all(dir.join("turns"))?;
        let cc = |more: &[&str], output: &Path| {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "frames.c"]).args(more);
            cc.arg(format!("-DFRAMES={}", self.frames)).arg("-o").arg(output).current_dir(&sources);
            ensure!(cc.status().context("starting cc")?.success(), "building {}", output.display());
            Ok(())
        };
        cc(&[], &program)?;
        cc(&["-DALTERNATE", "alternate.c"], &in_turns)?;
        let text = format!("#!/bin/sh\nexec {} {} \"$1\"\n", in_turns.display(), self.bytes());
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        Ok(Built { program, in_turns, script })
    }
}

/// Measures all modes, and writes and prints the tables.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
    let dir = args.dir.canonicalize()?;
    let fpprof = args.fpprof.canonicalize().context("finding fpprof; build it first, or give --fpprof")?;
    let mut subjects = Vec::new();
    for text in &args.shapes {
        let shape = Shape::parse(text)?;
        let dir = dir.join(text.replace(':', "-"));
        let Built { program, in_turns, script } = shape.build(&dir)?;
        let names = &[PROGRAM];
        print_progress(&format!("{text}: wrong stacks"));
        let wrong_percent = wrong_percents(&fpprof, &program, shape)?;
        let config = RunConfig {
            fpprof: fpprof.clone(),
            workload: script,
            dir,
            seconds: args.seconds,
            draws: false,
            program: Some(in_turns),
            names,
        };
        print_progress(&format!("{text}: BPF programs"));
        let bpf_ns = bpf_ns(&config, &program, shape)?;
        subjects.push(Subject { shape, config, wrong_percent, bpf_ns });
    }
    let (started, mut round_began, mut round) = (Instant::now(), std::time::Duration::ZERO, 0);
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    loop {
        let spent = started.elapsed();
        let is_over = round > 0 && (spent + (spent - round_began)).as_secs() > args.minutes * 60;
        if is_over || round > 2 && widest(&tables(&subjects, &runs, &args.rates)) <= args.points {
            break;
        }
        round_began = spent;
        print_progress(&format!("round {}", round + 1));
        for (Subject { config, .. }, runs) in subjects.iter().zip(&mut runs) {
            runs.extend(one_round(config, &args.rates, round));
        }
        round += 1;
    }
    let tables = tables(&subjects, &runs, &args.rates);
    std::fs::write(dir.join("overhead.json"), serde_json::to_string_pretty(&tables)? + "\n")?;
    let text = markdown(&tables, round)?;
    std::fs::write(dir.join("overhead.md"), &text)?;
    Ok(write!(std::io::stdout(), "{text}")?)
}

/// The share of wrong stacks without a flag of each strategy, in per cent of the instructions that are stepped.
fn wrong_percents(fpprof: &Path, program: &Path, shape: Shape) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    const STRATEGIES: [&str; 3] = ["fp", "dwarf", "cfi"];
    let mut verify = Command::new(fpprof);
    verify.args(["verify", "--json", "--every", "20", "--strategies", &STRATEGIES.join(",")]);
    verify.args(["--skip", &SKIPPED.to_string(), "--max-instructions", &(SKIPPED + STEPPED).to_string()]);
    let output = verify
        .arg("--")
        .arg(program)
        .args([shape.bytes().to_string(), "1".to_owned()])
        .output()
        .context("starting fpprof verify")?;
    ensure!(output.status.success(), "fpprof verify: {}", String::from_utf8_lossy(&output.stderr).trim());
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let checked = report.get("checked").and_then(Value::as_f64).context("nothing was checked")?;
    let of = |name: &'static str| {
        let strategies = report.get("strategies").and_then(Value::as_array).into_iter().flatten();
        let found = strategies.filter(|strategy| strategy.get("name").and_then(Value::as_str) == Some(name));
        let wrong = found.filter_map(|strategy| strategy.get("wrong")?.as_object()).next();
        let wrong = wrong.with_context(|| format!("no {name} in the report"))?;
        let wrong: u64 = wrong.values().filter_map(Value::as_u64).sum();
        Ok((name, wrong as f64 / checked * 100.0))
    };
    STRATEGIES.into_iter().map(of).collect()
}

/// The time of our BPF programs for a sample, in nanoseconds, by mode: medians of recordings in turn.
fn bpf_ns(config: &RunConfig, program: &Path, shape: Shape) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut by_mode: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..BPF_ROUNDS {
        for mode in modes(0) {
            let Mode::Ours { call_graph, .. } = mode else { continue };
            let (ns, _) = ns_per_sample(config, program, &call_graph.to_string(), shape.bytes())?;
            by_mode.entry(mode.to_string()).or_default().push(ns);
        }
    }
    Ok(by_mode.into_iter().filter_map(|(mode, ns)| Some((mode, median(ns)?))).collect())
}

fn one_round(config: &RunConfig, rates: &[u64], round: u32) -> Vec<Run> {
    let of_rate = |&rate: &u64| {
        let modes = modes(rate);
        let (n, turn) = (modes.len(), round as usize % modes.len());
        let in_turn = modes.into_iter().cycle().skip(turn).take(n);
        in_turn.map(move |mode| run::run(config, mode, rate, round, round == 0))
    };
    rates.iter().flat_map(of_rate).collect()
}

fn tables(subjects: &[Subject], runs: &[Vec<Run>], rates: &[u64]) -> Vec<OfShape> {
    let of = |(subject, runs): (&Subject, &Vec<Run>)| {
        let ours = modes(rates.first().copied().unwrap_or_default()).into_iter().filter_map(|mode| {
            let strategy = mode.strategy().filter(|_| matches!(mode, Mode::Ours { .. }))?;
            Some((mode.to_string(), *subject.wrong_percent.get(strategy)?))
        });
        OfShape {
            shape: subject.shape,
            wrong_percent: ours.collect(),
            bpf_ns: subject.bpf_ns.clone(),
            rows: rates.iter().flat_map(|&rate| rows(runs, rate)).collect(),
        }
    };
    subjects.iter().zip(runs).map(of).collect()
}

/// Half the width of the widest interval, in percentage points.
fn widest(tables: &[OfShape]) -> f64 {
    let intervals = tables.iter().flat_map(|table| &table.rows).filter_map(|row| row.slow_down?.interval);
    intervals.map(|interval| (interval.high - interval.low) * 50.0).fold(0.0, f64::max)
}

fn markdown(tables: &[OfShape], rounds: u32) -> anyhow::Result<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let mut text = format!(
        "# What profilers take from a program that computes\n\n{}, {} CPUs, Linux {}; {rounds} interleaved rounds.\n\n\
         - Slow-down: CPU time for the same work with the profiler's events enabled to that with them disabled, in turns \
         of 20 ms, with its 95 % interval over rounds; \"none\" is without a profiler. The profiler's own processes are not \
         in it: CPU s is theirs.\n\
         - Over fp: the slow-down beyond that by the same tool's frame pointers in the same round, with its 95 % interval.\n\
         - BPF: the time of our BPF programs for a sample, by the kernel (median of {BPF_ROUNDS}); 1 µs is 0.1 points at \
         1,000 Hz.\n\
         - Stacks: of the program, in the first round. Complete: of these, unwound by fpprof.\n\
         - Wrong: without a flag, by this strategy of fpprof, of {} of the program's instructions stepped in turn after \
         its start (fpprof verify).\n\
         - Start: the part of CPU s before the first sample.\n\
         - lightswitch (at 997 Hz) and the OpenTelemetry profiler also walk in the kernel; they sample the whole machine. \
         Start is their first 6 s. Complete is what lightswitch itself reports (median of the rounds), and those stacks of \
         the OpenTelemetry profiler that end at the program's entry point; it has none of a program's first one or two \
         seconds.\n\
         - –: not known.\n",
        model.trim_start_matches(['\t', ' ', ':']),
        std::thread::available_parallelism()?,
        std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        STEPPED / 20
    );
    for OfShape { shape, wrong_percent, bpf_ns, rows } in tables {
        let mut rate = None;
        for row in rows {
            if rate != Some(row.rate) {
                rate = Some(row.rate);
                write!(
                    text,
                    "\n## {} KiB of stack, {} frames, {} Hz\n\n| | slow-down | over fp, points | BPF µs | B/sample | stacks | complete | wrong | CPU s | start s | RSS MB | maps MB |\n\
                     |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
                    shape.kib, shape.frames, row.rate
                )?;
            }
            let rss_mb = row.cpu_s.map(|_| row.max_rss_bytes as f64 / 1e6);
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.mode,
                row.slow_down.map_or("–".to_owned(), slow_down_words),
                row.over_fp.map_or("–".to_owned(), points_words),
                figure(bpf_ns.get(&row.mode).map(|ns| ns / 1e3), 2),
                figure(row.bytes_per_sample, 1),
                row.stacks_judged.map_or("–".to_owned(), |stacks| stacks.to_string()),
                row.complete_percent.map_or("–".to_owned(), |percent| format!("{percent:.1} %")),
                wrong_percent.get(&row.mode).map_or("–".to_owned(), |percent| format!("{percent:.2} %")),
                figure(row.cpu_s.map(|cpu| cpu.mean), 2),
                figure(row.start_cpu_s, 2),
                figure(rss_mb, 0),
                figure(row.map_bytes.map(|bytes| bytes / 1e6), 0)
            )?;
        }
        for error in rows.iter().flat_map(|row| row.errors.first()) {
            writeln!(text, "\n- {error}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::Shape;

    /// Check that a shape is parsed, and that the error for an invalid one says what to type.
    #[test]
    fn shapes_are_read() {
        let shape = Shape::parse("59:50").expect("a shape");
        assert_eq!((shape.kib, shape.frames), (59, 50));
        for wrong in ["59", "59:", "59:0", "a:b", ""] {
            assert!(Shape::parse(wrong).is_err(), "{wrong}");
        }
    }
}
