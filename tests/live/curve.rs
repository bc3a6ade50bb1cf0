//! Compares the what-if curve with real recordings: what one recording with 64 KiB chunks predicts for smaller chunks
//! must be what recordings with smaller chunks give.
//!
//! All recorders watch the same run of nbdkit and fio at the same time, so that variations between runs (how long fio
//! starts and stops, on which CPU) cancel out, and only sampling remains: two shares of independent samples, compared
//! by Newcombe's interval. The confidence is such that eight true comparisons fail once in a thousand test runs; and
//! each must reject a wrong curve.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::support::{assert_balance, fpprof, number, report, until_enough, wait_until};
use fpprof_analysis::statistics::share_difference;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The recorded sizes, and the one from which they are predicted.
const SIZES: [u64; 4] = [4096, 8192, 16_384, 32_768];
const FULL: u64 = 65_536;
/// Confidence of one comparison: one failure in a thousand over all eight.
const CONFIDENCE: f64 = 1.0 - 0.001 / 8.0;
/// The error of a curve that must be rejected.
const WRONG_BY: f64 = 0.10;
/// Minimum number of samples of a process to distinguish a wrong curve from a right one.
const MIN_SAMPLES: u64 = 1000;

/// (complete stacks, samples).
type Share = (u64, u64);

/// Starts a shell that waits for a line before it becomes the workload.
fn held_workload(seconds: u32) -> Child {
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
    let script = format!("read -r go && exec '{workload}' {seconds}");
    let held = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    held.expect("a shell starts")
}

fn recorder(file: &Path, mode: &str, pid: u32) -> Child {
    let mut record = fpprof();
    record.args(["record", "--quiet", "-F", "499", "--call-graph", mode, "-p", &pid.to_string(), "-o"]).arg(file);
    record.stdin(Stdio::null()).spawn().expect("the recorder starts")
}

/// Waits until the recorder follows its target: it writes the description of the recording then.
fn wait_until_recording(file: &Path, recorder: &mut Child) {
    wait_until("the recorder writes", || {
        assert!(recorder.try_wait().expect("a child").is_none(), "the recorder of {} ended early", file.display());
        fs::metadata(file).is_ok_and(|meta| meta.len() > 0)
    });
}

/// Records one run of the workload with one recorder per size.
fn record_all(dir: &Path, seconds: u32) -> Vec<PathBuf> {
    let mut workload = held_workload(seconds);
    let modes = SIZES.map(|size| format!("dwarf,{size}")).into_iter().chain([format!("both,{FULL}")]);
    let mut recorders: Vec<(PathBuf, Child)> = modes
        .map(|mode| {
            let file = dir.join(mode.replace(',', "-"));
            let recorder = recorder(&file, &mode, workload.id());
            (file, recorder)
        })
        .collect();
    recorders.iter_mut().for_each(|(file, recorder)| wait_until_recording(file, recorder));
    workload.stdin.take().expect("piped").write_all(b"go\n").expect("the shell reads");
    assert!(workload.wait().expect("a child").success(), "nbdkit and fio failed");
    let ended = |(file, mut recorder): (PathBuf, Child)| {
        assert!(recorder.wait().expect("a child").success(), "{}", file.display());
        file
    };
    recorders.into_iter().map(ended).collect()
}

/// A recording's share of complete stacks.
fn recorded(report: &serde_json::Value, comm: &str, strategy: &str) -> Share {
    let processes = report["processes"].as_array().expect("processes").iter().filter(|process| process["comm"] == comm);
    let ends = processes.map(|process| &process["strategies"][strategy]);
    ends.fold((0, 0), |(complete, samples), of| (complete + number(of, "complete"), samples + number(of, "samples")))
}

/// The curve's prediction for a size.
fn predicted(report: &serde_json::Value, comm: &str, size: u64) -> Share {
    let mut all = report["chunk_sizes"].as_array().expect("chunk_sizes").iter();
    let needs = all.find(|needs| needs["comm"] == comm).unwrap_or_else(|| panic!("no curve of {comm}: {report}"));
    let mut curve = needs["curve"].as_array().expect("curve").iter();
    let point = curve.find(|point| point["chunk_bytes"] == size).unwrap_or_else(|| panic!("no {size} in {needs}"));
    (number(point, "complete"), number(needs, "samples"))
}

fn agree(predicted: Share, recorded: Share) -> bool {
    let interval = share_difference(predicted, recorded, CONFIDENCE).expect("there are samples");
    interval.low <= 0.0 && 0.0 <= interval.high
}

/// The share, wrong by [`WRONG_BY`] in the direction where there is room.
fn wrong((complete, samples): Share) -> Share {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let by = (WRONG_BY * samples as f64) as u64;
    if complete >= by { (complete - by, samples) } else { (complete + by, samples) }
}

/// Check that for nbdkit and for fio, at 4K, 8K, 16K and 32K, the curve of one recording with 64K agrees with real
/// recordings of the same run; that the same comparison rejects a curve that is wrong by ten points, or read at the
/// next larger size; and that the curve equals the result of re-analysing that recording at each size.
#[test]
fn the_curve_is_what_smaller_chunks_really_give() {
    let dir = tempfile::tempdir().unwrap();
    let files = until_enough("nbdkit and fio", |seconds| {
        let dir = dir.path().join(seconds.to_string());
        fs::create_dir(&dir).unwrap();
        let files = record_all(&dir, seconds * 6);
        let has_enough = |file: &PathBuf| {
            let report = report(file, &[]);
            ["nbdkit", "fio"].iter().all(|comm| recorded(&report, comm, "dwarf").1 >= MIN_SAMPLES + MIN_SAMPLES / 10)
        };
        files.iter().all(has_enough).then_some(files)
    });
    let (full, smaller) = files.split_last().unwrap();
    let strategies = SIZES.map(|size| format!("dwarf@{size}")).join(",");
    let full = report(full, &["--strategies", &format!("dwarf,{strategies}")]);
    assert_balance(&full);
    let mut n_read_wrongly = 0;
    for (&size, file) in SIZES.iter().zip(smaller) {
        let real = report(file, &[]);
        assert_balance(&real);
        for comm in ["nbdkit", "fio"] {
            let (curve, real) = (predicted(&full, comm, size), recorded(&real, comm, "dwarf"));
            let context = format!("{comm} at {size}: {curve:?} by the curve, {real:?} recorded");
            assert!(curve.1 >= MIN_SAMPLES && real.1 >= MIN_SAMPLES, "too few samples: {context}");
            assert!(agree(curve, real), "{context}");
            assert!(!agree(wrong(curve), real), "a wrong curve passes: {context}");
            let replayed = recorded(&full, comm, &format!("dwarf@{size}"));
            assert_eq!(curve.1 - curve.0, replayed.1 - replayed.0, "{context}; {replayed:?} replayed");
            n_read_wrongly += u64::from(!agree(predicted(&full, comm, size * 2), real));
        }
    }
    // fio's stacks need 38 KiB: between 32K and 64K the curve rises from none to all.
    assert!(n_read_wrongly > 0, "a curve that is read at the next size passes everywhere");
}
