//! One run of one mode.

#[path = "../../../src/compare/watch.rs"]
pub(crate) mod watch;

use crate::config::RunConfig;
use crate::judge::{self, Judged};
use crate::modes::{Collector, Mode};
use crate::otel::{self, Receiver};
use crate::progress::print_progress;
use crate::target;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// One run, with its figures or the error.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    #[serde(skip)]
    pub(crate) key: Mode,
    pub(crate) mode: String,
    pub(crate) rate: u64,
    pub(crate) round: u32,
    pub(crate) figures: Option<Figures>,
    pub(crate) error: Option<String>,
}

/// The cost and the results of one run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    /// Operations per second, as the workload reports them.
    pub(crate) iops: f64,
    /// The same without the profiler, if the workload measures that too.
    pub(crate) iops_without: Option<f64>,
    /// Seconds from the profiler's start to the command's first instruction.
    pub(crate) start_s: f64,
    /// Seconds from the command's end to the profiler's.
    pub(crate) stop_s: f64,
    /// CPU seconds of the profiler, its children excluded.
    pub(crate) cpu_s: f64,
    pub(crate) max_rss_bytes: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    #[serde(flatten)]
    pub(crate) judged: Judged,
    /// Wall seconds from the file to a flame graph; only of thorough runs at 999 Hz.
    pub(crate) svg_s: Option<f64>,
}

/// Runs a mode once. An error is part of the result: one profiler's failure must not end the benchmark of the others.
/// In a thorough run the stacks are judged and a flame graph is drawn.
pub(crate) fn run(config: &RunConfig, mode: Mode, rate: u64, round: u32, is_thorough: bool) -> Run {
    let result = figures(config, mode, rate, is_thorough);
    let (figures, error) = match result {
        Ok(figures) => (Some(figures), None),
        Err(error) => {
            print_progress(&format!("{mode}: {error:#}"));
            (None, Some(format!("{error:#}")))
        }
    };
    Run { key: mode, mode: mode.to_string(), rate, round, figures, error }
}

fn figures(config: &RunConfig, mode: Mode, rate: u64, is_thorough: bool) -> anyhow::Result<Figures> {
    let file = config.dir.join(if mode == Mode::Samply { "recording.json.gz" } else { "recording" });
    let (times, output) = (config.dir.join("times"), config.dir.join("output.txt"));
    for old in [&file, &times] {
        if old.exists() {
            std::fs::remove_file(old)?;
        }
    }
    let receiver = if mode == Mode::OtelProfiler { Some(Receiver::start(&config.dir)?) } else { None };
    let mut command = command(config, mode, rate, &file, &times, receiver.as_ref())?;
    let out = File::create(&output)?;
    command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
    let started_s = target::now_s()?;
    let watched = watch::run(&mut command, None)?;
    let ended_s = started_s + watched.wall_s();
    let printed = std::fs::read_to_string(&output)?;
    ensure!(watched.status.success(), "{}: {}", watched.status, printed.lines().last().unwrap_or("it printed nothing"));
    if let Some(n_events) = before(&printed, " perf events") {
        let is_profiled = mode != Mode::None;
        ensure!(
            (n_events > 0.0) == is_profiled,
            "{n_events} perf events were found: is another profiler running, or none?"
        );
    }
    let (began_s, over_s) = target::read(&times)?;
    let mut figures = Figures {
        iops: before(&printed, " IOPS").context("the workload printed no IOPS")?,
        iops_without: before(&printed, " without"),
        start_s: began_s - started_s,
        stop_s: ended_s - over_s,
        cpu_s: watched.own_cpu_s,
        max_rss_bytes: watched.max_rss_bytes,
        ..Figures::default()
    };
    if let Some(receiver) = receiver {
        // Complete stacks are recognized only of a single program.
        if let Some(program) = config.program.as_ref().filter(|_| is_thorough) {
            figures.judged = receiver.judge(program)?;
        }
    } else if mode == Mode::Lightswitch {
        // Its own stack counts are for all processes, and include kernel stacks.
        std::fs::remove_file(config.dir.join("lightswitch")).ok();
        figures.judged.own_complete_percent = lightswitch_complete(&printed);
    } else if !matches!(mode, Mode::None) {
        figures.bytes = std::fs::metadata(&file)?.len();
        figures.judged = judge::judge(config, mode, &file, is_thorough)?;
        // For perf's largest files, perf script alone takes minutes.
        figures.svg_s =
            if is_thorough && rate == 999 && config.draws { judge::time_to_svg(config, mode, &file)? } else { None };
        std::fs::remove_file(&file)?;
    }
    if matches!(mode, Mode::Lightswitch | Mode::OtelProfiler) {
        (figures.judged.start_cpu_s, figures.judged.map_bytes) = after_start(&config.dir);
    }
    Ok(figures)
}

fn command(
    config: &RunConfig,
    mode: Mode,
    rate: u64,
    file: &Path,
    times: &Path,
    receiver: Option<&Receiver>,
) -> anyhow::Result<Command> {
    let this = std::env::current_exe()?;
    let hertz = rate.to_string();
    let mut command = match mode {
        Mode::None => Command::new(&this),
        Mode::Ours { collector, call_graph } => {
            let mut command = Command::new(&config.fpprof);
            let collector = if collector == Collector::Ebpf { "ebpf" } else { "perf-event" };
            command.args(["record", "--quiet", "--stats", "-F", &hertz, "--call-graph", &call_graph.to_string()]);
            command.args(["--collector", collector, "-o"]).arg(file).arg("--").arg(&this);
            command
        }
        Mode::Perf { call_graph, zips } => {
            let mut command = Command::new("perf");
            command.args(["record", "--quiet", "-F", &hertz, "--call-graph", &call_graph.to_string()]);
            command.args(zips.then_some("-z")).arg("-o").arg(file).arg("--").arg(&this);
            command
        }
        Mode::Samply => {
            let mut command = Command::new("samply");
            command.args(["record", "--save-only", "--rate", &hertz, "-o"]).arg(file).arg("--").arg(&this);
            command
        }
        Mode::Bpftrace => return Ok(bpftrace(config, &hertz, file, &this, times)),
        // It supports only prime rates, at most 997.
        Mode::Lightswitch => during(
            "lightswitch --sample-freq 997 --logging info --profile-format pprof --profile-name lightswitch --profile-path .",
            &config.dir,
            &this,
        ),
        Mode::OtelProfiler => {
            let options = otel::options(rate, 1, receiver.context("no receiver of profiles")?);
            during(&format!("{} {options}", otel::PROFILER), &config.dir, &this)
        }
    };
    command.arg("target").arg(times).arg("--").arg(&config.workload).arg(config.seconds.to_string());
    Ok(command)
}

/// The bpftrace command, which takes the profiled command as one string.
fn bpftrace(config: &RunConfig, rate: &str, file: &Path, this: &Path, times: &Path) -> Command {
    let script = format!(
        "profile:hz:{rate} /comm == \"nbdkit\" || comm == \"fio\"/ {{ @[comm, ustack(perf, 127)] = count(); }}"
    );
    let target =
        format!("{} target {} -- {} {}", this.display(), times.display(), config.workload.display(), config.seconds);
    let mut command = Command::new("bpftrace");
    command.arg("-o").arg(file).args(["-e", &script, "-c", &target]);
    command
}

/// The command of a profiler that runs none itself: a script that gives it some seconds to start, notes what it has taken
/// by then, runs `this` with the arguments that are added, and ends the profiler after another second, in which it
/// reports. If the profiler has failed by then, nothing more runs.
fn during(profiler: &str, dir: &Path, this: &Path) -> Command {
    let script = format!(
        "(sleep 6; kill -0 $$ || exit; cat /proc/$$/stat >{START_FILE}; bpftool --json map list >{MAPS_FILE}; \"$@\"; sleep 1; kill -INT $$) & \
         exec {profiler}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(this).current_dir(dir);
    command
}

const START_FILE: &str = "start.stat";
const MAPS_FILE: &str = "maps.json";

/// CPU seconds of such a profiler before the command, and bytes of all BPF maps then; `None` if not known.
fn after_start(dir: &Path) -> (Option<f64>, Option<f64>) {
    let read = |name| std::fs::read_to_string(dir.join(name)).ok();
    let ticks = |stat: String| {
        let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
        Some(fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S)
    };
    (read(START_FILE).and_then(ticks), read(MAPS_FILE).and_then(|maps| map_bytes(&maps)))
}

/// Memory of the BPF maps that `bpftool --json map list` has listed.
pub(crate) fn map_bytes(maps: &str) -> Option<f64> {
    let maps: Vec<Value> = serde_json::from_str(maps).ok()?;
    // The sum of nothing is -0.
    Some(maps.iter().filter_map(|map| map.get("bytes_memlock")?.as_f64()).sum::<f64>() + 0.0)
}

/// Clock ticks of `/proc` per second, the same on every Linux system.
pub(crate) const TICKS_PER_S: f64 = 100.0;

/// The last share that lightswitch prints, in per cent.
fn lightswitch_complete(printed: &str) -> Option<f64> {
    printed.rsplit_once("stacks successfully unwound: ")?.1.split_once('%')?.0.parse().ok()
}

/// The number before `unit`.
fn before(printed: &str, unit: &str) -> Option<f64> {
    let (before, _) = printed.split_once(unit)?;
    before.rsplit(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the workload's figure and lightswitch's are found among other output.
    #[test]
    fn the_workloads_figure() {
        assert_eq!(before("warning: 3 things\nfio: 12345 IOPS\n", " IOPS"), Some(12345.0));
        assert_eq!(before("nothing", " IOPS"), None);
        let both = "12.5 IOPS, 13.25 without 2 perf events\n";
        let found = [" IOPS", " without", " perf events"].map(|unit| before(both, unit));
        assert_eq!(found, [Some(12.5), Some(13.25), Some(2.0)]);
        let printed = "stacks successfully unwound: 100.00%\nINFO stacks successfully unwound: 1.32%\nWARN x";
        assert_eq!((lightswitch_complete(printed), lightswitch_complete(both)), (Some(1.32), None));
    }
}
