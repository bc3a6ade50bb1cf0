//! The main experiment: real nbdkit and fio, recorded once with both kinds of stack in every sample.

use crate::support::{assert_balance, fpprof, number, ran, record, report, until_enough};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The recording that all its tests share.
pub(crate) fn recording() -> &'static Path {
    static RECORDING: OnceLock<PathBuf> = OnceLock::new();
    RECORDING.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nbdkit-fio");
        let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
        until_enough("nbdkit and fio", |seconds| {
            record(&file, &["--call-graph", "both,65536"], &[workload, &(seconds * 4).to_string()]);
            let report = report(&file, &[]);
            // A dozen samples are in the start of fio, where stacks are deeper than 64K: they must not decide.
            ["nbdkit", "fio"].iter().all(|comm| complete(&report, comm, "dwarf").0 >= 3000).then_some(())
        });
        file
    })
}

/// (samples, complete stacks) of all processes of a name under a strategy.
fn complete(report: &serde_json::Value, comm: &str, strategy: &str) -> (u64, u64) {
    let processes = report["processes"].as_array().expect("processes").iter().filter(|process| process["comm"] == comm);
    let counts = processes.map(|process| process["strategies"].get(strategy).expect("the strategy was asked for"));
    counts.fold((0, 0), |(samples, complete), count| {
        (samples + number(count, "samples"), complete + number(count, "complete"))
    })
}

/// Check that at 64K at least 99 % of nbdkit's and of fio's stacks are complete by CFI, and that frame pointers, which
/// Debian omits, break.
#[test]
fn dwarf_completes_what_frame_pointers_break() {
    let report = report(recording(), &[]);
    assert_balance(&report);
    for comm in ["nbdkit", "fio"] {
        let (samples, by_dwarf) = complete(&report, comm, "dwarf");
        assert!(by_dwarf * 100 >= samples * 99, "{comm}: {by_dwarf} of {samples} complete by CFI");
        let (samples, by_fp) = complete(&report, comm, "fp");
        assert!(by_fp * 10 < samples, "{comm}: {by_fp} of {samples} complete by frame pointers");
    }
}

/// Check that smaller chunks, evaluated from the same recording, truncate fio's stacks but not nbdkit's.
#[test]
fn smaller_chunks_truncate_fio() {
    let report = report(recording(), &["--strategy", "dwarf@8192,dwarf"]);
    let (samples, at_8k) = complete(&report, "fio", "dwarf@8192");
    assert!(at_8k * 2 < samples, "fio: {at_8k} of {samples} complete with 8 KiB");
    let (samples, at_8k) = complete(&report, "nbdkit", "dwarf@8192");
    assert!(at_8k * 100 >= samples * 99, "nbdkit: {at_8k} of {samples} complete with 8 KiB");
}

/// Check that the gates pass and fail according to the figures.
#[test]
fn gates_judge_by_the_figures() {
    let gate = |gate: &str| ran(fpprof().arg("report").arg(recording()).args(["--fail-below", gate])).status;
    assert_eq!(gate("dwarf:complete=90"), 0);
    assert_eq!(gate("fp:complete=90"), 1);
    assert_eq!(gate("nonsense:complete=90"), 2);
}

/// Check that the flame graph starts at roots, has functions of nbdkit, fio and libnbd, and is well-formed.
#[test]
fn the_flame_graph_names_what_ran() {
    let drawn = ran(fpprof().arg("flamegraph").arg(recording()).args(["--strategy", "dwarf", "-o", "-"]));
    assert_eq!(drawn.status, 0, "{}", drawn.stderr);
    for name in ["_start", "nbd_aio_pwrite", "nbd_poll", "td_io_queue", "libnbd.so.0", "nbdkit"] {
        assert!(drawn.stdout.contains(name), "{name} is not in the flame graph");
    }
    // With debug symbols of the C library its own name, else a generic one.
    let has_thread_start = ["clone3", "[thread start]"].iter().any(|name| drawn.stdout.contains(name));
    assert!(has_thread_start, "no start of a thread is in the flame graph");
    let folded = ran(fpprof().arg("export").arg(recording()).args(["--format", "folded", "--strategy", "dwarf"]));
    let total: u64 = folded.stdout.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    assert_eq!(total, number(&report(recording(), &[]), "recorded"), "every sample is in the folded stacks once");
}

/// Check that fpprof's stacks agree with elfutils', frame by frame, on the same samples: equal in at least 99 %, and in
/// 99.9 % of those that both report as complete; and that each difference is explained by the rows at its first frame.
#[test]
#[cfg(feature = "libdw")]
fn libdw_agrees_frame_by_frame() {
    let compared = ran(fpprof().arg("diff").arg(recording()).args(["--strategies", "dwarf,elfutils", "--json"]));
    assert_eq!(compared.status, 0, "{}", compared.stderr);
    let compared: serde_json::Value = serde_json::from_str(&compared.stdout).expect("JSON");
    let (samples, same) = (number(&compared, "samples"), number(&compared, "same"));
    assert!(samples > 600, "only {samples} samples");
    assert!(same * 100 >= samples * 99, "{same} of {samples}: {compared}");
    let (both, both_same) = (number(&compared, "both_complete"), number(&compared, "both_complete_same"));
    assert!(both_same * 1000 >= both * 999, "{both_same} of {both}: {compared}");
    let reasons = compared["reasons"].as_array().expect("reasons");
    for reason in reasons.iter().filter(|reason| reason["relation"] != "same") {
        assert!(!reason["examples"].as_array().expect("examples").is_empty(), "an unexplained difference: {reason}");
    }
}
