//! Sinks that interrupt, accept too few bytes, run full, and recover.

use crate::values::{end, fixed_event, fixed_gap, fixed_sample, meta};
use fpprof_recording::model::Sideband;
use fpprof_recording::{Error, Recording, RecordingWriter};
use std::cell::RefCell;
use std::io::{self, Cursor, Write};
use std::rc::Rc;

/// What a call does, by its number.
#[derive(Debug, Clone, Copy)]
enum Call {
    Take,
    /// Accepts at most this many bytes.
    Short(usize),
    Interrupt,
    Fail,
    Zero,
}

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    calls: usize,
}

struct Sink<F> {
    disk: Rc<RefCell<Disk>>,
    plan: F,
}

impl<F: FnMut(usize) -> Call> Write for Sink<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.disk.borrow_mut();
        disk.calls += 1;
        let take = match (self.plan)(disk.calls) {
            Call::Take => bytes.len(),
            Call::Short(most) => bytes.len().min(most),
            Call::Interrupt => return Err(io::ErrorKind::Interrupted.into()),
            Call::Fail => return Err(io::Error::from_raw_os_error(28)),
            Call::Zero => 0,
        };
        disk.bytes.extend_from_slice(&bytes[..take]);
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of [`write`].
struct Run {
    disk: Rc<RefCell<Disk>>,
    /// Numbers of the samples in flushes that succeeded.
    acknowledged: Vec<u64>,
    errors: usize,
    written: u64,
    unwritten: u64,
    finished: bool,
    bytes_written: u64,
}

/// Twelve flushes of three samples, an event and a gap each.
fn write(plan: impl FnMut(usize) -> Call) -> Option<Run> {
    let disk = Rc::new(RefCell::new(Disk::default()));
    let mut writer = RecordingWriter::new(Sink { disk: Rc::clone(&disk), plan }, &meta()).ok()?;
    let mut acknowledged = Vec::new();
    let mut errors = 0;
    let mut count = |result: Result<(), Error>| errors += usize::from(result.is_err());
    for flush in 0..12 {
        count(writer.sideband(&fixed_event(flush)));
        count(writer.gap(&fixed_gap(flush)));
        for number in flush * 3..flush * 3 + 3 {
            count(writer.sample(&fixed_sample(number), None));
        }
        let flushed = writer.flush();
        if flushed.is_ok() && !writer.is_failing() {
            acknowledged.extend(flush * 3..flush * 3 + 3);
        }
        count(flushed);
    }
    let finished = writer.finish(&end()).is_ok();
    let tallies = writer.tallies().values();
    let (written, unwritten) = tallies.fold((0, 0), |(w, u), tally| (w + tally.written, u + tally.unwritten));
    let bytes_written = writer.bytes_written();
    drop(writer);
    Some(Run { disk, acknowledged, errors, written, unwritten, finished, bytes_written })
}

fn check(run: &Run, what: &str) -> Recording<Cursor<Vec<u8>>> {
    assert_eq!(run.written + run.unwritten, 36, "{what}");
    let bytes = run.disk.borrow().bytes.clone();
    assert_eq!(bytes.len() as u64, run.bytes_written, "{what}");
    let mut recording = Recording::open(Cursor::new(bytes)).unwrap();
    let mut numbers = Vec::new();
    recording
        .samples(|sample| {
            assert_eq!(sample, &fixed_sample(sample.cpu_fired), "{what}");
            numbers.push(sample.cpu_fired);
        })
        .unwrap();
    assert_eq!(numbers.len() as u64, run.written, "{what}");
    assert!(run.acknowledged.iter().all(|number| numbers.contains(number)), "{what}");
    assert_eq!(recording.damage().lost_samples, 0, "{what}");
    recording
}

fn n_events(recording: &mut Recording<Cursor<Vec<u8>>>) -> u64 {
    let mut times = Vec::new();
    let count = |event: &Sideband| match event {
        Sideband::Exit(exit) => times.push(exit.time_ns),
        other => panic!("{other:?}"),
    };
    recording.sideband(count).unwrap();
    assert!(times.is_sorted_by(|a, b| a < b), "each event once and in order");
    times.len() as u64
}

/// Check that interruptions and short writes have no effect.
#[test]
fn interrupted_and_short_writes_change_nothing() {
    let plain = write(|_| Call::Take).unwrap();
    for most in [1, 7, 47, 1000] {
        let plan = move |call: usize| if call.is_multiple_of(2) { Call::Interrupt } else { Call::Short(most) };
        let run = write(plan).unwrap();
        assert_eq!(run.disk.borrow().bytes, plain.disk.borrow().bytes);
        assert_eq!((run.errors, run.unwritten), (0, 0));
        assert!(run.finished && check(&run, "short").damage().is_none());
    }
}

/// Check for every call that a sink that fails from there on leaves everything before readable, and reports it once.
#[test]
fn a_full_disk_keeps_what_was_written() {
    let calls = write(|_| Call::Take).unwrap().disk.borrow().calls;
    for fail_at in 3..=calls {
        for last_call in [Call::Short(5), Call::Short(60), Call::Zero] {
            let what = format!("{last_call:?} at {fail_at}");
            let run = write(move |call| match call {
                call if call < fail_at => Call::Take,
                call if call == fail_at => last_call,
                _ => Call::Fail,
            });
            let run = run.unwrap();
            assert!(!run.finished, "{what}");
            assert!(run.errors <= 1, "{what}");
            let recording = check(&run, &what);
            assert!(recording.end().is_none(), "{what}");
        }
    }
    assert!(write(|_| Call::Fail).is_none());
}

/// Check for every call that a sink that fails for a while is used again: the samples of that time are counted, process
/// events and gaps are written late, and the bytes of the broken-off block are skipped.
#[test]
fn writing_goes_on_when_space_returns() {
    let calls = write(|_| Call::Take).unwrap().disk.borrow().calls;
    for fail_at in 3..calls {
        for n_failures in 1..6 {
            for partly in [0, 5, 48, 50] {
                let what = format!("{n_failures} failures at {fail_at}, {partly} bytes before");
                let run = write(move |call| match call {
                    call if call == fail_at && partly > 0 => Call::Short(partly),
                    call if (fail_at..fail_at + n_failures).contains(&call) => Call::Fail,
                    _ => Call::Take,
                });
                let run = run.unwrap();
                let mut recording = check(&run, &what);
                if run.finished {
                    assert_eq!(n_events(&mut recording), 12, "{what}");
                    let mut gaps = Vec::new();
                    recording.gaps(|gap| gaps.push(*gap)).unwrap();
                    assert_eq!(gaps, (0..12).map(fixed_gap).collect::<Vec<_>>(), "{what}");
                    assert_eq!(recording.end(), Some(&end()), "{what}");
                    let failed = partly == 0 || n_failures > 1;
                    assert_eq!(run.errors, usize::from(failed), "{what}");
                    assert_eq!(recording.damage().skipped_bytes > 0, failed && partly > 0, "{what}");
                }
            }
        }
    }
}
