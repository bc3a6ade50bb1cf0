//! Cost of continuous profiling: the agent next to perf, bpftrace, lightswitch and the OpenTelemetry profiler,
//! while nbdkit serves fio.
//!
//! Each profiler runs alone, for the same time at the same rate. Its cost is the CPU time of all its processes after
//! its start, as accounted by the kernel. Interrupts and BPF programs are accounted to the interrupted process, so they
//! are not included. The agent unwinds and names its stacks in that time. perf does so when its file is read, and
//! bpftrace when it ends, so these are measured as well.

use crate::modes::is_installed;
use crate::otel::{self, Receiver};
use crate::processes::{Killed, Memory, cpu_s};
use crate::progress::print_progress;
use crate::run::{map_bytes, watch};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    naming: Naming,
    /// What receives its profiles, if it writes none itself.
    receiver: Option<Receiver>,
}

/// When the stacks of a profiler are unwound and get the names of their functions.
#[derive(Debug)]
enum Naming {
    /// As it runs: the agent.
    AsItRuns,
    /// When it ends: bpftrace.
    AtItsEnd,
    /// When this command reads its file: perf.
    Later(Command),
    /// By the server that it sends its profiles to.
    Elsewhere,
}

/// The measured figures of one profiler.
#[derive(Debug)]
struct Measured {
    name: String,
    rate: u64,
    start_s: f64,
    cpu_percent: f64,
    memory: Memory,
    /// The same with what unwinds and names the stacks; `None` if that is done elsewhere.
    named: Option<Named>,
    /// Of all BPF maps on the machine.
    maps_mb: f64,
    kb_per_minute: f64,
    complete_percent: Option<f64>,
}

/// The cost of a profiler up to stacks with the names of functions.
#[derive(Debug, Clone, Copy)]
struct Named {
    cpu_percent: f64,
    rss_mb: f64,
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
            let (name, is_ours) = (profiler.name.clone(), matches!(profiler.naming, Naming::AsItRuns));
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
            naming: Naming::AsItRuns,
            receiver: None,
        });
    }
    let perf_data = args.dir.join("perf.data");
    for (name, options) in [("perf record -g", &["-g"][..]), ("perf record, dwarf", &["--call-graph", "dwarf,65528"])] {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-a", "-F"]).arg(rate.to_string()).args(options);
        command.arg("-o").arg(&perf_data);
        let mut script = Command::new("perf");
        // With inlined functions it takes many times as long.
        script.args(["script", "--no-inline", "-i"]).arg(&perf_data);
        all.push(Profiler {
            name: name.to_owned(),
            command,
            output: perf_data.clone(),
            naming: Naming::Later(script),
            receiver: None,
        });
    }
    let mut command = Command::new("bpftrace");
    let script = format!("profile:hz:{rate} {{ @[comm, kstack, ustack] = count(); }}");
    let output = args.dir.join("bpftrace.txt");
    command.arg("-o").arg(&output).arg("-e").arg(script);
    let name = "bpftrace, ustack".to_owned();
    all.push(Profiler { name, command, output, naming: Naming::AtItsEnd, receiver: None });
    if is_installed("lightswitch") {
        let mut command = Command::new("lightswitch");
        command.arg("--sample-freq").arg(rate.to_string()).args(["--sender", "none"]);
        let output = args.dir.join("none");
        let name = "lightswitch".to_owned();
        all.push(Profiler { name, command, output, naming: Naming::Elsewhere, receiver: None });
    }
    Ok(all)
}

/// The OpenTelemetry profiler, whose receiver runs from now on.
fn otel_profiler(args: &Args, rate: u64) -> anyhow::Result<Profiler> {
    let receiver = Receiver::start(&args.dir)?;
    let mut command = Command::new(otel::PROFILER);
    command.args(otel::options(rate, 5, &receiver).split(' '));
    let (name, output) = ("OTel profiler".to_owned(), args.dir.join("none"));
    Ok(Profiler { name, command, output, naming: Naming::Elsewhere, receiver: Some(receiver) })
}

fn measure(args: &Args, rate: u64, profiler: Profiler) -> anyhow::Result<Measured> {
    let Profiler { name, mut command, output, naming, receiver: _receiver } = profiler;
    remove(&output);
    let seconds = args.minutes * 60 + 180;
    let workload = Command::new(&args.workload).arg(seconds.to_string()).stdout(Stdio::null()).spawn();
    let _workload = Killed(workload.context("starting the workload")?);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
    let begun = Instant::now();
    let mut running = Killed(started.with_context(|| format!("starting {name}"))?);
    let pid = running.0.id();
    std::thread::sleep(START);
    let start_s = cpu_s(pid);
    // Measure whole intervals of the agent, including the processing at their ends.
    std::thread::sleep(to_next_minute() + DEALT);
    let before_s = cpu_s(pid);
    let memory = Memory::watch(pid, Duration::from_secs(60 * args.minutes));
    let used_s = cpu_s(pid) - before_s;
    ensure!(running.0.try_wait()?.is_none(), "{name} has ended by itself");
    let maps = Command::new("bpftool")
        .args(["--json", "map", "list"])
        .output()
        .context("starting bpftool, which lists the BPF maps")?;
    let maps_mb = map_bytes(&String::from_utf8_lossy(&maps.stdout)).context("the maps that bpftool lists")? / 1e6;
    let complete_percent = if matches!(naming, Naming::AsItRuns) { complete() } else { None };
    let ran_s = begun.elapsed().as_secs_f64();
    let ran_cpu_s = cpu_s(pid);
    kill_process(Pid::from_child(&running.0), Signal::INT)?;
    let end_memory = Memory::watch_end(&running.0)?;
    let end_s = cpu_s(pid) - ran_cpu_s;
    running.0.wait()?;
    let kb_per_minute = size(&output) / 1e3 / (ran_s / 60.0);
    let cpu_percent = 100.0 * used_s / (60.0 * f64::from(u32::try_from(args.minutes)?));
    // What is done later is done for the whole time.
    let with = |later_s: f64, rss_mb: f64| Named {
        cpu_percent: cpu_percent + 100.0 * later_s / ran_s,
        rss_mb: memory.rss_mb.max(rss_mb),
    };
    let named = match naming {
        Naming::AsItRuns => Some(with(0.0, 0.0)),
        Naming::AtItsEnd => Some(with(end_s, end_memory.rss_mb)),
        Naming::Later(mut reader) => {
            let read = watch::run(reader.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()), None)?;
            ensure!(read.status.success(), "{reader:?}: {}", read.status);
            Some(with(read.own_cpu_s, megabytes(read.max_rss_bytes)))
        }
        Naming::Elsewhere => None,
    };
    remove(&output);
    Ok(Measured { name, rate, start_s, cpu_percent, memory, named, maps_mb, kb_per_minute, complete_percent })
}

fn to_next_minute() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(60).saturating_sub(Duration::from_secs(since.as_secs() % 60))
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

#[expect(clippy::cast_precision_loss, reason = "a program's memory is below 2^53 bytes")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn remove(path: &Path) {
    // The output is a file, a directory, or missing.
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

fn table(all: &[Measured], minutes: u64) -> String {
    let mut text = String::from(
        "| profiler | Hz | CPU, % of one | with names | CPU to start, s | RSS, MB | with names | PSS, MB | BPF maps, MB | PSS and maps, MB | written, kB/min | complete stacks, % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in all {
        let complete = one.complete_percent.map_or("–".to_owned(), |percent| format!("{percent:.2}"));
        let (named_cpu, named_rss) = one.named.map_or(("–".to_owned(), "–".to_owned()), |named| {
            (format!("{:.2}", named.cpu_percent), format!("{:.0}", named.rss_mb))
        });
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {named_cpu} | {:.2} | {:.0} | {named_rss} | {:.0} | {:.0} | {:.0} | {:.0} | {complete} |",
            one.name,
            one.rate,
            one.cpu_percent,
            one.start_s,
            one.memory.rss_mb,
            one.memory.pss_mb,
            one.maps_mb,
            one.memory.pss_mb + (one.maps_mb - one.memory.mapped_maps_mb).max(0.0),
            one.kb_per_minute
        );
    }
    let _ = writeln!(
        text,
        "\nCPU time of the profiler's processes over {minutes} min; interrupts and BPF programs are not in it. \
         `with names` is the cost up to stacks with the names of functions: the agent's is the same; with `perf record`, `perf script \
         --no-inline` reads the file; bpftrace finds the names when it ends; – is left to a server. Memory is the most \
         that all processes of the profiler had together in that time, seen every second, and every 20 ms in the last four; PSS counts \
         pages that they share once. RSS and PSS include BPF maps only as far as a profiler maps them into its memory, as the agent does; \
         `PSS and maps` has all of both, each page once."
    );
    text
}
