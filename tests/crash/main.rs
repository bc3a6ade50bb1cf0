//! `just crash`: recordings that are truncated, damaged, or cannot be written. Each opens, has lost no more than
//! necessary, says what is missing, and adds up.
//!
//! Needs root, to record, and strace. Lines that begin with `figures` are read by `just reliability`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
#[path = "../support/mod.rs"]
mod support;

use fpprof_recording::{Error, Recording, Tally, balance};
use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{Ended, fpprof};

/// Number of recorders to kill.
const KILLED: usize = 1_000;
/// Latest time of a kill after the start. A recorder writes at the latest one second after it began.
const LONGEST: Duration = Duration::from_millis(2_500);
/// Number of cuts: one at each of the last bytes.
const CUTS: usize = 64 << 10;
/// Number of changed bits, one at a time.
const FLIPS: usize = 10_000;

type Bytes<'a> = Recording<Cursor<&'a [u8]>>;

/// Starts a program that computes forever.
fn spinner() -> Ended {
    let mut command = std::process::Command::new("sh");
    Ended(command.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
}

/// Reads all samples; panics unless every tick is accounted for. Returns the number of samples.
fn checked(recording: &mut Bytes<'_>, what: &str) -> u64 {
    let mut tally = Tally::default();
    recording.samples(|sample| tally.observe(sample)).unwrap();
    for cpu in balance(recording.end(), recording.checkpoint(), &tally) {
        let known = cpu.recorded + cpu.lost.values().sum::<u64>() + cpu.skipped + cpu.dropped;
        assert_eq!(cpu.fired, known, "{what}: {cpu:?}");
    }
    tally.cpus.values().map(|cpu| cpu.samples).sum()
}

/// What a killed recorder left.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// It had not begun to write.
    Nothing,
    /// The number of samples, and the time between its end and the last sample, or else the start of the recording.
    Samples(u64, Duration),
}

/// Records a process and kills the recorder after some time.
fn kill_after(time: Duration, pid: u32, file: &Path) -> Left {
    let mut command = fpprof();
    command.args(["record", "-F", "499", "-p", &pid.to_string(), "-o"]).arg(file);
    let mut recorder = Ended(command.stderr(Stdio::null()).spawn().unwrap());
    std::thread::sleep(time);
    recorder.kill().unwrap();
    let killed = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    recorder.wait().unwrap();
    let Ok(bytes) = fs::read(file) else { return Left::Nothing };
    fs::remove_file(file).unwrap();
    let mut recording = match Recording::open(Cursor::new(&bytes[..])) {
        Ok(recording) => recording,
        Err(Error::NotARecording(_) | Error::NoMeta) if bytes.len() < 4096 => return Left::Nothing,
        Err(error) => panic!("killed after {time:?}, {} bytes: {error}", bytes.len()),
    };
    assert_eq!(recording.end(), None, "killed after {time:?}");
    let damage = recording.damage();
    let in_the_middle = (damage.skipped_bytes, damage.lost_samples, damage.malformed_blocks);
    assert_eq!(in_the_middle, (0, 0, 0), "killed after {time:?}: {damage:?}");
    let n = checked(&mut recording, &format!("killed after {time:?}"));
    let mut last_ns = recording.meta().start_ns;
    recording.samples(|sample| last_ns = last_ns.max(sample.time_ns)).unwrap();
    Left::Samples(n, killed.saturating_sub(Duration::from_nanos(last_ns)))
}

/// Check that recorders killed at random times leave what they had written.
#[test]
fn killed_recorders_leave_what_they_wrote() {
    let spinner = spinner();
    let dir = tempfile::tempdir().unwrap();
    let (next, left) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut random = fastrand::Rng::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= KILLED {
                return;
            }
            let time = LONGEST.mul_f64(random.f64());
            let file = dir.path().join(number.to_string());
            left.lock().unwrap().push(kill_after(time, spinner.id(), &file));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let left = left.into_inner().unwrap();
    let empty = left.iter().filter(|left| **left == Left::Nothing).count();
    let with_samples = left.iter().filter(|left| matches!(left, Left::Samples(1.., _))).count();
    println!("{KILLED} recorders killed: {with_samples} recordings with samples, {empty} not begun");
    let of_time = |left: &Left| if let Left::Samples(_, lost) = left { *lost } else { Duration::ZERO };
    let lost = left.iter().map(of_time).max().unwrap_or_default();
    println!("figures killed={KILLED} begun={0} opened={0} most_lost_s={1:.2}", left.len() - empty, lost.as_secs_f64());
    assert!(with_samples > KILLED / 10, "{with_samples} of {KILLED} have samples");
}

/// A real recording, with whole stacks and many processes.
fn real_recording(dir: &Path) -> Vec<u8> {
    let file = dir.join("whole");
    let options = ["-F", "999", "--call-graph", "both", "--keep-raw-stacks"];
    let command = ["timeout", "3", "sh", "-c", "while :; do ls -lR /etc >/dev/null; done"];
    let ran = support::ran(fpprof().arg("record").args(options).arg("-o").arg(&file).arg("--").args(command));
    assert_eq!(ran.status, 124, "timeout ends it: {}", ran.stderr);
    fs::read(file).unwrap()
}

/// Check that a recording cut at each of its last bytes has all blocks before the cut, and says what is missing; and
/// that a changed bit loses at most one block.
#[test]
fn cuts_and_flips_cost_one_block_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let file = real_recording(dir.path());
    let mut whole = Recording::open(Cursor::new(&file[..])).unwrap();
    let n_samples = checked(&mut whole, "whole");
    let largest = whole.sample_blocks().map(|block| u64::from(block.unwrap().n_samples())).max().unwrap();
    let begun = Instant::now();
    let cuts = file.len().saturating_sub(CUTS).max(1)..file.len();
    let (mut last, n_cuts) = (0, cuts.len());
    for cut in cuts {
        let what = format!("cut at {cut} of {}", file.len());
        let mut recording = match Recording::open(Cursor::new(&file[..cut])) {
            Ok(recording) => recording,
            // The first block identifies the file as a recording.
            Err(_) if last == 0 && cut < 4096 => continue,
            Err(error) => panic!("{what}: {error}"),
        };
        let here = checked(&mut recording, &what);
        assert!(here >= last, "{what}: {here} samples, {last} before");
        assert_eq!(recording.end(), None, "{what}");
        let damage = recording.damage();
        assert_eq!((damage.skipped_bytes, damage.malformed_blocks), (0, 0), "{what}: {damage:?}");
        last = here;
    }
    assert_eq!(last, n_samples, "the last block is the end, which has no samples");
    println!("{n_cuts} cuts of {} bytes, {n_samples} samples: {:.0?}", file.len(), begun.elapsed());

    let (begun, mut random, mut damaged, mut most_lost) = (Instant::now(), fastrand::Rng::new(), 0, 0);
    for _ in 0..FLIPS {
        let bit = random.usize(..file.len() * 8);
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let what = format!("bit {bit}");
        let mut recording = match Recording::open(Cursor::new(&flipped[..])) {
            Ok(recording) => recording,
            Err(error) => panic!("{what}: {error}"),
        };
        let here = checked(&mut recording, &what);
        let damage = recording.damage();
        assert!(here + largest >= n_samples, "{what}: {here} of {n_samples} samples: {damage:?}");
        assert!(!damage.is_none(), "{what} is not noticed");
        most_lost = most_lost.max(n_samples.saturating_sub(here));
        damaged += 1;
    }
    println!("{damaged} flips: {:.0?}", begun.elapsed());
    println!("figures cuts={n_cuts} flips={damaged} samples={n_samples} most_lost={most_lost} largest_block={largest}");
}
