//! Which processes may be dumped, as far as `/proc` says: perf events copy the stacks of all.

use crate::proc::{effective_uid, is_secure_execution};
use fpprof_recording::model::Sideband;
use rustc_hash::FxHashMap;
use std::os::unix::fs::MetadataExt as _;

/// What was found is believed for so long: a process may change its user, or ask not to be dumped, at any time.
const BELIEVED_NS: u64 = 100_000_000;

/// What is known of processes that were sampled.
#[derive(Debug, Default)]
pub(super) struct Dumpable(FxHashMap<u32, Known>);

#[derive(Debug, Clone, Copy)]
struct Known {
    may_be_dumped: bool,
    /// A sample from then on needs another look: a while later, or after the next exec.
    until_ns: u64,
}

impl Dumpable {
    /// Takes note of an event of a profiled process.
    pub(super) fn apply(&mut self, event: &Sideband) {
        if let Sideband::Comm(comm) = event
            && comm.exec
            && let Some(known) = self.0.get_mut(&comm.pid)
        {
            known.until_ns = known.until_ns.min(comm.time_ns);
        }
    }

    /// Whether a sample's process may be dumped. One that has ended before it was looked at counts as one that may not.
    pub(super) fn allows(&mut self, pid: u32, time_ns: u64) -> bool {
        match self.0.get(&pid) {
            Some(known) if time_ns < known.until_ns => known.may_be_dumped,
            _ => {
                // Inside execve it is not known yet.
                let Some(may_be_dumped) = may_be_dumped(pid) else { return false };
                self.0.insert(pid, Known { may_be_dumped, until_ns: time_ns.saturating_add(BELIEVED_NS) });
                may_be_dumped
            }
        }
    }

    /// Forgets processes that are not known any more.
    pub(super) fn forget_ended(&mut self, is_known: impl Fn(u32) -> bool) {
        self.0.retain(|&pid, _| is_known(pid));
    }
}

/// `None` if the process is gone, or not ours to look at.
///
/// A process of root's that asked not to be dumped looks like any other of root's.
///
/// # Sources
/// `task_dump_owner` in `fs/proc/base.c`: what may not be dumped has its files in `/proc` owned by root. A program that was
/// executed with other rights than its caller's is told so (`AT_SECURE`, see getauxval(3)).
fn may_be_dumped(pid: u32) -> Option<bool> {
    let owner = std::fs::metadata(format!("/proc/{pid}/auxv")).ok()?.uid();
    Some(owner == effective_uid(pid)? && !is_secure_execution(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::Comm;

    /// Check that what was found is believed for a while or until an exec, and that of a process that is gone nothing is
    /// copied.
    #[test]
    fn what_may_be_dumped() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let mut dumpable = Dumpable::default();
        let began = std::time::Instant::now();
        // The kernel tells of an exec before it notes what the program is told.
        while !dumpable.allows(pid, 5) && began.elapsed() < std::time::Duration::from_secs(60) {}
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(dumpable.allows(pid, 4 + BELIEVED_NS), "it is believed for a while");
        assert!(!dumpable.allows(pid, 5 + BELIEVED_NS));
        assert!(!dumpable.allows(u32::MAX, 5));
        let own = std::process::id();
        dumpable.0.insert(own, Known { may_be_dumped: false, until_ns: 100 });
        let exec = Comm { pid: own, tid: own, time_ns: 50, comm: Vec::new(), exec: true, start_ticks: 0 };
        dumpable.apply(&Sideband::Comm(exec));
        assert_eq!([49, 50].map(|time_ns| dumpable.allows(own, time_ns)), [false, true]);
        dumpable.forget_ended(|pid| pid == own);
        assert_eq!(dumpable.0.len(), 1);
    }
}
