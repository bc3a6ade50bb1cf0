//! Merging of all CPUs' process events by time.

use super::parse::Body;
use fpprof_recording::model::Sideband;

/// Holds events until no earlier one can arrive.
#[derive(Debug, Default)]
pub(crate) struct Orderer {
    events: Vec<Sideband>,
}

/// When an event happened; 0 for what has no time of its own.
pub(crate) fn time_ns(event: &Sideband) -> u64 {
    match event {
        Sideband::Mmap(mmap) => mmap.time_ns,
        Sideband::Comm(comm) => comm.time_ns,
        Sideband::Fork(fork) => fork.time_ns,
        Sideband::Exit(exit) => exit.time_ns,
        Sideband::Cgroup(cgroup) => cgroup.time_ns,
        Sideband::Module(_) => 0,
    }
}

impl Orderer {
    /// Adds an event of any CPU.
    pub(crate) fn push(&mut self, event: Sideband) {
        self.events.push(event);
    }

    /// Moves all events up to `cut_ns` to `released`, ordered by time; events of the same time in order of arrival.
    pub(crate) fn release(&mut self, cut_ns: u64, released: &mut Vec<Sideband>) {
        self.events.sort_by_key(time_ns);
        let n = self.events.partition_point(|event| time_ns(event) <= cut_ns);
        released.extend(self.events.drain(..n));
    }
}

/// Converts a record to an event of the recording, if it is one.
pub(crate) fn to_event(body: Body) -> Option<Sideband> {
    match body {
        Body::Mmap(mmap) => Some(Sideband::Mmap(mmap)),
        Body::Comm(comm) => Some(Sideband::Comm(comm)),
        Body::Fork(fork) => Some(Sideband::Fork(fork)),
        Body::Exit(exit) => Some(Sideband::Exit(exit)),
        Body::Lost(_) | Body::Throttle { .. } | Body::Unthrottle { .. } | Body::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::Exit;

    fn exit(time_ns: u64, tid: u32) -> Sideband {
        Sideband::Exit(Exit { time_ns, pid: 1, tid })
    }

    /// Check that events of several CPUs are ordered by time, and that late ones are held back.
    #[test]
    fn time_decides() {
        let mut orderer = Orderer::default();
        for event in [exit(30, 0), exit(10, 1), exit(20, 2), exit(10, 3)] {
            orderer.push(event);
        }
        let mut out = Vec::new();
        orderer.release(20, &mut out);
        assert_eq!(out, [exit(10, 1), exit(10, 3), exit(20, 2)]);
        out.clear();
        orderer.push(exit(25, 4));
        orderer.release(u64::MAX, &mut out);
        assert_eq!(out, [exit(25, 4), exit(30, 0)]);
    }
}
