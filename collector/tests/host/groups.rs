//! Control groups of both versions.

use crate::group::{Group, mounts};
use crate::support::{Ended, build, directory, refuse, skipped, take_some};
use fpprof_collector::{Error, Request, Target};
use std::path::Path;
use std::process::Command;

/// Check that for a control group in every mounted hierarchy, given by its directory or by its name, exactly its
/// processes and those of groups below are sampled; and that a hierarchy without a controller is refused with the
/// reason.
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
                    // Several hierarchies have a group of this name, and the first one counts.
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
