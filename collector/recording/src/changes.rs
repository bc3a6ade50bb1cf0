//! When processes and threads last changed.

use crate::compiled::jitdump;
use crate::model::{Comm, Fork, Measure, Meta, Sample, Sideband};
use rustc_hash::{FxHashMap, FxHashSet};

/// The most processes and threads that are told apart.
const MAX_IDS: usize = 1 << 16;

/// Decides which earlier samples a sample may repeat: those within the recording's limit, with no event of its process
/// or thread between, after which the same addresses may mean something else.
#[derive(Debug)]
pub(crate) struct Changes {
    /// How far equal samples may be apart; `None` if each sample is written.
    aggregated_ns: Option<u64>,
    /// Events whose samples are waits, of which no two are equal.
    waits: Vec<u16>,
    /// Time of the latest event, by pid, and by tid for events of a single thread.
    latest: FxHashMap<u32, u64>,
    /// Time of the latest event of all others.
    others_ns: u64,
    /// Processes with a dump of compiled code: what is at an address depends on the time, without an event.
    compiling: FxHashSet<u32>,
}

impl Changes {
    pub(crate) fn new(meta: &Meta) -> Self {
        let waits = (0..).zip(&meta.events).filter(|(_, event)| matches!(event.measure, Measure::Blocked { .. }));
        Self {
            aggregated_ns: meta.aggregated_ns,
            waits: waits.map(|(number, _)| number).collect(),
            latest: FxHashMap::default(),
            others_ns: 0,
            compiling: FxHashSet::default(),
        }
    }

    pub(crate) fn note(&mut self, event: &Sideband) {
        let id = match event {
            Sideband::Mmap(event) => event.pid,
            Sideband::Comm(event) if event.exec => event.pid,
            Sideband::Comm(event) => event.tid,
            Sideband::Fork(event) => event.tid,
            Sideband::Exit(event) => event.tid,
            Sideband::Cgroup(event) => event.pid,
            Sideband::Module(_) => return,
        };
        if self.aggregated_ns.is_none() {
            return;
        }
        match event {
            Sideband::Mmap(mmap) if jitdump::is_dump(&mmap.path) => drop(self.compiling.insert(mmap.pid)),
            Sideband::Comm(Comm { exec: true, pid, .. }) => drop(self.compiling.remove(pid)),
            Sideband::Fork(Fork { pid, tid, .. }) if pid == tid => drop(self.compiling.remove(pid)),
            _ => {}
        }
        if self.latest.len() >= MAX_IDS {
            self.others_ns = self.latest.drain().fold(self.others_ns, |latest, (_, time_ns)| latest.max(time_ns));
        }
        let latest = self.latest.entry(id).or_default();
        *latest = event.time_ns().unwrap_or(0).max(*latest);
    }

    /// The earliest time of samples that this one may repeat; `None` if it may not repeat any nor be repeated.
    pub(crate) fn repeats_since(&self, sample: &Sample) -> Option<u64> {
        let apart_ns = self.aggregated_ns.filter(|_| !self.waits.contains(&sample.event))?;
        if self.compiling.len() >= MAX_IDS || self.compiling.contains(&sample.pid) {
            return None;
        }
        let latest = [sample.pid, sample.tid].into_iter().filter_map(|id| self.latest.get(&id).copied());
        let changed_ns = latest.fold(self.others_ns, u64::max);
        Some(sample.time_ns.saturating_sub(apart_ns).max(changed_ns.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CaptureMode, Collector, Exit, Host, Target};

    /// Check that more processes than are told apart allow less to be repeated, never more.
    #[test]
    fn forgotten_processes_count_together() {
        let meta = Meta {
            tool_version: String::new(),
            start_ns: 0,
            start_unix_ns: 0,
            host: Host::default(),
            collector: Collector::Ebpf,
            events: Vec::new(),
            mode: CaptureMode::Fp,
            kernel_stacks: true,
            scrubbed: true,
            target: Target::System,
            not_counted: Vec::new(),
            aggregated_ns: Some(1 << 40),
        };
        let mut changes = Changes::new(&meta);
        let exit = |pid: u32| Sideband::Exit(Exit { time_ns: u64::from(pid) * 10, pid, tid: pid });
        (1..).take(MAX_IDS).for_each(|pid| changes.note(&exit(pid)));
        let since = |changes: &Changes, pid| changes.repeats_since(&Sample { pid, tid: pid, ..Sample::default() });
        assert_eq!((since(&changes, 7), since(&changes, 0)), (Some(71), Some(1)));
        changes.note(&exit(1));
        let latest_ns = MAX_IDS as u64 * 10;
        assert_eq!((since(&changes, 7), since(&changes, 1)), (Some(latest_ns + 1), Some(latest_ns + 1)));
        assert_eq!(changes.latest.len(), 1);
    }
}
