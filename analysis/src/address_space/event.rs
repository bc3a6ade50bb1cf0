//! Process events in the form the sweep handles.

use super::timeline::{Backing, CgroupIx, CommIx};
use fpprof_recording::model::{Exit, Fork};

/// A process event without its names, to be small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Fork(Fork),
    Comm { time_ns: u64, pid: u32, tid: u32, comm: CommIx, is_exec: bool, start_ticks: u64 },
    Map { time_ns: u64, pid: u32, tid: u32, start: u64, end: u64, executable: Option<Backing> },
    Cgroup { time_ns: u64, pid: u32, cgroup: CgroupIx, has_environment: bool },
    Exit(Exit),
}

impl Event {
    pub(super) fn time_ns(&self) -> u64 {
        match *self {
            Self::Fork(Fork { time_ns, .. })
            | Self::Exit(Exit { time_ns, .. })
            | Self::Comm { time_ns, .. }
            | Self::Map { time_ns, .. }
            | Self::Cgroup { time_ns, .. } => time_ns,
        }
    }

    /// The sort key. Simultaneous events are ordered as a process would cause them, so that the order in which they
    /// arrive does not matter.
    pub(super) fn order(&self) -> (u64, u8, u32, u32, u64, u64) {
        match *self {
            Self::Fork(fork) => (fork.time_ns, 0, fork.pid, fork.tid, 0, 0),
            Self::Comm { time_ns, pid, tid, is_exec, comm, .. } => {
                (time_ns, 1, pid, tid, u64::from(!is_exec), u64::from(comm.0))
            }
            Self::Map { time_ns, pid, tid, start, end, .. } => (time_ns, 2, pid, tid, start, end),
            // Read for the same sample, once with all of the process and once with its environment: the latter holds.
            Self::Cgroup { time_ns, pid, cgroup, has_environment } => {
                (time_ns, 3, pid, 0, u64::from(has_environment), u64::from(cgroup.0))
            }
            Self::Exit(exit) => (exit.time_ns, 4, exit.pid, exit.tid, 0, 0),
        }
    }

    /// Whether it sorts before another event. Events rarely have equal times, so the times are compared first.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let (own, others) = (self.time_ns(), other.time_ns());
        own < others || (own == others && self.order() < other.order())
    }
}
