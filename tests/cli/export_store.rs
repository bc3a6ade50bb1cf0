//! Tests of `fpprof export` and `fpprof flamegraph` of a store.

use crate::serve::store;
use crate::support::{Ran, fpprof, ran};
use crate::wrong_inputs::assert_refused;
use serde_json::Value;
use std::path::Path;

fn export(store: &Path, options: &[&str]) -> Ran {
    ran(fpprof().arg("export").arg(store).args(options))
}

/// The samples of folded stacks.
fn total(folded: &str) -> u64 {
    let samples = folded.lines().map(|line| line.rsplit_once(' ').expect("a folded line").1);
    samples.map(|samples| samples.parse::<u64>().expect("a number")).sum()
}

/// Check that each filter exports its samples, that the strategy is the one without broken stacks unless another is
/// asked for, and that what was exported is said.
#[test]
fn filters_select_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let cases: [(&[&str], u64); 11] = [
        (&[], 305),
        (&["--strategy", "fp"], 300),
        (&["--to", "2026-11-26T12:01:00Z"], 100),
        (&["--from", "1795694460"], 205),
        (&["--where", "host=web-2"], 5),
        (&["--where", "service=db.service", "--where", "host=web-1"], 210),
        (&["--where", "service=db.service", "--where", "service=nginx.service"], 300),
        (&["--where", "label.team=web"], 90),
        (&["--comm", "nginx", "--pid", "7"], 90),
        (&["--cgroup", "/system.slice/db.service"], 210),
        (&["--cgroup", "/system.slice", "--event", "cpu-clock"], 305),
    ];
    for (options, samples) in cases {
        let exported = export(dir.path(), options);
        assert_eq!((exported.status, total(&exported.stdout)), (0, samples), "{options:?}: {exported:?}");
        let says = format!("fpprof: {samples} samples of cpu-clock, unwound with ");
        assert!(exported.stderr.lines().any(|line| line.starts_with(&says)), "{options:?}: {}", exported.stderr);
    }
    let stacks = export(dir.path(), &["--where", "host=web-1", "--comm", "db"]).stdout;
    assert_eq!(stacks, "db;_start;main;sort 210\n");
    let broken = export(dir.path(), &["--strategy", "fp", "--comm", "nginx"]).stdout;
    assert_eq!(broken, "nginx;[broken: ra_not_exec];serve;copy 70\n");
}

/// Check that formats with weights have those of the store.
#[test]
fn formats_have_the_weights() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let exported = export(dir.path(), &["--format", "speedscope", "--where", "host=web-1"]);
    let file: Value = serde_json::from_str(&exported.stdout).expect("JSON");
    let profiles = file["profiles"].as_array().expect("profiles").iter();
    assert_eq!(profiles.filter_map(|profile| profile["endValue"].as_u64()).sum::<u64>(), 3000);
    for format in ["pprof", "otlp"] {
        let path = dir.path().join(format);
        let written = export(dir.path(), &["--format", format, "-o", path.to_str().expect("UTF-8")]);
        assert_eq!(written.status, 0, "{}", written.stderr);
        assert!(path.metadata().expect("a file").len() > 100);
    }
}

/// Check that what a store does not have is refused, as are filters of a store for a recording, and that a damaged file is
/// named.
#[test]
fn what_is_not_there_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let cases: [(&[&str], i32, &str); 12] = [
        (&["--format", "firefox"], 2, "needs the time of each sample"),
        (&["--format", "perf-script"], 2, "needs each sample"),
        (&["--format", "parquet"], 2, "are Apache Parquet"),
        (&["--time", "1..2"], 2, "a store has --from and --to"),
        (&["--tid", "7"], 2, "--tid is for recordings"),
        (&["--no-inline"], 2, "unwound already"),
        (&["--from", "noon"], 2, "--from: expected a time"),
        (&["--from", "2", "--to", "1"], 2, "--from: expected a time before the end"),
        (&["--where", "hots=a"], 2, "--where hots: no such parameter"),
        (&["--where", "host"], 2, "expected COLUMN=VALUE"),
        (&["--where", "process=nothing"], 1, "no samples match --where process=nothing"),
        (&["--event", "nothing"], 1, "no samples match --event nothing"),
    ];
    for (options, status, words) in cases {
        assert_refused(&export(dir.path(), options), status, &[words]);
    }
    let recording = dir.path().join("run.fpprof");
    assert_refused(&export(&recording, &["--where", "host=a"]), 2, &["--where is for stores"]);
    std::fs::write(dir.path().join("stacks/day=2026-11-26/120500.000000Z-web-3.parquet"), "PAR1").expect("written");
    let exported = export(dir.path(), &[]);
    assert_eq!((exported.status, total(&exported.stdout)), (0, 305));
    let is_named = exported.stderr.lines().any(|line| line.starts_with("warning  ") && line.contains("-web-3.parquet"));
    assert!(is_named, "{}", exported.stderr);
}

/// Check that a flame graph shows the stacks that are exported, says which they are, and is refused what export is.
#[test]
fn stacks_are_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let flamegraph = |options: &[&str]| ran(fpprof().arg("flamegraph").arg(dir.path()).args(options));
    let drawn = flamegraph(&["-o", "-", "--where", "host=web-1", "--comm", "db"]);
    assert_eq!(drawn.status, 0, "{}", drawn.stderr);
    for words in ["<title>sort (210 samples, 100.0", "host=web-1", "</svg>"] {
        assert!(drawn.stdout.contains(words), "{words}: {}", drawn.stdout);
    }
    assert!(drawn.stderr.starts_with("fpprof: 210 samples of cpu-clock"), "{}", drawn.stderr);
    let of_fp = flamegraph(&["-o", "-", "--strategy", "fp"]);
    assert!(of_fp.stdout.contains("[broken: ra_not_exec]"), "{}", of_fp.stdout);
    let here = ran(fpprof().arg("flamegraph").arg(dir.path()).current_dir(dir.path()));
    assert!(here.status == 0 && dir.path().join("store.svg").is_file(), "{}", here.stderr);
    assert_refused(&flamegraph(&["--lines"]), 2, &["unwound already"]);
    assert_refused(&flamegraph(&["--where", "process=nothing"]), 1, &["no samples match"]);
    let recording = dir.path().join("run.fpprof");
    let of_recording = ran(fpprof().arg("flamegraph").arg(recording).args(["--from", "1"]));
    assert_refused(&of_recording, 2, &["--from is for stores"]);
}
