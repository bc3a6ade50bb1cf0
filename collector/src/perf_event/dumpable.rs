//! Which processes are dumpable, as far as `/proc` shows: perf events copy the stacks of all.

use crate::proc::{effective_uid, is_of_user, is_secure_execution};
use fpprof_recording::model::Sideband;
use rustc_hash::FxHashMap;
use std::os::unix::fs::MetadataExt as _;

/// How long a finding is valid: a process may change its user, or make itself non-dumpable, at any time.
const BELIEVED_NS: u64 = 100_000_000;

/// Findings about sampled processes.
#[derive(Debug)]
pub(super) struct Dumpable {
    processes: FxHashMap<u32, Known>,
    /// The answer for a process that ended before it was looked at.
    gone: bool,
    /// Whether non-dumpable processes are treated like others.
    includes_privileged: bool,
    /// If set, only this user's processes are allowed.
    only_user: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    may_be_dumped: bool,
    /// A sample from then on needs another look: after a while, or after the next exec.
    until_ns: u64,
    /// Whether the process has executed another program since.
    is_of_former: bool,
}

impl Dumpable {
    /// `gone` is the answer for processes that ended before they were looked at.
    pub(super) fn new(gone: bool, includes_privileged: bool, only_user: Option<u32>) -> Self {
        Self { processes: FxHashMap::default(), gone, includes_privileged, only_user }
    }

    /// Notes an event of a profiled process.
    pub(super) fn apply(&mut self, event: &Sideband) {
        match event {
            Sideband::Comm(comm) if comm.exec => {
                if let Some(known) = self.processes.get_mut(&comm.pid) {
                    (known.until_ns, known.is_of_former) = (known.until_ns.min(comm.time_ns), true);
                }
            }
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                if let Some(&parent) = self.processes.get(&fork.parent_pid) {
                    self.processes.insert(fork.pid, Known { until_ns: fork.time_ns, ..parent });
                }
            }
            _ => {}
        }
    }

    /// Whether the stack of a sample's process may be kept.
    pub(super) fn allows(&mut self, pid: u32, time_ns: u64) -> bool {
        if self.includes_privileged && self.only_user.is_none() {
            return true;
        }
        let known = self.processes.get(&pid);
        if let Some(known) = known.filter(|known| time_ns < known.until_ns) {
            return known.may_be_dumped;
        }
        let Some(may_be_dumped) = self.may_be_dumped(pid) else {
            // The process has ended, or is inside execve.
            return known.filter(|known| !known.is_of_former).map_or(self.gone, |known| known.may_be_dumped);
        };
        let until_ns = time_ns.saturating_add(BELIEVED_NS);
        self.processes.insert(pid, Known { may_be_dumped, until_ns, is_of_former: false });
        may_be_dumped
    }

    fn may_be_dumped(&self, pid: u32) -> Option<bool> {
        let is_users = self.only_user.map_or(Some(true), |user| is_of_user(pid, user))?;
        Some(is_users && (self.includes_privileged || may_be_dumped(pid)?))
    }

    /// Forgets processes that no longer exist.
    pub(super) fn forget_ended(&mut self, is_known: impl Fn(u32) -> bool) {
        self.processes.retain(|&pid, _| is_known(pid));
    }
}

/// Whether a process is dumpable; `None` if it is gone, or access is denied.
///
/// A process of root that made itself non-dumpable looks like any other process of root.
///
/// # Sources
/// `task_dump_owner` in `fs/proc/base.c`: the `/proc` files of a non-dumpable process are owned by root. A program that
/// was executed with other rights than its caller's is marked so (`AT_SECURE`, see getauxval(3)).
fn may_be_dumped(pid: u32) -> Option<bool> {
    let owner = std::fs::metadata(format!("/proc/{pid}/auxv")).ok()?.uid();
    Some(owner == effective_uid(pid)? && !is_secure_execution(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::{Comm, Fork};

    /// Check that a finding is valid for a while, or for ever for a process that has ended and for its children; that
    /// it does not apply to a program executed since; and that processes without a finding are treated as asked.
    #[test]
    fn what_may_be_dumped() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let fork =
            |pid, parent_pid| Sideband::Fork(Fork { time_ns: 6, pid, tid: pid, parent_pid, parent_tid: parent_pid });
        let exec = |pid, time_ns| {
            Sideband::Comm(Comm { pid, tid: pid, time_ns, comm: Vec::new(), exec: true, start_ticks: 0 })
        };
        let mut dumpable = Dumpable::new(false, false, None);
        let began = std::time::Instant::now();
        // The kernel reports an exec before it sets the new program's auxiliary vector.
        while !dumpable.allows(pid, 5) && began.elapsed() < std::time::Duration::from_secs(60) {}
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = u32::MAX;
        dumpable.apply(&fork(gone, pid));
        for pid in [pid, gone] {
            assert!(dumpable.allows(pid, 5) && dumpable.allows(pid, 5 + BELIEVED_NS), "{pid}");
            dumpable.apply(&exec(pid, 50));
            assert_eq!([49, 50].map(|time_ns| dumpable.allows(pid, time_ns)), [pid != gone, false], "{pid}");
        }
        assert!(!dumpable.allows(gone - 1, 5) && Dumpable::new(true, false, None).allows(gone - 1, 5));
        let own = std::process::id();
        dumpable.processes.insert(own, Known { may_be_dumped: false, until_ns: 100, is_of_former: false });
        dumpable.apply(&exec(own, 50));
        assert_eq!([49, 50].map(|time_ns| dumpable.allows(own, time_ns)), [false, true]);
        dumpable.forget_ended(|pid| pid == own);
        assert_eq!(dumpable.processes.len(), 1);
    }

    /// Check that other users' processes are not allowed if only one user's are, whatever else is requested.
    #[test]
    fn one_users_processes() {
        let own = std::process::id();
        let user = effective_uid(own).unwrap();
        for (only_user, expected) in [(None, true), (Some(user), true), (Some(user + 1), false)] {
            assert_eq!(Dumpable::new(false, true, only_user).allows(own, 5), expected, "{only_user:?}");
        }
    }
}
