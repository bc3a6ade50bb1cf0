//! `/proc/PID/cgroup`: the control group of a process.

use super::thread_runs;
use fpprof_recording::MAX_CGROUP_BYTES;
use std::fs::File;
use std::io::Read as _;

/// The most bytes read: a line for each hierarchy, of which there are 14 with controllers.
const MAX_BYTES: u64 = 1 << 16;

/// The control group of a process, read from its first thread or, if that has exited, from another one: `/` for the
/// root. `None` if both have exited.
pub(crate) fn cgroup_of(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let other = (tid != pid).then_some(tid);
    std::iter::once(pid).chain(other).find_map(|tid| cgroup_of_thread(pid, tid))
}

fn cgroup_of_thread(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/task/{tid}/cgroup")).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let (path, is_of_exited) = chosen(&text)?;
    (!is_of_exited || thread_runs(pid, tid)).then(|| path.to_vec())
}

/// Chooses the most specific of a process's paths, one for each hierarchy.
///
/// Service managers and container runtimes use the hierarchy `name=systemd` if it exists, and version 2 otherwise. If
/// both are mounted ("hybrid"), runtimes that know only version 1 leave their containers in their own version 2 group,
/// such as `/system.slice/containerd.service`. If both are uninformative, the longest path of a controller is chosen.
/// Also returns whether the path may only be due to the thread's exit, which moves it to the root of all version 1
/// hierarchies.
///
/// # Sources
/// cgroups(7), `/proc/PID/cgroup`: `HIERARCHY:CONTROLLERS:PATH`, with neither number nor controllers for version 2. No
/// name contains a line feed (`cgroup_mkdir` in `kernel/cgroup/cgroup.c`). `proc_cgroup_show` there: in version 2, `
/// (deleted)` follows the path of a group that is gone; in version 1, a thread with `PF_EXITING` is shown in the root.
/// systemd's `docs/CGROUP_DELEGATION.md` on the three ways to mount hierarchies.
fn chosen(text: &[u8]) -> Option<(&[u8], bool)> {
    let hierarchy = |line| -> Option<(&[u8], &[u8])> {
        let mut fields = <[u8]>::splitn(line, 3, |&byte| byte == b':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let path = if controllers.is_empty() { path.strip_suffix(b" (deleted)").unwrap_or(path) } else { path };
        (path.starts_with(b"/") && path.len() <= MAX_CGROUP_BYTES).then_some((controllers, path))
    };
    let says = |&(controllers, path): &(&[u8], &[u8])| {
        let rank = match controllers {
            b"name=systemd" => 2,
            b"" => 1,
            _ => 0,
        };
        (path != b"/", rank, path.len())
    };
    let paths = || text.split(|&byte| byte == b'\n').filter_map(hierarchy);
    let (controllers, path) = paths().max_by_key(says)?;
    let has_version_1 = paths().any(|(controllers, _)| !controllers.is_empty());
    Some((path, has_version_1 && (controllers.is_empty() || path == b"/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Check that the path is that of version 2 if it is the only one, of systemd's hierarchy in a hybrid of both, and
    /// the longest of the controllers' if neither is informative; and that what an exited thread may show is flagged.
    #[test]
    fn the_hierarchy_that_says_most_is_chosen() {
        let cases = [
            ("0::/system.slice/nginx.service\n", "/system.slice/nginx.service", false),
            ("0::/\n", "/", false),
            ("0::/user.slice/session-1.scope (deleted)\n", "/user.slice/session-1.scope", false),
            (
                "5:cpuset:/docker/id\n2:cpu,cpuacct:/docker/id\n1:name=systemd:/docker/id\n0::/system.slice/containerd.service\n",
                "/docker/id",
                false,
            ),
            (
                "4:memory:/user.slice\n1:name=systemd:/user.slice/session-1.scope\n0::/user.slice\n",
                "/user.slice/session-1.scope",
                false,
            ),
            ("9:name=systemd:/\n8:pids:/\n4:memory:/tasks/one\n1:cpu:/a\n0::/\n", "/tasks/one", false),
            ("9:name=systemd:/\n4:memory:/tasks/one\n0::/own\n", "/own", true),
            (
                "2:cpu:/\n1:name=systemd:/\n0::/system.slice/containerd.service\n",
                "/system.slice/containerd.service",
                true,
            ),
            ("2:cpu:/\n1:name=systemd:/\n", "/", true),
            ("3:cpu:/a:b:c\n", "/a:b:c", false),
            ("2:freezer:/a (deleted)\n", "/a (deleted)", false),
        ];
        for (text, path, is_of_exited) in cases {
            assert_eq!(chosen(text.as_bytes()), Some((path.as_bytes(), is_of_exited)), "{text}");
        }
    }

    /// Check that rubbish gives nothing, and that a path that is too long is skipped.
    #[test]
    fn rubbish_gives_nothing() {
        for rubbish in [&b""[..], b"\n\n", b"0::", b"0:", b"1:cpu:relative\n", b"\xff:\xff\xff\n"] {
            assert_eq!(chosen(rubbish), None, "{rubbish:?}");
        }
        let long = format!("1:name=systemd:/{}\n0::/own\n", "a".repeat(MAX_CGROUP_BYTES));
        assert_eq!(chosen(long.as_bytes()), Some((&b"/own"[..], false)));
    }

    /// Check that this process has a group in each of its threads, that an exited one is not reported in the root, and
    /// that one that is gone has no group.
    #[test]
    fn own_group() {
        let own = std::process::id();
        let group = cgroup_of(own, own).expect("a kernel with control groups");
        assert!(group.starts_with(b"/"), "{group:?}");
        assert_eq!(cgroup_of(own, u32::MAX).as_ref(), Some(&group));
        let mut child = Command::new("true").spawn().expect("it starts");
        while thread_runs(child.id(), child.id()) {
            std::thread::yield_now();
        }
        let of_child = cgroup_of(child.id(), child.id());
        assert!(of_child.as_ref().is_none_or(|path| *path == group), "{of_child:?}");
        child.wait().expect("its end");
        assert_eq!(cgroup_of(u32::MAX, u32::MAX), None);
    }
}
