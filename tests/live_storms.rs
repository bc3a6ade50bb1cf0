//! Thousands of processes a second from outside: everything adds up, every sample has its process, and what the recorder
//! keeps of processes that ended does not pile up.

/// Runs a program and says how much memory it took.
#[path = "../src/compare/watch.rs"]
mod watch;

mod support;

use serde_json::Value;
use std::path::Path;
use support::{assert_balance, compile, fpprof, number, report};

/// One storm of `n` processes: the recorder's peak of memory, bytes.
fn storm(program: &Path, file: &Path, n: u32) -> u64 {
    let mut recorder = fpprof();
    recorder.args(["record", "-q", "--call-graph", "both,16384", "-o"]).arg(file).arg("--").arg(program);
    let watched = watch::run(recorder.arg(n.to_string())).expect("the recorder starts");
    assert!(watched.status.success());
    let report = report(file, &[]);
    assert_balance(&report);
    let seconds = report.get("duration_s").and_then(Value::as_f64).expect("how long it took");
    let rate = f64::from(n) / seconds;
    // Slower is no storm: the machine of the first measurements made 14,000.
    assert!(rate > 2000.0, "{rate:.0} processes a second");
    let processes = report.get("processes").and_then(Value::as_array).expect("processes");
    let samples: u64 = processes.iter().map(|process| number(process, "samples")).sum();
    assert_eq!(samples, number(&report, "recorded"), "each sample has its process");
    assert!(processes.len() > 5, "{} processes sampled", processes.len());
    let strangers: Vec<_> =
        processes.iter().filter(|process| process.get("comm").and_then(Value::as_str) != Some("storm")).collect();
    assert!(strangers.is_empty() || number(&report, "sideband_lost") > 0, "{strangers:?} at {rate:.0} a second");
    assert!(watched.own_cpu_s < watched.wall_s(), "one thread reads: {watched:?}");
    watched.max_rss_bytes
}

/// Check that a recording of processes that end at once adds up, names the process of every sample, and takes no more
/// memory when there are ten times as many of them.
#[test]
fn storms_take_no_more_memory_when_they_last() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("storm");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/storm.c");
    compile("cc", &["-O1"], &program, &source);
    let file = dir.path().join("recording");
    let (short, long) = (storm(&program, &file, 8000), storm(&program, &file, 80_000));
    assert!(long < short + (4 << 20), "{short} bytes at the peak, and {long} in a storm ten times as long");
}
