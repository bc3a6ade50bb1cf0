//! Processes that share memory with their parent (`clone` with `CLONE_VM`): what one maps, all have.

use crate::proc::parent_of;
use crate::sys::share_memory;
use fpprof_recording::model::{Mmap, Sideband};
use rustc_hash::{FxHashMap, FxHashSet};

/// The most processes of one memory whose mappings are recorded for each other. What one of them maps after its first sample is
/// not recorded for any more.
const MOST_SHARING: usize = 64;
/// How many processes are kept before those that have ended are looked for.
const LEAST_SEEN: usize = 1024;

/// Tracks which processes share memory.
///
/// No event reports that, and the kernel reports a mapping only for the process that made it. So the kernel is asked
/// when a process that has executed no program since its fork is sampled, once it or its parent has mapped something
/// that the other may have too: processes that share memory at that time have done so since the fork. For a process
/// that existed before the recording, the kernel is asked at the first sample.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Parent and fork time of processes not yet asked about.
    unasked: FxHashMap<u32, (u32, u64)>,
    /// Processes whose parent is known, or that need not be asked about.
    seen: FxHashSet<u32>,
    /// Above this number, those that have ended are forgotten.
    most_seen: usize,
    /// Time of each process's last mapping.
    last_mapped_ns: FxHashMap<u32, u64>,
    /// Group numbers of processes that share memory.
    groups: FxHashMap<u32, u32>,
    /// The processes of each group.
    members: FxHashMap<u32, Vec<u32>>,
    n_groups: u32,
}

impl Sharing {
    /// Applies an event of a profiled process. If it is a mapping, returns copies for the processes that share its
    /// memory.
    pub(crate) fn apply(&mut self, event: &Sideband) -> Vec<Sideband> {
        match event {
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.forget(fork.pid);
                self.seen.insert(fork.pid);
                self.unasked.insert(fork.pid, (fork.parent_pid, fork.time_ns));
            }
            Sideband::Mmap(mmap) => {
                self.last_mapped_ns.insert(mmap.pid, mmap.time_ns);
                return self.copies(mmap);
            }
            Sideband::Comm(comm) if comm.exec => {
                self.forget(comm.pid);
                // From now on it has memory of its own.
                self.seen.insert(comm.pid);
            }
            // Samples of it may still come, but need no asking.
            Sideband::Exit(exit) if exit.tid == exit.pid => self.forget(exit.pid),
            _ => {}
        }
        Vec::new()
    }

    fn copies(&self, mmap: &Mmap) -> Vec<Sideband> {
        let members = self.groups.get(&mmap.pid).and_then(|group| self.members.get(group));
        let others = members.into_iter().flatten().filter(|&&pid| pid != mmap.pid);
        others.map(|&pid| Sideband::Mmap(Mmap { pid, tid: pid, ..mmap.clone() })).collect()
    }

    /// Call it when a process is sampled: returns the process and its parent if they turn out to share memory. What
    /// either has mapped since the fork is not known for the other; mappings from now on are copied.
    ///
    /// If the kernel has to be asked, but `has_time` says that there is none for that, it is asked at a later sample.
    pub(crate) fn found(&mut self, pid: u32, has_time: impl FnOnce() -> bool) -> Option<[u32; 2]> {
        let known_parent = if self.seen.contains(&pid) {
            let &(parent, since_ns) = self.unasked.get(&pid)?;
            let has_mapped = |pid| self.last_mapped_ns.get(&pid).is_some_and(|&last_ns| last_ns > since_ns);
            if !has_mapped(pid) && !has_mapped(parent) {
                return None;
            }
            Some(parent)
        } else {
            None
        };
        if !has_time() {
            return None;
        }
        self.seen.insert(pid);
        self.unasked.remove(&pid);
        let parent = known_parent.or_else(|| parent_of(pid))?;
        if !share_memory(pid, parent) {
            return None;
        }
        self.join(pid, parent);
        Some([pid, parent])
    }

    /// Adds a process to the group of its parent, if there is room.
    fn join(&mut self, pid: u32, parent: u32) {
        let group = *self.groups.entry(parent).or_insert_with(|| {
            self.n_groups = self.n_groups.wrapping_add(1);
            self.members.insert(self.n_groups, vec![parent]);
            self.n_groups
        });
        let members = self.members.entry(group).or_default();
        if members.len() < MOST_SHARING && !members.contains(&pid) {
            self.leave(pid);
            self.members.entry(group).or_default().push(pid);
            self.groups.insert(pid, group);
        }
    }

    /// Removes a process from its group.
    fn leave(&mut self, pid: u32) {
        let Some(group) = self.groups.remove(&pid) else { return };
        let Some(members) = self.members.get_mut(&group) else { return };
        members.retain(|&member| member != pid);
        if members.is_empty() {
            self.members.remove(&group);
        }
    }

    /// Forgets processes that are no longer known.
    pub(crate) fn forget_ended(&mut self, is_known: impl Fn(u32) -> bool) {
        if self.seen.len() > self.most_seen {
            self.seen.retain(|&pid| is_known(pid));
            self.unasked.retain(|&pid, _| is_known(pid));
            self.last_mapped_ns.retain(|&pid, _| is_known(pid));
            let unknown: Vec<u32> = self.groups.keys().copied().filter(|&pid| !is_known(pid)).collect();
            unknown.into_iter().for_each(|pid| self.leave(pid));
            self.most_seen = self.seen.len().saturating_mul(2).max(LEAST_SEEN);
        }
    }

    fn forget(&mut self, pid: u32) {
        self.unasked.remove(&pid);
        self.last_mapped_ns.remove(&pid);
        self.leave(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::code;
    use fpprof_recording::model::{Exit, FileIdentity, Fork};

    /// Check that the kernel is not asked about a process that was forked and has ended, and that it is forgotten
    /// eventually.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut sharing = Sharing::default();
        let n = u32::try_from(LEAST_SEEN).unwrap();
        for pid in 1..=n {
            sharing.apply(&Sideband::Fork(Fork { time_ns: 1, pid, tid: pid, parent_pid: n + 1, parent_tid: n + 1 }));
            sharing.apply(&Sideband::Exit(Exit { time_ns: 2, pid, tid: pid }));
        }
        assert!(sharing.unasked.is_empty() && (1..=n).all(|pid| sharing.seen.contains(&pid)));
        sharing.forget_ended(|pid| pid == 7);
        assert_eq!(sharing.seen.iter().collect::<Vec<_>>(), [&7]);
    }

    /// Check that one mapping is recorded for a limited number of processes, however many share the memory, and that the place
    /// of one that has ended is free again.
    #[test]
    fn copies_are_limited() {
        let mut sharing = Sharing::default();
        let copies =
            |sharing: &mut Sharing| sharing.apply(&Sideband::Mmap(code(1, b"/x", FileIdentity::default()))).len();
        (2..=1000).for_each(|pid| sharing.join(pid, 1));
        assert_eq!(copies(&mut sharing), MOST_SHARING - 1);
        sharing.apply(&Sideband::Exit(Exit { time_ns: 2, pid: 2, tid: 2 }));
        assert_eq!(copies(&mut sharing), MOST_SHARING - 2);
        sharing.join(1001, 1);
        assert_eq!(copies(&mut sharing), MOST_SHARING - 1);
    }
}
