//! The agent's own cost.

use super::effort::Used;
use crate::worker::{cpu_time, rss_bytes};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use std::time::{Duration, Instant};

/// Measures the cost between calls: of this process, of the processes that parse files for the recorder, and of those
/// that unwound.
#[derive(Debug)]
pub(super) struct Meter {
    at: Instant,
    cpu: Duration,
}

/// The agent's own cost of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    pub(super) cpu: Duration,
    pub(super) used: Used,
}

impl Meter {
    pub(super) fn new(parsers: &[u32]) -> Self {
        Self { at: Instant::now(), cpu: cpu(parsers) }
    }

    /// Returns the cost since the last call. `parsers` are the pids of the processes that parse files.
    pub(super) fn look(&mut self, parsers: &[u32]) -> Spent {
        let (at, now) = (Instant::now(), cpu(parsers));
        let (elapsed, cpu) = (at.saturating_duration_since(self.at), now.saturating_sub(self.cpu));
        (self.at, self.cpu) = (at, now);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let machine_s = elapsed.as_secs_f64() * cpus as f64;
        let cpu_percent = 100.0 * cpu.as_secs_f64() / machine_s.max(f64::MIN_POSITIVE);
        let pids = ["self".to_owned()].into_iter().chain(parsers.iter().map(u32::to_string));
        let rss_bytes = pids.filter_map(|pid| rss_bytes(&pid)).sum();
        Spent { cpu, used: Used { cpu_percent, rss_bytes } }
    }
}

/// CPU time of this process, of its children that have ended, and of the running parsers.
fn cpu(parsers: &[u32]) -> Duration {
    let own = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].into_iter().filter_map(|who| getrusage(who).ok());
    own.map(|usage| time(&usage)).chain(parsers.iter().copied().map(cpu_time)).sum()
}

fn time(usage: &Usage) -> Duration {
    let time = |time: nix::sys::time::TimeVal| {
        let us = u64::try_from(time.tv_usec()).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0)) + Duration::from_micros(us)
    };
    time(usage.user_time()) + time(usage.system_time())
}
