//! The cost of recording and unwinding.

use super::effort::Used;
use crate::worker::rss_bytes;
use fpprof_collector::n_online_cpus;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use rustix::thread::Pid;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Measures the cost between calls: of this process and of its workers. A recorded command is another child: so
/// `RUSAGE_CHILDREN` is no help.
#[derive(Debug)]
pub(super) struct Meter {
    at: Instant,
    cpu: Duration,
    /// Of that, the part of the thread that serves metrics.
    serving: Duration,
}

/// The agent's own cost of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    pub(super) cpu: Duration,
    pub(super) used: Used,
}

impl Meter {
    /// `workers` is the CPU time of workers so far.
    pub(super) fn new(workers: Duration) -> Self {
        Self { at: Instant::now(), cpu: own_cpu() + workers, serving: serving() }
    }

    /// Returns the cost since the last call. `running` are the pids of the workers that still run.
    pub(super) fn look(&mut self, workers: Duration, running: &[u32]) -> Spent {
        let now = Self::new(workers);
        let (elapsed, cpu) = (now.at.saturating_duration_since(self.at), now.cpu.saturating_sub(self.cpu));
        let limited = cpu.saturating_sub(now.serving.saturating_sub(self.serving));
        *self = now;
        let cpus = n_online_cpus();
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let machine_s = elapsed.as_secs_f64() * cpus as f64;
        let cpu_percent = 100.0 * limited.as_secs_f64() / machine_s.max(f64::MIN_POSITIVE);
        let pids = ["self".to_owned()].into_iter().chain(running.iter().map(u32::to_string));
        let rss_bytes = pids.filter_map(|pid| rss_bytes(&pid)).sum();
        Spent { cpu, used: Used { cpu_percent, rss_bytes } }
    }
}

/// The thread that serves metrics, once it runs.
static SERVING: OnceLock<Pid> = OnceLock::new();

/// Leaves the thread that serves metrics out of what the limit is compared with: any local user can make it work.
pub(super) fn count_apart(thread: Pid) {
    let _ = SERVING.set(thread);
}

fn serving() -> Duration {
    let path = SERVING.get().map(|thread| format!("/proc/self/task/{thread}/schedstat"));
    let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn own_cpu() -> Duration {
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| time(&usage))
}

fn time(usage: &Usage) -> Duration {
    let time = |time: nix::sys::time::TimeVal| {
        let us = u64::try_from(time.tv_usec()).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0)) + Duration::from_micros(us)
    };
    time(usage.user_time()) + time(usage.system_time())
}
