//! Control groups of both versions.

use crate::changed::Changed;
use crate::support::{Ended, build, directory, refuse, skipped, take_some};
use fpprof_collector::{Error, Request, Target};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A control group that is removed again, with one below it.
struct Group {
    outer: PathBuf,
    inner: PathBuf,
    _changed: Changed,
}

impl Group {
    fn new(mount: &Path) -> Self {
        let outer = mount.join(format!("fpprof-test-{}", std::process::id()));
        let inner = outer.join("inner");
        let text = |path: &Path| path.to_str().expect("a path").to_owned();
        let undo =
            "for pid in $(cat \"$2/cgroup.procs\"); do echo $pid > \"$3/cgroup.procs\"; done; rmdir \"$2\" \"$1\"";
        let changed = Changed::undone_by(undo, &[&text(&outer), &text(&inner), &text(mount)]);
        std::fs::create_dir_all(&inner).expect("a control group must be creatable: run the tests as root");
        // A new group of `cpuset` has no CPUs and takes no process before it has.
        for group in [&outer, &inner] {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = std::fs::read(mount.join(file)) {
                    std::fs::write(group.join(file), all).expect("the CPUs of a group");
                }
            }
        }
        Self { outer, inner, _changed: changed }
    }

    fn add(&self, child: &Child) {
        std::fs::write(self.inner.join("cgroup.procs"), child.id().to_string()).expect("the process moves");
    }
}

/// Mounts of control groups: version 2 or not, has controllers or not, and where.
fn mounts() -> Vec<(bool, bool, PathBuf)> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mount = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let is_unified = file_system.starts_with("cgroup2 ");
        let has_controllers = !file_system.contains("name=");
        let is_one = file_system.starts_with("cgroup");
        is_one.then(|| (is_unified, has_controllers, PathBuf::from(mount.split(' ').nth(4).expect("a path"))))
    };
    text.lines().filter_map(mount).collect()
}

/// Check that of a control group, in every hierarchy that is mounted, exactly its processes and those of groups below are
/// sampled, by its directory and by its name; and that a hierarchy without a controller is refused with the reason.
#[test]
fn control_groups_of_both_versions() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let [inside, _outside] = [(); 2].map(|()| Ended(Command::new(&program).arg("60000").spawn().expect("it runs")));
    let mounts = mounts();
    assert!(mounts.iter().any(|mount| mount.0), "version 2 must be mounted for this test");
    for (is_unified, has_controllers, mount) in mounts {
        let group = Group::new(&mount);
        let request = |path: &Path| Request::new(Target::Cgroup { path: path.to_path_buf(), argv: None });
        if is_unified || has_controllers {
            group.add(&inside);
            for path in [&group.outer, &group.inner, &group.inner.strip_prefix(&mount).expect("below").to_path_buf()] {
                if path.is_relative() && !is_unified {
                    // The name is that of a group in several hierarchies, of which the first counts.
                    continue;
                }
                let taken = take_some(&request(path));
                let pids: std::collections::BTreeSet<_> = taken.samples.iter().map(|sample| sample.pid).collect();
                assert_eq!(pids, [inside.id()].into(), "{}", path.display());
                assert!(skipped(&taken) > 0, "{}", path.display());
            }
        } else {
            let refused = refuse(&request(&group.outer));
            assert!(matches!(refused, Error::CgroupWithoutController(_)), "{refused}");
        }
    }
    for no_group in ["/proc", "no-such-group-anywhere"] {
        let refused = refuse(&Request::new(Target::Cgroup { path: no_group.into(), argv: None }));
        assert!(matches!(refused, Error::NoSuchCgroup { .. }), "{refused}");
    }
}
