//! IDs of tracepoints.

use crate::error::Error;
use std::io;
use std::path::Path;

/// Mount points of tracefs, if it is mounted.
///
/// # Sources
/// `Documentation/trace/ftrace.rst`.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The ID of a tracepoint, for the `config` of an event.
pub(super) fn tracepoint_id(group: &str, name: &str) -> Result<u64, Error> {
    find(&MOUNTS.map(Path::new), group, name)
}

fn find(mounts: &[&Path], group: &str, name: &str) -> Result<u64, Error> {
    let event = || format!("{group}:{name}");
    for mount in mounts {
        let refused = |source| Error::TracefsRefused { path: mount.to_path_buf(), source };
        match std::fs::metadata(mount.join("events")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(refused(error)),
            Err(_) => continue,
            Ok(_) => {}
        }
        return match std::fs::read_to_string(mount.join("events").join(group).join(name).join("id")) {
            Ok(text) => {
                text.trim().parse().map_err(|_| Error::NoTracepoint { event: event(), mount: mount.to_path_buf() })
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(error)),
            Err(_) => Err(Error::NoTracepoint { event: event(), mount: mount.to_path_buf() }),
        };
    }
    Err(Error::TracefsNotMounted { event: event() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a tracepoint is found wherever tracefs is mounted, and that an unknown one is distinguished from a
    /// missing tracefs.
    #[test]
    fn tracepoints_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let (none, there) = (directory.path().join("none"), directory.path().join("there"));
        std::fs::create_dir_all(&none).unwrap();
        std::fs::create_dir_all(there.join("events/sched/sched_switch")).unwrap();
        std::fs::write(there.join("events/sched/sched_switch/id"), "372\n").unwrap();
        let mounts = [none.as_path(), there.as_path()];
        assert_eq!(find(&mounts, "sched", "sched_switch").unwrap(), 372);
        assert!(matches!(find(&mounts, "sched", "nonsense"), Err(Error::NoTracepoint { .. })));
        assert!(matches!(find(&mounts[..1], "sched", "sched_switch"), Err(Error::TracefsNotMounted { .. })));
    }
}
