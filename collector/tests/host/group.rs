//! Control groups for the duration of a test.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use crate::changed::Changed;
use std::path::{Path, PathBuf};
use std::process::Child;

/// A control group with one below it; both are removed when this is dropped.
pub(crate) struct Group {
    pub(crate) outer: PathBuf,
    pub(crate) inner: PathBuf,
    _changed: Changed,
}

impl Group {
    pub(crate) fn new(mount: &Path) -> Self {
        let outer = mount.join(format!("fpprof-test-{}", std::process::id()));
        let inner = outer.join("inner");
        let text = |path: &Path| path.to_str().expect("a path").to_owned();
        let undo =
            "for pid in $(cat \"$2/cgroup.procs\"); do echo $pid > \"$3/cgroup.procs\"; done; rmdir \"$2\" \"$1\"";
        let changed = Changed::undone_by(undo, &[&text(&outer), &text(&inner), &text(mount)]);
        std::fs::create_dir_all(&inner).expect("a control group must be creatable: run the tests as root");
        // A new `cpuset` group has no CPUs, and accepts no process until it has some.
        for group in [&outer, &inner] {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = std::fs::read(mount.join(file)) {
                    std::fs::write(group.join(file), all).expect("the CPUs of a group");
                }
            }
        }
        Self { outer, inner, _changed: changed }
    }

    pub(crate) fn add(&self, child: &Child) {
        std::fs::write(self.inner.join("cgroup.procs"), child.id().to_string()).expect("the process moves");
    }
}

/// Mounts of control groups: whether version 2, whether it has controllers, and where.
pub(crate) fn mounts() -> Vec<(bool, bool, PathBuf)> {
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
