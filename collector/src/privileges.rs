//! What this process may do on behalf of its caller, and dropping of capabilities that sampling does not need.
//!
//! # Sources
//! capabilities(7); prctl(2) `PR_SET_NO_NEW_PRIVS`.

use crate::error::Error;
use crate::request::Request;
use crate::sys::{is_secure_execution, set_realtime};
use rustix::process::getuid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Capabilities that a recording needs once its programs are loaded and its files are open: to sample (`BPF`,
/// `PERFMON`), to read memory, files and names of other users' processes (`SYS_PTRACE`, `CHECKPOINT_RESTORE`,
/// `DAC_READ_SEARCH`) and kernel addresses (`SYSLOG`), to create rings for a CPU that comes online (`IPC_LOCK`), and to
/// end a command of another user (`KILL`).
const NEEDED: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// The only user whose processes this program may look into, if it got its capabilities from its file: anyone who may
/// execute the file has them then, and could use it to read the memory of all processes. `None` if there is no such
/// limit: for root, for ambient capabilities, which the caller has itself, and without any.
///
/// # Sources
/// `AT_SECURE` in getauxval(3); `cap_bprm_creds_from_file` in `security/commoncap.c` sets it if a file gave more than
/// the caller's own.
#[must_use]
pub fn user_of_file_capabilities() -> Option<u32> {
    let user = getuid();
    (is_secure_execution() && !user.is_root()).then(|| user.as_raw())
}

/// Gives this thread, and those it starts from now on, the requested real-time priority. Then drops the capabilities
/// that sampling does not need, if requested.
pub(crate) fn prepare_thread(request: &Request) -> Result<(), Error> {
    if let Some(priority) = request.realtime {
        set_realtime(priority).map_err(|source| Error::Realtime { priority, source })?;
    }
    if request.drop_privileges { drop_unneeded() } else { Ok(()) }
}

/// Drops, for good, all capabilities but those needed.
fn drop_unneeded() -> Result<(), Error> {
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
