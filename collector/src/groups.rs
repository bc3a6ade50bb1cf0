//! The control groups of processes that are sampled.

use crate::proc::cgroup_of;
use fpprof_recording::model::{Cgroup, Fork, Sample, Sideband};
use rustc_hash::FxHashMap;

/// Whose control groups are in the recording.
///
/// A group is read once when a process is sampled or makes another one for the first time, and once more after an exec: who
/// starts a program in a group of its own moves the process there before it executes the program. A process that has ended
/// by then counts as in the group of its parent.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Processes that were looked at since their last fork or exec, with as of when.
    told: FxHashMap<u32, u64>,
    /// Processes forked since the last look at the samples, with when: an earlier sample is of another one with that number.
    forked: FxHashMap<u32, u64>,
    /// Processes looked at since then because they made another one.
    n_parents: usize,
}

/// So many processes are looked at between two looks at the samples because they made another one: many may do so fast.
const MAX_PARENTS: usize = 32;

impl Groups {
    /// Takes note of an event of a profiled process.
    pub(crate) fn apply(&mut self, event: &Sideband) {
        match event {
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.told.remove(&fork.pid);
                self.forked.insert(fork.pid, fork.time_ns);
            }
            Sideband::Comm(comm) if comm.exec => _ = self.told.remove(&comm.pid),
            Sideband::Cgroup(cgroup) => _ = self.told.insert(cgroup.pid, cgroup.time_ns),
            _ => {}
        }
    }

    /// The group of a sample's process as of the sample, if it is to be told.
    pub(crate) fn due(&mut self, sample: &Sample) -> Option<Sideband> {
        let Sample { pid, tid, time_ns, .. } = *sample;
        let is_told = self.told.get(&pid).is_some_and(|&told_ns| told_ns <= time_ns);
        if is_told || self.forked.get(&pid).is_some_and(|&forked_ns| time_ns < forked_ns) {
            return None;
        }
        self.told.insert(pid, time_ns);
        Some(Sideband::Cgroup(Cgroup { time_ns, pid, path: cgroup_of(pid, tid)? }))
    }

    /// The group of a process that makes another one as of just before, if it is to be told: the other one may be gone before
    /// it can be looked at itself, and what made it may never be sampled.
    pub(crate) fn due_at_fork(&mut self, event: &Sideband) -> Option<Sideband> {
        let Sideband::Fork(Fork { time_ns, pid, parent_pid, parent_tid, .. }) = *event else { return None };
        if pid == parent_pid || self.n_parents >= MAX_PARENTS || self.told.contains_key(&parent_pid) {
            return None;
        }
        self.n_parents += 1;
        let time_ns = time_ns.saturating_sub(1);
        self.told.insert(parent_pid, time_ns);
        let path = cgroup_of(parent_pid, parent_tid)?;
        Some(Sideband::Cgroup(Cgroup { time_ns, pid: parent_pid, path }))
    }

    /// Forgets processes that are not known any more: call it after each look at the samples.
    pub(crate) fn forget_ended(&mut self, is_known: impl Fn(u32) -> bool) {
        self.forked.clear();
        self.n_parents = 0;
        self.told.retain(|&pid, _| is_known(pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::Comm;

    fn sample(pid: u32, time_ns: u64) -> Sample {
        Sample { pid, tid: pid, time_ns, ..Sample::default() }
    }

    fn fork(pid: u32, tid: u32, parent_pid: u32) -> Sideband {
        Sideband::Fork(Fork { time_ns: 50, pid, tid, parent_pid, parent_tid: parent_pid })
    }

    fn comm(pid: u32, exec: bool) -> Sideband {
        Sideband::Comm(Comm { pid, tid: pid, time_ns: 50, comm: Vec::new(), exec, start_ticks: 0 })
    }

    /// Check that a group is told once, as of the first sample, and again after a fork or exec of that process, but not
    /// after a new thread, another name, or a child; and not if somebody else has told it.
    #[test]
    fn groups_are_told_once() {
        let own = std::process::id();
        let path = cgroup_of(own, own).unwrap();
        let told = |time_ns| Some(Sideband::Cgroup(Cgroup { time_ns, pid: own, path: path.clone() }));
        let mut groups = Groups::default();
        assert_eq!([5, 6].map(|time_ns| groups.due(&sample(own, time_ns))), [told(5), None]);
        for event in [fork(own, 99, own), fork(99, 99, own), comm(own, false)] {
            groups.apply(&event);
            assert_eq!(groups.due(&sample(own, 60)), None, "{event:?}");
        }
        for event in [comm(own, true), fork(own, own, 1)] {
            groups.apply(&event);
            assert_eq!([60, 61].map(|time_ns| groups.due(&sample(own, time_ns))), [told(60), None], "{event:?}");
        }
        groups.apply(&comm(own, true));
        groups.apply(&told(55).unwrap());
        assert_eq!([55, 54, 54].map(|time_ns| groups.due(&sample(own, time_ns))), [None, told(54), None]);
    }

    /// Check that the group of a process is told when it makes another one for the first time, as of before, but not when it
    /// makes a thread, nor of more processes than there is time for.
    #[test]
    fn parents_are_told_of_when_they_fork() {
        let own = std::process::id();
        let path = cgroup_of(own, own).unwrap();
        let mut groups = Groups::default();
        assert_eq!(groups.due_at_fork(&fork(own, 99, own)), None);
        let told = groups.due_at_fork(&fork(99, 99, own));
        assert_eq!(told, Some(Sideband::Cgroup(Cgroup { time_ns: 49, pid: own, path })));
        assert_eq!((groups.due_at_fork(&fork(99, 99, own)), groups.due(&sample(own, 60))), (None, None));
        assert!(groups.due(&sample(own, 48)).is_some(), "it was sampled before");
        for n in 1..2 * MAX_PARENTS {
            groups.due_at_fork(&fork(7, 7, u32::MAX - u32::try_from(n).unwrap()));
        }
        assert_eq!(groups.told.len(), MAX_PARENTS);
        groups.forget_ended(|_| false);
        assert!(groups.due_at_fork(&fork(99, 99, own)).is_some());
    }

    /// Check that a sample from before a fork has nothing of the process that has its number now, and that nothing is kept of
    /// processes that have ended, nor told of them.
    #[test]
    fn the_dead_have_no_group() {
        let own = std::process::id();
        let mut groups = Groups::default();
        groups.apply(&fork(own, own, 1));
        assert_eq!(groups.due(&sample(own, 49)), None);
        assert!(groups.due(&sample(own, 50)).is_some());
        assert_eq!(groups.due(&sample(u32::MAX, 50)), None);
        groups.forget_ended(|pid| pid == own);
        assert_eq!((groups.told.len(), groups.forked.len()), (1, 0));
    }
}
