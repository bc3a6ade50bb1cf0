//! Exports of a real recording of nbdkit and fio, read by other tools' own code.

use crate::nbdkit_fio::recording;
use crate::support::{fpprof, number, ran, report};
use inferno::collapse::Collapse as _;
use inferno::collapse::perf::Folder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The period of a sample: the recording has 999 per second.
const PERIOD_NS: u64 = 1_000_000_000 / 999;

fn exported(format: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("exported-{format}"));
    let run = ran(fpprof().arg("export").arg(recording()).args(["--format", format, "-o"]).arg(&file));
    assert_eq!(run.status, 0, "{}", run.stderr);
    file
}

fn json(format: &str) -> Value {
    serde_json::from_slice(&std::fs::read(exported(format)).expect("the export is there")).expect("JSON")
}

/// Folded stacks without the suffixes that say how a frame was found, and their samples.
fn stacks(folded: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in folded.lines() {
        let (stack, samples) = line.rsplit_once(' ').expect("a folded line");
        let bare = |frame: &str| frame.split("_[").next().unwrap_or(frame).to_owned();
        let stack: Vec<String> = stack.split(';').map(bare).collect();
        *stacks.entry(stack.join(";")).or_default() += samples.parse::<u64>().expect("a number");
    }
    stacks
}

/// Check that the export of a store that holds a recording's table has the stacks of the recording.
#[test]
fn a_store_has_the_stacks_of_its_recordings() {
    let store = tempfile::tempdir().expect("a directory");
    let day = store.path().join("stacks/day=2026-11-26");
    std::fs::create_dir_all(&day).expect("a directory");
    std::fs::copy(exported("parquet"), day.join("120000.000000Z-any.parquet")).expect("a table");
    for strategy in ["dwarf", "fp"] {
        let of = |path: &Path| {
            let run = ran(fpprof().arg("export").arg(path).args(["--strategy", strategy]));
            assert_eq!(run.status, 0, "{}", run.stderr);
            stacks(&run.stdout)
        };
        let (of_recording, of_store) = (of(recording()), of(store.path()));
        assert!(of_recording.len() > 10, "{of_recording:?}");
        assert_eq!(of_store, of_recording, "{strategy}");
    }
}

/// Check that Go's pprof finds every sample, their CPU time, and as many complete stacks as the report.
#[test]
fn go_reads_pprof() {
    let file = exported("pprof");
    let raw = Command::new("go").args(["tool", "pprof", "-raw"]).arg(file).output().expect("go is needed");
    let raw = String::from_utf8(raw.stdout).expect("UTF-8");
    let (head, rest) = raw.split_once("Samples:\n").expect("samples");
    let (samples, tables) = rest.split_once("Locations\n").expect("locations");
    assert!(head.contains("PeriodType: cpu nanoseconds"), "{head}");
    let mut lines = samples.lines();
    assert_eq!(lines.next(), Some("samples/count cpu/nanoseconds[dflt]"));
    let (mut n, mut ns, mut complete, mut last) = (0, 0, 0, 0);
    for line in lines {
        if let Some((values, _)) = line.split_once(": ").filter(|_| !line.contains(":[")) {
            let values: Vec<u64> = values.split_whitespace().map(|value| value.parse().expect("a number")).collect();
            last = values[0];
            n += values[0];
            ns += values[1];
        } else if line.contains("stack:[complete]") {
            complete += last;
        }
    }
    let report = report(recording(), &[]);
    assert_eq!(n, number(&report, "recorded"));
    assert_eq!(complete, number(&report["strategies"]["dwarf"], "complete"));
    assert_eq!(ns, n * PERIOD_NS);
    for name in [" td_io_queue ", " nbd_poll ", "/nbdkit", "/fio", "/libnbd.so.0"] {
        assert!(tables.contains(name), "{name} is not in pprof's tables");
    }
}

/// Check that the perf script text folds to the same stacks as the folded export.
#[test]
fn inferno_folds_the_text_of_perf_script() {
    let mut folded = Vec::new();
    let file = exported("perf-script");
    Folder::default().collapse_file(Some(&file), &mut folded).expect("inferno reads it");
    let by_inferno = stacks(&String::from_utf8(folded).expect("UTF-8"));
    let ours = ran(fpprof().arg("export").arg(recording()));
    let ours = stacks(&ours.stdout);
    let n = |stacks: &BTreeMap<String, u64>| stacks.values().sum::<u64>();
    // inferno weights samples by their period.
    assert_eq!(n(&by_inferno), n(&ours) * PERIOD_NS);
    let mut n_compared = 0;
    // inferno removes the parameters of C++ functions.
    for (stack, samples) in ours.iter().filter(|(stack, _)| !stack.contains('(')) {
        assert_eq!(by_inferno.get(stack), Some(&(samples * PERIOD_NS)), "{stack}");
        n_compared += samples;
    }
    assert!(n_compared * 10 > n(&ours) * 9, "only {n_compared} samples were compared");
}

/// Check that each thread in the Firefox Profiler's format has its samples, and that times ascend.
#[test]
fn firefox_has_the_samples_of_each_thread() {
    let profile = json("firefox");
    let threads = profile["threads"].as_array().expect("threads");
    let n = threads.iter().map(|thread| number(&thread["samples"], "length")).sum::<u64>();
    assert_eq!(n, number(&report(recording(), &[]), "recorded"));
    for process in ["nbdkit", "fio"] {
        assert!(threads.iter().any(|thread| thread["processName"] == process), "no process {process}");
    }
    let main = threads.iter().filter(|thread| thread["isMainThread"] == true);
    assert!(main.clone().count() >= 3 && main.clone().all(|thread| thread["pid"] == thread["tid"]));
}

/// Check that speedscope's format has every sample in one thread, weighted by its time.
#[test]
fn speedscope_has_every_sample() {
    let file = json("speedscope");
    let frames = file["shared"]["frames"].as_array().expect("frames").len() as u64;
    let mut ns = 0;
    for profile in file["profiles"].as_array().expect("profiles") {
        let (samples, weights) = (profile["samples"].as_array(), profile["weights"].as_array());
        let (samples, weights) = (samples.expect("samples"), weights.expect("weights"));
        assert_eq!(samples.len(), weights.len());
        let indices = samples.iter().flat_map(|stack| stack.as_array().expect("a stack"));
        assert!(indices.map(|index| index.as_u64().expect("a number")).all(|index| index < frames));
        let own = weights.iter().map(|weight| weight.as_u64().expect("a number")).sum::<u64>();
        assert_eq!(profile["endValue"].as_u64(), Some(own));
        ns += own;
    }
    assert_eq!(ns, number(&report(recording(), &[]), "recorded") * PERIOD_NS);
}
