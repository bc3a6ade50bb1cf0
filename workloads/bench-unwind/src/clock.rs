//! CPU time, wall time and memory of processes.

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time of this process, all threads.
pub(crate) fn process_cpu() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// CPU seconds, user and system, of all children waited for.
pub(crate) fn children_cpu_s() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Resets the peak resident set, and returns the current one in bytes.
///
/// # Sources
/// proc(5), `/proc/pid/clear_refs`: 5 resets the peak.
pub(crate) fn reset_peak() -> anyhow::Result<u64> {
    std::fs::write("/proc/self/clear_refs", "5").context("/proc/self/clear_refs")?;
    status_bytes("VmRSS:")
}

/// The peak resident set since [`reset_peak`], in bytes.
pub(crate) fn peak() -> anyhow::Result<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(label: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(label)).context("/proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
