//! The control groups of sampled processes, and what is kept of their environments.

use crate::proc::{MemoryReads, cgroup_of, environment_of, is_of_user};
use crate::request::Request;
use fpprof_recording::model::{Cgroup, Fork, Sample, Sideband};
use rustc_hash::FxHashMap;

/// Which processes' control groups are in the recording.
///
/// A process's group is read when the process is first sampled or first forks, and again after an exec, because a
/// launcher moves the new process to its own group before it executes the program. A process that has ended by then
/// counts as in its parent's group. The environment is read at the same moments.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    memory: MemoryReads,
    /// Names of the environment variables that are kept.
    names: Vec<String>,
    /// The only user whose processes' environments may be read.
    only_user: Option<u32>,
    /// Processes whose group was read since their last fork or exec, with the time it applies from.
    recorded: FxHashMap<u32, u64>,
    /// Fork times of processes forked since the last pass over the samples: earlier samples belong to a previous
    /// process with that number.
    forked: FxHashMap<u32, u64>,
    /// Processes read since that pass because they forked.
    n_parents: usize,
}

/// The most processes read between two passes over the samples because they forked: many may do so quickly.
const MAX_PARENTS: usize = 32;

impl Groups {
    pub(crate) fn new(request: &Request, memory: MemoryReads) -> Self {
        Self { memory, names: request.environment.clone(), only_user: request.only_user, ..Self::default() }
    }

    /// Notes an event of a profiled process.
    pub(crate) fn apply(&mut self, event: &Sideband) {
        match event {
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.recorded.remove(&fork.pid);
                self.forked.insert(fork.pid, fork.time_ns);
            }
            Sideband::Comm(comm) if comm.exec => _ = self.recorded.remove(&comm.pid),
            Sideband::Cgroup(cgroup) if self.names.is_empty() => _ = self.recorded.insert(cgroup.pid, cgroup.time_ns),
            // A group that was read elsewhere, with all of a process, comes without the environment.
            Sideband::Cgroup(cgroup) if self.recorded.get(&cgroup.pid) != Some(&cgroup.time_ns) => {
                self.recorded.remove(&cgroup.pid);
            }
            _ => {}
        }
    }

    /// The group of a sample's process as of the sample, if it has yet to be recorded.
    pub(crate) fn due(&mut self, sample: &Sample) -> Option<Sideband> {
        let Sample { pid, tid, time_ns, .. } = *sample;
        let is_recorded = self.recorded.get(&pid).is_some_and(|&recorded_ns| recorded_ns <= time_ns);
        if is_recorded || self.forked.get(&pid).is_some_and(|&forked_ns| time_ns < forked_ns) {
            return None;
        }
        self.recorded.insert(pid, time_ns);
        self.read(time_ns, pid, tid)
    }

    /// The group of a forking process as of just before the fork, if it has yet to be recorded: the child may be gone
    /// before it can be read itself, and the parent may never be sampled.
    pub(crate) fn due_at_fork(&mut self, event: &Sideband) -> Option<Sideband> {
        let Sideband::Fork(Fork { time_ns, pid, parent_pid, parent_tid, .. }) = *event else { return None };
        if pid == parent_pid || self.n_parents >= MAX_PARENTS || self.recorded.contains_key(&parent_pid) {
            return None;
        }
        self.n_parents += 1;
        let time_ns = time_ns.saturating_sub(1);
        self.recorded.insert(parent_pid, time_ns);
        self.read(time_ns, parent_pid, parent_tid)
    }

    fn read(&self, time_ns: u64, pid: u32, tid: u32) -> Option<Sideband> {
        let path = cgroup_of(pid, tid)?;
        let may_read = self.only_user.is_none_or(|user| is_of_user(pid, user) == Some(true));
        let names = if may_read { self.names.as_slice() } else { &[] };
        // Without an event, it has those of its parent.
        let environment = environment_of(&self.memory, pid, tid, names)?;
        Some(Sideband::Cgroup(Cgroup { time_ns, pid, path, environment }))
    }

    /// Forgets processes that no longer exist: call it after each pass over the samples.
    pub(crate) fn forget_ended(&mut self, is_known: impl Fn(u32) -> bool) {
        self.forked.clear();
        self.n_parents = 0;
        self.recorded.retain(|&pid, _| is_known(pid));
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

    /// Check that a group is recorded once, as of the first sample, and again after a fork or exec of that process, but
    /// not after a new thread, another name, or a child; and not if it was already recorded otherwise.
    #[test]
    fn groups_are_recorded_once() {
        let own = std::process::id();
        let path = cgroup_of(own, own).unwrap();
        let expected =
            |time_ns| Some(Sideband::Cgroup(Cgroup { time_ns, pid: own, path: path.clone(), ..Cgroup::default() }));
        let mut groups = Groups::default();
        assert_eq!([5, 6].map(|time_ns| groups.due(&sample(own, time_ns))), [expected(5), None]);
        for event in [fork(own, 99, own), fork(99, 99, own), comm(own, false)] {
            groups.apply(&event);
            assert_eq!(groups.due(&sample(own, 60)), None, "{event:?}");
        }
        for event in [comm(own, true), fork(own, own, 1)] {
            groups.apply(&event);
            assert_eq!([60, 61].map(|time_ns| groups.due(&sample(own, time_ns))), [expected(60), None], "{event:?}");
        }
        groups.apply(&comm(own, true));
        groups.apply(&expected(55).unwrap());
        assert_eq!([55, 54, 54].map(|time_ns| groups.due(&sample(own, time_ns))), [None, expected(54), None]);
    }

    /// Check that the environment is recorded with the group, and once more after the group was recorded without it.
    #[test]
    fn environments_are_recorded_with_groups() {
        let own = std::process::id();
        let mut groups = Groups { names: vec!["PATH".to_owned()], ..Groups::default() };
        let event = groups.due(&sample(own, 5)).unwrap();
        let Sideband::Cgroup(Cgroup { environment, path, .. }) = &event else { panic!("{event:?}") };
        assert!(environment.starts_with(b"PATH="), "{environment:?}");
        groups.apply(&event);
        assert_eq!(groups.due(&sample(own, 6)), None);
        groups.apply(&Sideband::Cgroup(Cgroup { time_ns: 7, pid: own, path: path.clone(), ..Cgroup::default() }));
        assert!(groups.due(&sample(own, 7)).is_some());
        groups.only_user = Some(u32::MAX);
        groups.recorded.clear();
        let event = groups.due(&sample(own, 8)).unwrap();
        assert!(matches!(&event, Sideband::Cgroup(cgroup) if cgroup.environment.is_empty()), "{event:?}");
    }

    /// Check that a process's group is recorded at its first fork, as of just before, but not when it starts a thread,
    /// nor for more processes than the limit.
    #[test]
    fn parents_are_told_of_when_they_fork() {
        let own = std::process::id();
        let path = cgroup_of(own, own).unwrap();
        let mut groups = Groups::default();
        assert_eq!(groups.due_at_fork(&fork(own, 99, own)), None);
        let event = groups.due_at_fork(&fork(99, 99, own));
        assert_eq!(event, Some(Sideband::Cgroup(Cgroup { time_ns: 49, pid: own, path, ..Cgroup::default() })));
        assert_eq!((groups.due_at_fork(&fork(99, 99, own)), groups.due(&sample(own, 60))), (None, None));
        assert!(groups.due(&sample(own, 48)).is_some(), "it was sampled before");
        for n in 1..2 * MAX_PARENTS {
            groups.due_at_fork(&fork(7, 7, u32::MAX - u32::try_from(n).unwrap()));
        }
        assert_eq!(groups.recorded.len(), MAX_PARENTS);
        groups.forget_ended(|_| false);
        assert!(groups.due_at_fork(&fork(99, 99, own)).is_some());
    }

    /// Check that a sample from before a fork gets nothing of the process that has the number now, and that nothing is
    /// kept or recorded of processes that have ended.
    #[test]
    fn the_dead_have_no_group() {
        let own = std::process::id();
        let mut groups = Groups::default();
        groups.apply(&fork(own, own, 1));
        assert_eq!(groups.due(&sample(own, 49)), None);
        assert!(groups.due(&sample(own, 50)).is_some());
        assert_eq!(groups.due(&sample(u32::MAX, 50)), None);
        groups.forget_ended(|pid| pid == own);
        assert_eq!((groups.recorded.len(), groups.forked.len()), (1, 0));
    }
}
