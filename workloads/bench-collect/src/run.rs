//! One run of one mode.

#[path = "../../../src/compare/watch.rs"]
mod watch;

use crate::config::RunConfig;
use crate::judge::{self, Judged};
use crate::modes::{Collector, Mode};
use crate::say::say;
use crate::target;
use anyhow::{Context as _, ensure};
use serde::Serialize;
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
            say(&format!("{mode}: {error:#}"));
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
    let mut command = command(config, mode, rate, &file, &times)?;
    let out = File::create(&output)?;
    command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
    let started_s = target::now_s()?;
    let watched = watch::run(&mut command)?;
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
    if mode == Mode::Lightswitch {
        // Its own stack counts are for all processes, and include kernel stacks.
        std::fs::remove_file(config.dir.join("lightswitch")).ok();
    } else if !matches!(mode, Mode::None) {
        figures.bytes = std::fs::metadata(&file)?.len();
        figures.judged = judge::judge(config, mode, &file, is_thorough)?;
        // For perf's largest files, perf script alone takes minutes.
        figures.svg_s =
            if is_thorough && rate == 999 && config.draws { judge::time_to_svg(config, mode, &file)? } else { None };
        std::fs::remove_file(&file)?;
    }
    Ok(figures)
}

fn command(config: &RunConfig, mode: Mode, rate: u64, file: &Path, times: &Path) -> anyhow::Result<Command> {
    let this = std::env::current_exe()?;
    let rate = rate.to_string();
    let mut command = match mode {
        Mode::None => Command::new(&this),
        Mode::Ours { collector, call_graph } => {
            let mut command = Command::new(&config.fpprof);
            let collector = if collector == Collector::Ebpf { "ebpf" } else { "perf-event" };
            command.args(["record", "--quiet", "--stats", "-F", &rate, "--call-graph", &call_graph.to_string()]);
            command.args(["--collector", collector, "-o"]).arg(file).arg("--").arg(&this);
            command
        }
        Mode::Perf { call_graph, zips } => {
            let mut command = Command::new("perf");
            command.args(["record", "--quiet", "-F", &rate, "--call-graph", &call_graph.to_string()]);
            command.args(zips.then_some("-z")).arg("-o").arg(file).arg("--").arg(&this);
            command
        }
        Mode::Samply => {
            let mut command = Command::new("samply");
            command.args(["record", "--save-only", "--rate", &rate, "-o"]).arg(file).arg("--").arg(&this);
            command
        }
        Mode::Bpftrace => return Ok(bpftrace(config, &rate, file, &this, times)),
        Mode::Lightswitch => return Ok(lightswitch(config, &this, times)),
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

/// The lightswitch command. It runs no command itself, and supports only prime rates, at most 997. The script waits
/// until the tables are built, runs the command, and ends lightswitch.
fn lightswitch(config: &RunConfig, this: &Path, times: &Path) -> Command {
    const SCRIPT: &str = "dir=$1; shift; (sleep 6; \"$@\"; kill -INT $$) & exec lightswitch --sample-freq 997 \
                          --logging info --profile-format pprof --profile-path \"$dir\" --profile-name lightswitch";
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(&config.dir).arg(this).arg("target").arg(times).arg("--");
    command.arg(&config.workload).arg(config.seconds.to_string());
    command
}

/// The number before `unit`.
fn before(printed: &str, unit: &str) -> Option<f64> {
    let (before, _) = printed.split_once(unit)?;
    before.rsplit(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the workload's figure is found among other output.
    #[test]
    fn the_workloads_figure() {
        assert_eq!(before("warning: 3 things\nfio: 12345 IOPS\n", " IOPS"), Some(12345.0));
        assert_eq!(before("nothing", " IOPS"), None);
        let both = "12.5 IOPS, 13.25 without 2 perf events\n";
        let found = [" IOPS", " without", " perf events"].map(|unit| before(both, unit));
        assert_eq!(found, [Some(12.5), Some(13.25), Some(2.0)]);
    }
}
