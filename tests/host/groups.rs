//! Samples of one control group in a recording of everything.

use crate::group::{Group, mounts};
use crate::support::{
    ENDLESS, Ended, Ran, assert_balance, copy_program, fpprof, number, ran, record_endless, report, until_enough,
};
use std::path::Path;
use std::process::Command;

/// Moves itself to the group in `$1`, and executes `$2` there.
const MOVER: &str = r#"echo $$ > "$1/cgroup.procs" && exec "$2" -c "$3" "$2""#;
/// Makes children that compute, and children that first execute this shell again.
const PARENT: &str = r#"work="i=0; while [ \$i -lt 20000 ]; do i=\$((i+1)); done"
while :; do (eval "$work"); "$0" -c "$work"; done"#;

/// The number of samples that pass the filter; 0 only with the expected error.
fn samples(file: &Path, options: &[&str]) -> u64 {
    let Ran { status, stdout, stderr } = ran(fpprof().args(["report", "--json"]).arg(file).args(options));
    if status != 0 {
        assert!(stderr.contains("no sample matches"), "{options:?}: {stderr}");
        return 0;
    }
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    report.get("filtered").map(|filtered| number(filtered, "samples")).expect("a filter")
}

/// Check that in a recording of everything `--cgroup` shows exactly the samples of that group and those below it: a
/// program that moved there before its exec, and its children, including short-lived ones and ones that exec; and
/// nothing of a program elsewhere.
#[test]
fn samples_of_one_group() {
    let mount = mounts().into_iter().find(|mount| mount.0).expect("version 2 must be mounted for this test").2;
    let group = Group::new(&mount);
    let name = |path: &Path| format!("/{}", path.strip_prefix(&mount).expect("below").display());
    let (outer, inner) = (name(&group.outer), name(&group.inner));
    let dir = tempfile::tempdir().expect("a directory");
    let (inside, file) = (dir.path().join("inside"), dir.path().join("run.fpprof"));
    copy_program(Path::new("/bin/sh"), &inside);
    let [procs, shell] = [&group.inner, &inside].map(|path| path.to_str().expect("a path"));
    let outside = Ended(Command::new(ENDLESS[0]).args(&ENDLESS[1..]).spawn().expect("perl"));
    until_enough("samples inside and outside", |seconds| {
        let options = ["-a", "-F", "997", "--call-graph", "fp"];
        record_endless(&file, seconds, &options, &["sh", "-c", MOVER, "sh", procs, shell, PARENT]);
        assert_balance(&report(&file, &[]));
        let all = samples(&file, &["--comm", "inside"]);
        let elsewhere = outside.id().to_string();
        for group in [&inner, &outer] {
            let group = ["--cgroup", group.as_str()];
            assert_eq!(samples(&file, &[&group[..], &["--comm", "inside"]].concat()), all, "{group:?}");
            // Samples of the process from before it moved count in the group where it was found.
            let names = ["--comm", "inside", "--comm", "sh", "--comm", "fpprof"];
            let named = samples(&file, &[&group[..], &names].concat());
            assert_eq!(samples(&file, &group), named, "{group:?}");
            assert_eq!(samples(&file, &[&group[..], &["--pid", &elsewhere]].concat()), 0, "{group:?}");
        }
        assert_eq!(samples(&file, &["--cgroup", &format!("{inner}/below")]), 0);
        let of_other = samples(&file, &["--pid", &elsewhere]);
        assert_eq!(samples(&file, &["--cgroup", "/", "--pid", &elsewhere]), of_other);
        (all >= 100 && of_other >= 100).then_some(())
    });
}
