//! The control groups of recorded processes, on an unmodified machine.

use crate::support::{fpprof, number, ran, record_endless, report, until_enough};

/// Makes one child after another, each of which computes for a moment.
const PARENT: &str = "while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done";

/// Check that a program and its children, which end too soon to be looked up, are in this test's group and in those
/// above it; and that a group without samples is an error that lists the existing groups.
#[test]
fn children_are_in_the_group_of_their_parent() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.fpprof");
    let whole = until_enough("children", |seconds| {
        record_endless(&file, seconds, &["--call-graph", "fp"], &["sh", "-c", PARENT]);
        let whole = report(&file, &[]);
        let has_children = whole["processes"].as_array().is_some_and(|processes| processes.len() > 2);
        has_children.then_some(whole)
    });

    let refused = ran(fpprof().arg("report").arg(&file).args(["--cgroup", "/no/such group"]));
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    let message = "no sample matches --cgroup '/no/such group'; the recording has control groups ";
    let group = refused.stderr.split_once(message).unwrap_or_else(|| panic!("{}", refused.stderr)).1.trim();
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("a kernel with control groups");
    assert!(own.lines().any(|line| line.ends_with(&format!(":{group}"))), "{group} is none of {own}");

    for group in [group, "/"] {
        let part = report(&file, &["--cgroup", group]);
        assert_eq!(number(&part["filtered"], "samples"), number(&whole, "recorded"), "{group}");
    }
    let words = ran(fpprof().arg("report").arg(&file).args(["--cgroup", group])).stdout;
    assert!(words.contains(&format!("--cgroup {group}")), "{words}");
}
