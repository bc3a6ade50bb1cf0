//! Drops what sampling does not need, before it begins.
//!
//! # Sources
//! capabilities(7); prctl(2) `PR_SET_NO_NEW_PRIVS`.

use crate::error::Error;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// What a recording needs once its programs are loaded and its files are open: samples (`BPF`, `PERFMON`), memory, files and
/// names of processes of others (`SYS_PTRACE`, `CHECKPOINT_RESTORE`, `DAC_READ_SEARCH`), addresses of the kernel (`SYSLOG`), rings
/// for a CPU that comes online (`IPC_LOCK`), and to end a command of another user (`KILL`).
const NEEDED: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// Drops, for good, all capabilities but the needed ones, of this thread and those it starts from now on.
pub(crate) fn drop_unneeded() -> Result<(), Error> {
    let dropped = || {
        let kept = capabilities(None)?.permitted.intersection(NEEDED);
        set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
        )?;
        set_no_new_privs(true)
    };
    dropped().map_err(|error| Error::system("dropping capabilities")(error.into()))
}
