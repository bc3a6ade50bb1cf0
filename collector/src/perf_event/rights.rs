//! What this user may sample.

use crate::error::Error;
use crate::proc::{Capabilities, read_number};

/// This user's rights to use perf events.
///
/// # Sources
/// `perf_allow_kernel` and `perf_allow_cpu` in `kernel/events/core.c`; Debian's kernels refuse everything above 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    paranoid: i64,
    is_capable: bool,
}

impl Rights {
    /// This process's current rights.
    pub(crate) fn now() -> Self {
        let paranoid = read_number("/proc/sys/kernel/perf_event_paranoid").unwrap_or(2);
        Self { paranoid, is_capable: Capabilities::effective().has(Capabilities::PERFMON) }
    }

    /// Whether it may sample its own processes in user space.
    pub(crate) fn may_sample_own(self) -> bool {
        self.is_capable || self.paranoid <= 2
    }

    /// Whether it may sample them in the kernel too.
    pub(crate) fn may_sample_kernel(self) -> bool {
        self.is_capable || self.paranoid <= 1
    }

    /// Whether it may sample whole CPUs.
    pub(crate) fn may_sample_cpus(self) -> bool {
        self.is_capable || self.paranoid <= 0
    }

    /// Fails with the missing right, unless these rights suffice for whole CPUs (`is_system`) or for processes.
    pub(crate) fn check(self, is_system: bool) -> Result<(), Error> {
        let refused = |action, missing| Err(Error::PerfEventRefused { action, missing });
        match is_system {
            true if !self.may_sample_cpus() => {
                refused("sample the whole machine", "CAP_PERFMON (or: sysctl kernel.perf_event_paranoid=0)")
            }
            false if !self.may_sample_own() => {
                refused("sample at all", "CAP_PERFMON (or: sysctl kernel.perf_event_paranoid=2)")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each level allows what the kernel allows at it, that the capability allows everything, and that
    /// errors name the capability.
    #[test]
    fn levels_are_the_kernels() {
        let allowed = |paranoid, is_capable| {
            let rights = Rights { paranoid, is_capable };
            (rights.may_sample_own(), rights.may_sample_kernel(), rights.may_sample_cpus())
        };
        assert_eq!(allowed(-1, false), (true, true, true));
        assert_eq!(allowed(1, false), (true, true, false));
        assert_eq!(allowed(2, false), (true, false, false));
        assert_eq!(allowed(3, false), (false, false, false));
        assert_eq!(allowed(4, true), (true, true, true));
        let refused = Rights { paranoid: 2, is_capable: false }.check(true).expect_err("the machine is not ours");
        assert!(refused.to_string().contains("CAP_PERFMON"), "{refused}");
        assert!(Rights { paranoid: 2, is_capable: false }.check(false).is_ok());
        assert!(Rights { paranoid: 3, is_capable: false }.check(false).is_err());
    }
}
