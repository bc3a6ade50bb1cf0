//! Starts, inspects, awaits and ends processes.

#[path = "../../../tests/support/ended.rs"]
mod ended;

pub(crate) use ended::Ended;

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Ended> {
    let name = command.get_program().to_string_lossy().into_owned();
    Ok(Ended(command.spawn().with_context(|| format!("starting {name}"))?))
}

/// Runs a command to its end, whatever its exit status.
pub(crate) fn ran(command: &mut Command) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))
}

/// Runs a command, which must succeed; returns its stdout.
pub(crate) fn printed(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = ran(command)?;
    ensure!(output.status.success(), "{name}: {}: {}", output.status, words(&output.stderr));
    Ok(output.stdout)
}

pub(crate) fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Compiles one of the project's C programs.
pub(crate) fn compiled(source: &Path, flags: &[&str], program: &Path) -> anyhow::Result<()> {
    printed(Command::new("gcc").args(["-O2"]).args(flags).arg("-o").arg(program).arg(source)).map(drop)
}

pub(crate) fn send_signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so() {
        ensure!(began.elapsed() < limit, "{what}: not so in {limit:?}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits for a process to end, and kills it after the limit.
pub(crate) fn end_of(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("it had not ended after {limit:?}");
        }
        sleep(Duration::from_millis(2));
    }
}

/// Waits for the first samples in a recording: then the file is larger than its header.
pub(crate) fn wait_for_samples(file: &Path) -> anyhow::Result<()> {
    let is_begun = || fs::metadata(file).is_ok_and(|meta| meta.len() > 4096);
    wait_until("samples are written", Duration::from_secs(60), is_begun)
}

/// A field of `/proc/PID/status`.
pub(crate) fn field(status: &str, name: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// A memory figure of a process such as `VmRSS`, in MB.
pub(crate) fn mb(pid: u32, name: &str) -> Option<f64> {
    let value = field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, name)?;
    Some(value.split(' ').next()?.parse::<f64>().ok()? * 1024.0 / 1e6)
}

/// The proportional set size of a process in MB: shared memory is divided among the processes, so that sizes can be
/// added up.
pub(crate) fn pss_mb(pid: u32) -> Option<f64> {
    let value = field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss")?;
    Some(value.split(' ').next()?.parse::<f64>().ok()? * 1024.0 / 1e6)
}

/// The child processes of a process's threads, which parse files for it.
pub(crate) fn parsers(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    let is_parser = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "fpprof-worker")
    };
    children.into_iter().filter(is_parser).collect()
}

/// CPU seconds of a process: fields 14 and 15 of its `stat`, in hundredths of a second.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}
