//! How soon walks in the kernel have the rules they need, and what that costs: rustc compiles many crates, next to
//! copied stacks of the same size; and a recording of the whole machine starts while 300 processes exist, next to other
//! profilers.

use crate::modes::is_installed;
use crate::progress::print_progress;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where files are kept for a while and results go
    #[arg(long, default_value = "target/bench-rules")]
    dir: PathBuf,
    /// The fpprof that records
    #[arg(long, default_value = "target/release/fpprof")]
    fpprof: PathBuf,
    /// How often each recording of rustc is made
    #[arg(long, default_value_t = 2)]
    rounds: u32,
}

/// A crate whose dependencies are in cargo's cache, since fpprof was built from them. They take over two minutes.
const CRATE: &str = "fpprof-analysis";
/// Processes that exist when a recording starts.
const PROCESSES: usize = 300;
/// Seconds after the start.
const PERIODS: [(f64, &str); 3] = [(0.0, "0..10"), (10.0, "10..60"), (60.0, "60..")];

/// Measures everything and writes `rules.md`.
///
/// # Errors
/// If a program cannot be run.
pub(crate) fn bench(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir)?;
    let mut text = String::from(
        "| rustc, 499 Hz | samples | complete, % | walks given up, % in seconds 0–10 | 10–60 | from 60 on | collector CPU, s | maps, MB |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for round in 0..args.rounds {
        for mode in ["cfi,1M,verify=0", "dwarf,1M"] {
            print_progress(&format!("round {round}: {mode}"));
            text += &compiled(args, mode)?;
        }
    }
    text +=
        "\n| start among 300 processes | CPU before sampling, s | CPU of a recording of 1 s, s |\n|---|---:|---:|\n";
    let _processes = Processes::start()?;
    for (name, command) in profilers(args) {
        print_progress(&name);
        text += &started(args, &name, command)?;
    }
    fs::write(args.dir.join("rules.md"), &text)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Records cargo and rustc in a mode; returns the row of the table.
fn compiled(args: &Args, mode: &str) -> anyhow::Result<String> {
    let (file, target) = (args.dir.join("rustc.fpprof"), args.dir.join("target"));
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    let mut record = Command::new(&args.fpprof);
    record.args(["record", "--quiet", "-F", "499", "--collector", "ebpf", "--call-graph", mode, "-o"]).arg(&file);
    record.args(["--", "cargo", "build", "--quiet", "--release", "--offline", "-j1", "-p", CRATE, "--target-dir"]);
    run(record.arg(&target))?;
    let whole = report(args, &file, None)?;
    let stacks = whole.get("strategies").and_then(Value::as_object).and_then(|all| all.values().next());
    let stacks = stacks.context("a strategy")?;
    let (samples, complete) = (number(stacks, "/samples")?, number(stacks, "/complete")?);
    let mut row = format!("| {mode} | {samples} | {:.2} |", 100.0 * complete / samples);
    let seconds = number(&whole, "/duration_s")?;
    for (begin, period) in PERIODS {
        let percent = if begin < seconds { given_up(&report(args, &file, Some(period))?) } else { None };
        row += &percent.map_or(" – |".to_owned(), |percent| format!(" {percent:.1} |"));
    }
    let (cpu_s, map_bytes) = (number(&whole, "/cost/collector_cpu_s")?, number(&whole, "/cost/map_bytes")?);
    Ok(format!("{row} {cpu_s:.2} | {:.0} |\n", map_bytes / 1e6))
}

/// Share of the walks that were given up in per cent; `None` if there were none.
fn given_up(report: &Value) -> Option<f64> {
    let walks = report.get("kernel_walks")?;
    let misses: f64 = walks.get("misses")?.as_object()?.values().filter_map(Value::as_f64).sum();
    let all = walks.get("complete")?.as_f64()? + misses;
    (all > 0.0).then(|| 100.0 * misses / all)
}

/// Profilers of the whole machine for a second.
fn profilers(args: &Args) -> Vec<(String, Command)> {
    let mut all = Vec::new();
    for mode in ["cfi", "dwarf", "fp"] {
        let mut command = Command::new(&args.fpprof);
        command.args(["record", "--quiet", "-a", "-F", "99", "--collector", "ebpf", "--duration", "1"]);
        command.args(["--call-graph", mode, "-o"]).arg(args.dir.join("start.fpprof"));
        all.push((format!("fpprof, {mode}"), command));
    }
    if is_installed("perf") {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf,65528", "-o"]);
        command.arg(args.dir.join("start.perf")).args(["--", "sleep", "1"]);
        all.push(("perf, dwarf".to_owned(), command));
    }
    if is_installed("lightswitch") {
        let mut command = Command::new("lightswitch");
        command.args(["--duration", "1", "--sample-freq", "99", "--sender", "none"]);
        all.push(("lightswitch".to_owned(), command));
    }
    all
}

/// Runs a profiler; returns the row of the table.
fn started(args: &Args, name: &str, mut command: Command) -> anyhow::Result<String> {
    let before_s = children_cpu_s()?;
    run(&mut command)?;
    let used_s = children_cpu_s()? - before_s;
    let start = if name.starts_with("fpprof") {
        format!("{:.2}", number(&report(args, &args.dir.join("start.fpprof"), None)?, "/cost/start_cpu_s")?)
    } else {
        "–".to_owned()
    };
    Ok(format!("| {name} | {start} | {used_s:.2} |\n"))
}

/// CPU time of all children that have ended, and of theirs, but not of those that still run, such as the busy one: fields
/// 16 and 17 of `/proc/self/stat`, in ticks of 10 ms.
fn children_cpu_s() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(") ").context("the fields of stat")?.1.split(' ');
    Ok(fields.skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn report(args: &Args, file: &Path, time: Option<&str>) -> anyhow::Result<Value> {
    let mut command = Command::new(&args.fpprof);
    command.arg("report").arg(file).arg("--json");
    command.args(time.into_iter().flat_map(|time| ["--time", time]));
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(value: &Value, pointer: &str) -> anyhow::Result<f64> {
    value.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("{pointer} in the report"))
}

/// Idle processes and a busy one, so that there is something to sample; killed on drop.
struct Processes(Vec<Child>);

impl Processes {
    fn start() -> anyhow::Result<Self> {
        let mut all = Self(vec![Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn()?]);
        for _ in 0..PROCESSES {
            all.0.push(Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn()?);
        }
        Ok(all)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have been killed by somebody else.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
