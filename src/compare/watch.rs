//! Runs a process to its end and says what it cost, by the same means whichever profiler it is.

use anyhow::Context as _;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// What a profiler process cost, its children excluded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Wall time, seconds.
    pub(crate) wall_s: f64,
    /// CPU of the process itself with all its threads, its children excluded, seconds; in steps of 1/100 s.
    pub(crate) own_cpu_s: f64,
    /// Largest resident set seen, bytes; looked at every 20 ms.
    pub(crate) max_rss_bytes: u64,
}

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts `command`, waits for its end and measures it.
///
/// The CPU time is read while the ended process still waits to be reaped: `/proc/PID/stat` then holds its own time
/// without its children's, which `wait4` would add.
///
/// # Errors
/// If it cannot be started or its figures cannot be read.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Watched> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut max_rss_bytes = 0;
    while !has_ended(&child)? {
        max_rss_bytes = max_rss_bytes.max(peak_rss_bytes(child.id()).unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    let wall_s = start.elapsed().as_secs_f64();
    let own_cpu_s = own_cpu_s(child.id()).with_context(|| format!("reading the CPU time of {program}"))?;
    let status = child.wait().with_context(|| format!("waiting for {program}"))?;
    Ok(Watched { status, wall_s, own_cpu_s, max_rss_bytes })
}

/// Whether the child has ended; it is left to be reaped.
fn has_ended(child: &Child) -> anyhow::Result<bool> {
    let pid = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(rustix::process::waitid(WaitId::Pid(pid), options).context("waitid")?.is_some())
}

/// `VmHWM` of `/proc/PID/status`, bytes; `None` once the memory is gone.
fn peak_rss_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `utime + stime` of `/proc/PID/stat` (fields 14 and 15), seconds.
fn own_cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("unexpected /proc/{pid}/stat: {stat}"))?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The comm in parentheses may itself hold spaces and parentheses, so fields count from the last one.
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

    /// Check that a hostile comm does not shift the fields.
    #[test]
    fn cpu_ticks_survive_a_hostile_comm() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194560 100 200 0 0 31 11 500 600 20 0 1 0 9";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (x"), None);
    }

    /// Check that a busy child's time is found and that its own children's is not.
    #[test]
    fn counts_a_process_without_its_children() {
        let burn = "end=$(($(date +%s%N) + 300000000)); while [ $(date +%s%N) -lt $end ]; do :; done";
        let alone =
            run(Command::new("timeout").args(["9", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]))
                .unwrap();
        assert!(alone.status.success());
        assert!(alone.own_cpu_s < 0.1, "timeout itself burns nothing: {alone:?}");
        let busy = run(Command::new("sh").args(["-c", burn])).unwrap();
        assert!(busy.wall_s >= 0.3 && busy.max_rss_bytes > 100_000, "{busy:?}");
    }
}
