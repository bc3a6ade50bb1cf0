//! Disk faults at each write of the real program.

use crate::checked;
use crate::support::{compile, fpprof, ran, source};
use fpprof_recording::Recording;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

/// Number of runs: in the nth, the nth write and all later ones fail.
const WRITES: u32 = 12;

/// Records for a while under strace, which makes writes to the recording fail from a given one onwards.
fn record_with(fault: &str, file: &Path) -> crate::support::Ran {
    let calls = "write,pwrite64,writev,pwritev";
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(file);
    command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{fault}")]);
    command.arg(fpprof().get_program()).args(["record", "-F", "999", "--keep-raw-stacks", "-o"]).arg(file);
    ran(command.args(["--", "timeout", "3", "sh", "-c", "while :; do :; done"]))
}

/// Check that a full or failing disk loses only what follows, and that the loss is reported and counted.
#[test]
fn failing_writes_cost_what_comes_after() {
    let dir = tempfile::tempdir().unwrap();
    let (mut opened, mut not_begun) = (0, 0);
    for error in ["ENOSPC", "EIO"] {
        for number in 1..=WRITES {
            let what = format!("{error} from write {number} on");
            let file = dir.path().join(format!("{error}-{number}"));
            let ran = record_with(&format!("error={error}:when={number}+"), &file);
            let bytes = std::fs::read(&file).unwrap_or_default();
            let Ok(mut recording) = Recording::open(Cursor::new(&bytes[..])) else {
                assert!(number <= 2 && ran.status != 0, "{what}: status {}, {}", ran.status, ran.stderr);
                not_begun += 1;
                continue;
            };
            opened += 1;
            let n = checked(&mut recording, &what);
            if recording.end().is_none() {
                assert_eq!(ran.status, 1, "{what}: {n} samples and no end: {}", ran.stderr);
                assert!(ran.stderr.contains("os error"), "{what}: {}", ran.stderr);
            }
        }
    }
    println!("figures failing={} opened={opened} not_begun={not_begun}", opened + not_begun);
}

/// Check that partial writes are continued: nothing is lost, and nothing is written twice.
#[test]
fn short_writes_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (library, file) = (dir.path().join("short_writes.so"), dir.path().join("recording"));
    compile("gcc", &["-O1", "-shared", "-fPIC"], &library, &source("short_writes.c"));
    let mut record = fpprof();
    record.env("LD_PRELOAD", &library).args(["record", "-F", "999", "--keep-raw-stacks", "-o"]).arg(&file);
    let ran = ran(record.args(["--", "timeout", "3", "sh", "-c", "while :; do :; done"]));
    assert_eq!(ran.status, 124, "timeout ends it: {}", ran.stderr);
    let bytes = std::fs::read(&file).unwrap();
    let mut recording = Recording::open(Cursor::new(&bytes[..])).unwrap();
    assert!(checked(&mut recording, "short writes") > 0);
    assert!(recording.damage().is_none(), "{:?}", recording.damage());
    let end = recording.end().unwrap_or_else(|| panic!("no end: {}", ran.stderr));
    assert_eq!(end.cpus.iter().map(|cpu| cpu.dropped).sum::<u64>(), 0, "{}", ran.stderr);
}

/// Check that interrupted writes are repeated, and that a temporary fault loses only the samples of its time.
#[test]
fn faults_that_pass_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    for (fault, is_lossless) in [("error=EINTR:when=1..40+2", true), ("error=ENOSPC:when=3", false)] {
        let file = dir.path().join("recording");
        let ran = record_with(fault, &file);
        let bytes = std::fs::read(&file).unwrap();
        let mut recording = Recording::open(Cursor::new(&bytes[..])).unwrap_or_else(|error| panic!("{fault}: {error}"));
        assert!(checked(&mut recording, fault) > 0, "{fault}");
        let end = recording.end().unwrap_or_else(|| panic!("{fault}: no end: {}", ran.stderr));
        let dropped: u64 = end.cpus.iter().map(|cpu| cpu.dropped).sum();
        assert!(!is_lossless || dropped == 0, "{fault}: {dropped} dropped: {}", ran.stderr);
        println!("figures passing=1 dropped={dropped}");
    }
}
