//! Runs a process to its end and measures its cost, in the same way for every profiler.

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open};
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The cost of a profiler process, its children excluded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// The exit status.
    pub(crate) status: ExitStatus,
    /// CPU time of all threads of the process, its children excluded, in seconds; the resolution is 1/100 s.
    pub(crate) own_cpu_s: f64,
    /// Peak resident set in bytes, sampled every 20 ms.
    pub(crate) max_rss_bytes: u64,
    /// The times of its start and its end.
    pub(crate) times: (Instant, Instant),
}

impl Watched {
    /// Wall time in seconds.
    pub(crate) fn wall_s(&self) -> f64 {
        (self.times.1 - self.times.0).as_secs_f64()
    }
}

/// How long a command that is to end may take.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs `command` to its end and measures it; when `stop` becomes readable, the command and what it has started, as a process
/// group, get SIGTERM, and SIGKILL if the command goes on for [`PATIENCE`].
///
/// The CPU time is read before the process is reaped: `/proc/PID/stat` then has its own time without its children's,
/// which `wait4` would include.
///
/// # Errors
/// If the command cannot be started or its figures cannot be read.
pub(crate) fn run(command: &mut Command, stop: Option<BorrowedFd<'_>>) -> anyhow::Result<Watched> {
    let program = command.get_program().to_string_lossy().into_owned();
    if stop.is_some() {
        command.process_group(0);
    }
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    // It has executed the program.
    let start = Instant::now();
    let is_over = AtomicBool::new(false);
    let (ended, max_rss_bytes) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_memory(child.id(), &is_over));
        let ended = await_end(&child, stop).map(|()| Instant::now());
        is_over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        (ended, watcher.join().unwrap_or(0))
    });
    let end = ended?;
    let own_cpu_s = own_cpu_s(child.id()).with_context(|| format!("reading the CPU time of {program}"))?;
    let status = child.wait().with_context(|| format!("waiting for {program}"))?;
    Ok(Watched { status, own_cpu_s, max_rss_bytes, times: (start, end) })
}

/// Waits for the child to exit without reaping it.
fn await_end(child: &Child, stop: Option<BorrowedFd<'_>>) -> anyhow::Result<()> {
    if let Some(stop) = stop {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("opening the process")?;
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        while matches!(poll(&mut fds, None), Err(Errno::INTR)) {}
        if fds.iter().skip(1).any(|fd| !fd.revents().is_empty()) {
            // Its number is not used again before it is reaped. These fail if all of the group have ended.
            let group = Pid::from_child(child);
            let _ = kill_process_group(group, Signal::TERM);
            let mut fds = [PollFd::new(&process, PollFlags::IN)];
            if !matches!(poll(&mut fds, Some(&PATIENCE)), Ok(1)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), options).context("waitid")?;
    Ok(())
}

/// Samples the process's memory until `is_over`; returns the largest peak in bytes.
fn watch_memory(pid: u32, is_over: &AtomicBool) -> u64 {
    let mut max_bytes = 0;
    while !is_over.load(Ordering::Relaxed) {
        max_bytes = max_bytes.max(peak_rss_bytes(pid).unwrap_or(0));
        std::thread::park_timeout(LOOK_EVERY);
    }
    max_bytes
}

/// `VmHWM` of `/proc/PID/status` in bytes; `None` once the process has released its memory.
fn peak_rss_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `utime + stime` of `/proc/PID/stat` (fields 14 and 15) in seconds.
fn own_cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("unexpected /proc/{pid}/stat: {stat}"))?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Parses `utime + stime`. The comm in parentheses may itself contain spaces and parentheses, so fields are counted
/// from the last one.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    utime.checked_add(stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::process::ExitStatusExt as _;

    /// Check that a hostile comm does not shift the fields.
    #[test]
    fn cpu_ticks_survive_a_hostile_comm() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194560 100 200 0 0 31 11 500 600 20 0 1 0 9";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (x"), None);
    }

    /// Check that a command is ended on request, and measured all the same.
    #[test]
    fn a_command_can_be_stopped() {
        let (stop, end) = std::io::pipe().unwrap();
        drop(end);
        let stopped = run(Command::new("sleep").arg("1000"), Some(stop.as_fd())).unwrap();
        assert_eq!(stopped.status.signal(), Some(15), "{stopped:?}");
    }

    /// Check that what a command has started is ended with it.
    #[test]
    fn what_a_command_started_is_stopped() {
        let seconds = format!("1000.{}", std::process::id());
        let command_line = format!("sleep\0{seconds}\0");
        // A process that has ended and is not reaped has no command line.
        let runs = || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            processes
                .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok())
                .any(|line| line == command_line)
        };
        let wait_until = |is_so: bool| {
            let until = Instant::now() + Duration::from_secs(60);
            while runs() != is_so {
                assert!(Instant::now() < until, "runs: {}", !is_so);
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let (stop, end) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            let script = format!("sleep {seconds} & wait");
            let running = scope.spawn(move || run(Command::new("sh").args(["-c", &script]), Some(stop.as_fd())));
            wait_until(true);
            drop(end);
            assert_eq!(running.join().unwrap().unwrap().status.signal(), Some(15));
        });
        wait_until(false);
    }

    /// Check that a busy child's CPU time is counted, and that of its own children is not.
    #[test]
    fn counts_a_process_without_its_children() {
        let burn = "end=$(($(date +%s%N) + 300000000)); while [ $(date +%s%N) -lt $end ]; do :; done";
        let alone = run(
            Command::new("timeout").args(["9", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]),
            None,
        )
        .unwrap();
        assert!(alone.status.success());
        assert!(alone.own_cpu_s < 0.1, "timeout itself burns nothing: {alone:?}");
        let busy = run(Command::new("sh").args(["-c", burn]), None).unwrap();
        assert!(busy.wall_s() >= 0.3 && busy.max_rss_bytes > 100_000, "{busy:?}");
    }
}
