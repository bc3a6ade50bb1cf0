//! `record --aggregate`: equal samples are written once, and everything that is counted stays the same.

use crate::support::{
    ENDLESS, Ended, assert_balance, compile, fpprof, number, ran, record, record_endless, report, until_enough,
    wait_for_samples,
};
use fpprof_recording::model::{Gap, Meta, Sample, Sideband};
use fpprof_recording::{Recording, RecordingWriter};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Processes that come and go, threads, and libraries that are mapped while samples are taken.
const BUSY: &str = "n=0; while [ $n -lt 30 ]; do n=$((n+1)); perl -MPOSIX -e '$i++ while $i < 100000'; done;
    dd if=/dev/zero of=/dev/null bs=1 count=300000 2> /dev/null; true";

fn samples(file: &Path) -> Vec<Sample> {
    let mut recording = Recording::open(File::open(file).expect("a file")).expect("a recording");
    let mut samples = Vec::new();
    recording.samples(|sample| samples.push(sample.clone())).expect("samples");
    assert!(recording.damage().is_none());
    samples
}

/// How many samples have the time of another sample of their CPU.
fn n_repeats(samples: &[Sample]) -> usize {
    let times: BTreeSet<_> = samples.iter().map(|sample| (sample.cpu, sample.time_ns)).collect();
    samples.len() - times.len()
}

/// Writes the contents of a recording again, in order of time, with a flush each 200 ms.
fn write_again(from: &Path, to: &Path, aggregated_ns: Option<u64>) {
    let mut recording = Recording::open(File::open(from).expect("a file")).expect("a recording");
    let meta = Meta { aggregated_ns, ..recording.meta().clone() };
    let mut writer = RecordingWriter::new(File::create(to).expect("a file"), &meta).expect("a description");
    let (mut events, mut gaps) = (Vec::new(), Vec::<Gap>::new());
    recording.sideband(|event| events.push(event.clone())).expect("sideband");
    recording.gaps(|gap| gaps.push(*gap)).expect("gaps");
    let mut samples = samples(from);
    events.sort_by_key(Sideband::time_ns);
    samples.sort_by_key(|sample| sample.time_ns);
    let mut events = events.iter().peekable();
    let mut next_flush = 0;
    for sample in &samples {
        while let Some(event) = events.next_if(|event| event.time_ns() <= Some(sample.time_ns)) {
            writer.sideband(event).expect("written");
        }
        writer.sample(sample, None).expect("written");
        if sample.time_ns > next_flush {
            writer.flush().expect("written");
            next_flush = sample.time_ns + 200_000_000;
        }
    }
    events.for_each(|event| writer.sideband(event).expect("written"));
    gaps.iter().for_each(|gap| writer.gap(gap).expect("written"));
    writer.finish(recording.end().expect("an end")).expect("end");
}

/// What a report says about the samples, and not about the size of the file and when they were taken.
fn counts(file: &Path) -> Value {
    let mut report = report(file, &["--strategies", "cfi,fp"]);
    assert_balance(&report);
    let object = report.as_object_mut().expect("an object");
    ["file_bytes", "volume", "environment", "over_time"].into_iter().for_each(|key| drop(object.remove(key)));
    report
}

fn folded(file: &Path) -> String {
    let ran = ran(fpprof().args(["export", "--strategy", "cfi"]).arg(file));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.stdout
}

/// Check that the same samples give the same report and the same folded stacks, written one by one or once.
#[test]
fn reports_of_the_same_samples_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let [taken, plain, aggregated] = ["taken", "plain", "aggregated"].map(|name| dir.path().join(name));
    record(&taken, &["-F", "1999", "--call-graph", "cfi,fp"], &["sh", "-c", BUSY]);
    write_again(&taken, &plain, None);
    write_again(&taken, &aggregated, Some(10_000_000_000));
    assert_eq!(n_repeats(&samples(&plain)), 0);
    assert!(n_repeats(&samples(&aggregated)) > 0, "no two samples were equal");
    assert_eq!(counts(&aggregated), counts(&plain));
    assert_eq!(folded(&aggregated), folded(&plain));
    assert!(fs::metadata(&aggregated).unwrap().len() < fs::metadata(&plain).unwrap().len());
}

/// The sum of the counts of folded stacks.
fn n_folded(text: &str) -> usize {
    text.lines()
        .map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<usize>().ok()).expect("a count"))
        .sum()
}

/// The sum of the weights of a profile's samples.
fn n_in_firefox(text: &str) -> u64 {
    let profile: Value = serde_json::from_str(text).expect("JSON");
    let threads = profile.get("threads").and_then(Value::as_array).expect("threads");
    let of_thread =
        |thread: &Value| thread.pointer("/samples/weight").and_then(Value::as_array).expect("weights").clone();
    let weights = threads.iter().flat_map(of_thread);
    weights.map(|weight| weight.as_u64().expect("a weight")).sum()
}

/// A program that is always at the same instruction, until it is killed.
fn loops(dir: &Path) -> PathBuf {
    let [source, program] = ["loops.c", "loops"].map(|name| dir.join(name));
    fs::write(&source, "int main(void) { for (;;); }").expect("a file");
    compile("gcc", &["-fno-omit-frame-pointer"], &program, &source);
    program
}

/// Check that both collectors write equal samples once, that nothing is lost by it, and that `report` and exports of
/// single moments say what became of the times.
#[test]
fn equal_samples_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("recording"), loops(dir.path()));
    for (collector, mode) in [("ebpf", "cfi"), ("ebpf", "fp"), ("perf-event", "fp")] {
        let options = ["-F", "1999", "--aggregate", "5s", "--collector", collector, "--call-graph", mode];
        until_enough("equal samples", |seconds| {
            record_endless(&file, seconds, &options, &[program.to_str().unwrap()]);
            let samples = samples(&file);
            (n_repeats(&samples) > 100).then_some(())
        });
        let whole = report(&file, &[]);
        assert_balance(&whole);
        assert_eq!(number(&whole, "recorded"), samples(&file).len() as u64, "{mode}");
        assert_eq!(whole["environment"]["aggregated_s"], 5.0, "{mode}");
        let words = "up to 5 s early";
        assert!(ran(fpprof().arg("report").arg(&file)).stdout.contains(words), "{mode}");
        assert!(!ran(fpprof().arg("export").arg(&file)).stderr.contains(words), "folded stacks have no times");
        let firefox = ran(fpprof().args(["export", "--format", "firefox"]).arg(&file));
        assert!(firefox.status == 0 && firefox.stderr.contains(words), "{}", firefox.stderr);
        let script = ran(fpprof().args(["export", "--format", "perf-script"]).arg(&file)).stdout;
        let n_folded = n_folded(&ran(fpprof().arg("export").arg(&file)).stdout);
        assert_eq!(
            (script.matches("\n\n").count(), n_in_firefox(&firefox.stdout)),
            (n_folded, n_folded as u64),
            "{mode}"
        );
        let part = ran(fpprof().args(["flamegraph", "-o", "-", "--time", "0.."]).arg(&file));
        assert!(part.status == 0 && part.stderr.contains(words), "{}", part.stderr);
    }
}

/// Check that an aggregated recording whose recorder is killed adds up, and so does one that is cut behind any block.
#[test]
fn a_killed_recorder_leaves_counts_that_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let [file, cut] = ["killed", "cut"].map(|name| dir.path().join(name));
    let mut record = fpprof();
    record.args(["record", "-q", "-F", "1999", "--call-graph", "fp", "--aggregate", "1s", "-o"]).arg(&file);
    let mut recorder = Ended(record.arg("--").args(ENDLESS).stderr(Stdio::null()).spawn().unwrap());
    wait_for_samples(&file);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let whole = fs::read(&file).unwrap();
    let ends: Vec<usize> = (1..whole.len()).filter(|&at| whole[at..].starts_with(b"\x89FPREC")).collect();
    for len in ends.into_iter().skip(2).chain([whole.len(), whole.len() - 1]) {
        fs::write(&cut, &whole[..len]).unwrap();
        assert_balance(&report(&cut, &[]));
    }
    let report = report(&file, &[]);
    assert!(number(&report, "recorded") > 0 && report["ended_in_order"] == false, "{report}");
}

/// Check that aggregated recordings can be written to a pipe and in several files.
#[test]
fn pipes_and_several_files() {
    let dir = tempfile::tempdir().unwrap();
    let (piped, program) = (dir.path().join("piped"), loops(dir.path()));
    let program = program.to_str().unwrap();
    let mut record = fpprof();
    record.args(["record", "-q", "--call-graph", "cfi", "--duration", "2", "--aggregate", "-o", "-", "--", program]);
    record.stdout(File::create(&piped).unwrap());
    assert_eq!(record.status().unwrap().code(), Some(128 + 15), "the program does not end by itself");
    assert!(number(&report(&piped, &[]), "recorded") > 0);
    let _busy = Ended(Command::new(program).spawn().unwrap());
    let mut record = fpprof();
    record.args([
        "record",
        "-q",
        "-a",
        "--call-graph",
        "fp",
        "--aggregate",
        "--switch-output",
        "1s",
        "--duration",
        "3",
    ]);
    assert_eq!(ran(record.arg("-o").arg(dir.path().join("all"))).status, 0);
    let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("all.")).collect();
    assert!(files.len() > 1, "{files:?}");
    for file in files {
        let report = report(&file, &[]);
        assert_balance(&report);
        assert_eq!(report["ended_in_order"], true, "{report}");
        assert_eq!(report["environment"]["aggregated_s"], 10.0);
    }
}
