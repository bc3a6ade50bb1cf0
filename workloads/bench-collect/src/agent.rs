//! Cost of continuous profiling: the agent next to perf, bpftrace, lightswitch and the OpenTelemetry profiler,
//! while nbdkit serves fio.
//!
//! Each profiler runs alone, for the same time at the same rate. Its cost is the CPU time of all its processes after
//! its start, as accounted by the kernel. Interrupts and BPF programs are accounted to the interrupted process, so they
//! are not included. The agent's time includes unwinding, perf's does not.

use crate::modes::is_installed;
use crate::otel::{self, Receiver};
use crate::progress::print_progress;
use crate::run::{TICKS_PER_S, map_bytes};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where files are kept for a while and results go
    #[arg(long, default_value = "target/bench-agent")]
    dir: PathBuf,
    /// The fpprof that profiles
    #[arg(long, default_value = "target/release/fpprof")]
    fpprof: PathBuf,
    /// The workload; it is given the seconds to run
    #[arg(long, default_value = "workloads/nbdkit-fio.sh")]
    workload: PathBuf,
    /// Samples a second and CPU
    #[arg(long, value_delimiter = ',', default_values_t = [19, 99])]
    rates: Vec<u64>,
    /// Minutes that are measured of each; the agent's intervals are a minute
    #[arg(long, default_value_t = 1)]
    minutes: u64,
}

/// The longest time that a profiler may take to start.
const START: Duration = Duration::from_secs(15);
/// Time after the end of an interval within which the agent has processed it.
const DEALT: Duration = Duration::from_secs(3);
/// Where the agent serves its metrics.
const ADDRESS: &str = "127.0.0.1:7476";

/// A profiler and the command that starts it.
#[derive(Debug)]
struct Profiler {
    name: String,
    command: Command,
    /// The file or directory that it writes.
    output: PathBuf,
    is_ours: bool,
    /// What receives its profiles, if it writes none itself.
    receiver: Option<Receiver>,
}

/// The measured figures of one profiler.
#[derive(Debug)]
struct Measured {
    name: String,
    rate: u64,
    start_s: f64,
    cpu_percent: f64,
    /// Of all its processes; pages that they share are counted for each.
    rss_mb: f64,
    /// The same, with each page counted once.
    pss_mb: f64,
    /// Of all BPF maps on the machine.
    maps_mb: f64,
    kb_per_minute: f64,
    complete_percent: Option<f64>,
}

/// Measures all profilers and writes `agent.md`.
///
/// # Errors
/// If a program cannot be run.
pub(crate) fn bench(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir)?;
    let mut all = Vec::new();
    for &rate in &args.rates {
        // It is last, and made when its turn comes: its receiver runs from then on.
        let otel = otel::is_available().then_some(()).into_iter().map(|()| otel_profiler(args, rate));
        for profiler in profilers(args, rate)?.into_iter().map(Ok).chain(otel) {
            let profiler = profiler?;
            let (name, is_ours) = (profiler.name.clone(), profiler.is_ours);
            match measure(args, rate, profiler) {
                Ok(measured) => {
                    print_progress(&format!("{name} at {rate} Hz: {:.2} % of a CPU", measured.cpu_percent));
                    all.push(measured);
                }
                // Others may not run at this rate: lightswitch wants a prime number.
                Err(error) if !is_ours => print_progress(&format!("{name} at {rate} Hz is left out: {error:#}")),
                Err(error) => return Err(error),
            }
        }
    }
    let text = table(&all, args.minutes);
    fs::write(args.dir.join("agent.md"), &text)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn profilers(args: &Args, rate: u64) -> anyhow::Result<Vec<Profiler>> {
    let mut all = Vec::new();
    for call_graph in ["auto,fp", "fp", "dwarf"] {
        let output = args.dir.join(format!("store-{}", call_graph.replace(',', "-")));
        let config = args.dir.join("agent.toml");
        let text = format!(
            "rate = {rate}\ncall-graph = \"{call_graph}\"\n[store]\npath = \"{}\"\n[http]\nlisten = \"{ADDRESS}\"\n\
             [limits]\ncpu-percent = 100.0\n",
            std::path::absolute(&output)?.display()
        );
        let config = config.with_extension(format!("{}.toml", call_graph.replace(',', "-")));
        fs::write(&config, text)?;
        let mut command = Command::new(&args.fpprof);
        command.arg("agent").arg("--config").arg(config);
        all.push(Profiler {
            name: format!("fpprof agent, {call_graph}"),
            command,
            output,
            is_ours: true,
            receiver: None,
        });
    }
    let perf_data = args.dir.join("perf.data");
    for (name, options) in [("perf record -g", &["-g"][..]), ("perf record, dwarf", &["--call-graph", "dwarf,65528"])] {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-a", "-F"]).arg(rate.to_string()).args(options);
        command.arg("-o").arg(&perf_data);
        all.push(Profiler {
            name: name.to_owned(),
            command,
            output: perf_data.clone(),
            is_ours: false,
            receiver: None,
        });
    }
    let mut command = Command::new("bpftrace");
    let script = format!("profile:hz:{rate} {{ @[comm, kstack, ustack] = count(); }}");
    let output = args.dir.join("bpftrace.txt");
    command.arg("-o").arg(&output).arg("-e").arg(script);
    all.push(Profiler { name: "bpftrace, ustack".to_owned(), command, output, is_ours: false, receiver: None });
    if is_installed("lightswitch") {
        let mut command = Command::new("lightswitch");
        command.arg("--sample-freq").arg(rate.to_string()).args(["--sender", "none"]);
        let output = args.dir.join("none");
        all.push(Profiler { name: "lightswitch".to_owned(), command, output, is_ours: false, receiver: None });
    }
    Ok(all)
}

/// The OpenTelemetry profiler, whose receiver runs from now on.
fn otel_profiler(args: &Args, rate: u64) -> anyhow::Result<Profiler> {
    let receiver = Receiver::start(&args.dir)?;
    let mut command = Command::new(otel::PROFILER);
    command.args(otel::options(rate, 5, &receiver).split(' '));
    let (name, output) = ("OTel profiler".to_owned(), args.dir.join("none"));
    Ok(Profiler { name, command, output, is_ours: false, receiver: Some(receiver) })
}

fn measure(args: &Args, rate: u64, profiler: Profiler) -> anyhow::Result<Measured> {
    let Profiler { name, mut command, output, is_ours, receiver: _receiver } = profiler;
    remove(&output);
    let seconds = args.minutes * 60 + 180;
    let workload = Command::new(&args.workload).arg(seconds.to_string()).stdout(Stdio::null()).spawn();
    let _workload = Killed(workload.context("starting the workload")?);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
    let begun = Instant::now();
    let mut running = Killed(started.with_context(|| format!("starting {name}"))?);
    std::thread::sleep(START);
    let start_s = cpu_s(running.0.id());
    // Measure whole intervals of the agent, including the processing at their ends.
    std::thread::sleep(to_next_minute() + DEALT);
    let before_s = cpu_s(running.0.id());
    std::thread::sleep(Duration::from_secs(60 * args.minutes));
    let used_s = cpu_s(running.0.id()) - before_s;
    ensure!(running.0.try_wait()?.is_none(), "{name} has ended by itself");
    let of_all = |kb: &dyn Fn(i32) -> Option<f64>| tree(running.0.id()).into_iter().filter_map(kb).sum::<f64>() / 1e3;
    let rss_mb = of_all(&|pid| memory_kb(&format!("/proc/{pid}/status"), "VmRSS:"));
    let pss_mb = of_all(&|pid| memory_kb(&format!("/proc/{pid}/smaps_rollup"), "Pss:"));
    let maps = Command::new("bpftool")
        .args(["--json", "map", "list"])
        .output()
        .context("starting bpftool, which lists the BPF maps")?;
    let maps_mb = map_bytes(&String::from_utf8_lossy(&maps.stdout)).context("the maps that bpftool lists")? / 1e6;
    let complete_percent = if is_ours { complete() } else { None };
    let ran_s = begun.elapsed().as_secs_f64();
    if let Some(pid) = Pid::from_raw(i32::try_from(running.0.id())?) {
        kill_process(pid, Signal::INT)?;
    }
    running.0.wait()?;
    let kb_per_minute = size(&output) / 1e3 / (ran_s / 60.0);
    remove(&output);
    let cpu_percent = 100.0 * used_s / (60.0 * f64::from(u32::try_from(args.minutes)?));
    Ok(Measured { name, rate, start_s, cpu_percent, rss_mb, pss_mb, maps_mb, kb_per_minute, complete_percent })
}

/// A process that is killed on drop, together with its descendants.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        for pid in tree(self.0.id()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.0.wait();
    }
}

fn to_next_minute() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(60).saturating_sub(Duration::from_secs(since.as_secs() % 60))
}

/// The pids of a process and of all its living descendants.
fn tree(pid: u32) -> Vec<i32> {
    let mut parents: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![i32::try_from(pid).unwrap_or(0)];
    let mut n = 0;
    while let Some(pid) = all.get(n) {
        all.extend(parents.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
        n += 1;
    }
    all
}

/// Fields of `/proc/PID/stat` from the state onwards.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// CPU time of a process, of its living descendants, and of reaped children of both: fields 14 to 17 of `stat`.
fn cpu_s(pid: u32) -> f64 {
    let ticks = |pid| {
        let fields = stat(pid).unwrap_or_default();
        fields.get(11..15).unwrap_or_default().iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    tree(pid).into_iter().map(ticks).sum::<f64>() / TICKS_PER_S
}

/// A number of kilobytes in a file of `/proc`.
fn memory_kb(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Share of complete stacks in per cent, by the strategy other than frame pointers, if there is one.
fn complete() -> Option<f64> {
    let mut connection = TcpStream::connect(ADDRESS).ok()?;
    write!(connection, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    connection.read_to_string(&mut text).ok()?;
    let lines =
        || text.lines().filter(|line| line.starts_with("fpprof_stacks_total{") && !line.contains("\"no_stack\""));
    let has_other = lines().any(|line| !line.contains("strategy=\"fp\""));
    let lines = lines().filter(|line| !has_other || !line.contains("strategy=\"fp\""));
    let (mut all, mut complete) = (0.0, 0.0);
    for line in lines {
        let samples: f64 = line.rsplit(' ').next()?.parse().ok()?;
        all += samples;
        complete += if line.contains("stack=\"complete\"") { samples } else { 0.0 };
    }
    (all > 0.0).then_some(100.0 * complete / all)
}

#[expect(clippy::cast_precision_loss, reason = "bytes of files are below 2^53")]
fn size(path: &Path) -> f64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0.0, |metadata| metadata.len() as f64),
    }
}

fn remove(path: &Path) {
    // The output is a file, a directory, or missing.
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

fn table(all: &[Measured], minutes: u64) -> String {
    let mut text = String::from(
        "| profiler | Hz | CPU, % of one | CPU to start, s | RSS, MB | PSS, MB | BPF maps, MB | written, kB/min | complete stacks, % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in all {
        let complete = one.complete_percent.map_or("–".to_owned(), |percent| format!("{percent:.2}"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {complete} |",
            one.name, one.rate, one.cpu_percent, one.start_s, one.rss_mb, one.pss_mb, one.maps_mb, one.kb_per_minute
        );
    }
    let _ = writeln!(
        text,
        "\nCPU time of the profiler's processes over {minutes} min; interrupts and BPF programs are not in it. \
         The agent unwinds and names its stacks in that time, the others do so later or not at all. Memory is that of all \
         processes of the profiler at the end; PSS counts pages that they share once. RSS and PSS include BPF maps only as far \
         as a profiler maps them into its memory, as the agent does."
    );
    text
}
