//! Accounting for every tick.

use crate::support::{Taken, assert_balanced, build, directory, run, take, take_with};
use fpprof_collector::{Note, PartsControl, Request, StopFlag, TargetStatus, Update, record};
use fpprof_recording::model::{CaptureMode, EndReason, LossCause, Sample, Sampling};
use fpprof_recording::{Recording, Tally, balance};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Check that the balance holds with the smallest ring and a reader that stops for long: what did not fit is lost for
/// that cause, and the counters in the samples agree.
#[test]
fn smallest_ring_and_stopped_reader() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let mode = CaptureMode::Both { stack_bytes: 131_072, every: 1 };
    let fast =
        Request { sampling: Sampling::FrequencyHz(3999), ring_bytes: Some(512 << 10), ..run(&program, &["600"], mode) };
    let stop = StopFlag::new().expect("a flag");
    let (mut turns, mut n_early, mut last_turn) = (0, 0, Instant::now());
    let taken = take_with(&fast, &stop, &mut |progress| {
        turns += 1;
        // Without the doorbell, the reader looks every 100 ms.
        n_early += u32::from(last_turn.elapsed() < Duration::from_millis(95));
        if progress.lost <= 100 {
            sleep(Duration::from_millis(250));
        }
        last_turn = Instant::now();
    });
    assert!(n_early >= 3, "a filling ring wakes the reader: {n_early} early turns of {turns}");
    let lost: u64 = taken.outcome.end.cpus.iter().filter_map(|cpu| cpu.lost.get(&LossCause::RingFull)).sum();
    assert!(lost > 100, "{lost} samples lost while the reader slept");
    for cpu in &taken.outcome.end.cpus {
        let samples: Vec<_> = taken.samples.iter().filter(|sample| sample.cpu == cpu.cpu).collect();
        let (mut fired, mut lost) = (0, 0);
        for sample in samples {
            assert!(sample.cpu_fired > fired && sample.cpu_lost >= lost, "counters only grow");
            (fired, lost) = (sample.cpu_fired, sample.cpu_lost);
        }
        assert!(fired <= cpu.fired && lost <= cpu.lost.values().sum());
    }
    gaps_lie_between_samples(&taken);
}

/// Checks that the gaps between two samples of a CPU add up to the losses that the second sample reports since the
/// first.
fn gaps_lie_between_samples(taken: &Taken) {
    for cpu in &taken.outcome.end.cpus {
        let (mut time_ns, mut lost) = (0, 0);
        for sample in taken.samples.iter().filter(|sample| sample.cpu == cpu.cpu) {
            let between = taken.gaps.iter().filter(|gap| gap.cpu == cpu.cpu && gap.cause != LossCause::Throttled);
            let between = between.filter(|gap| time_ns < gap.start_ns && gap.end_ns < sample.time_ns);
            assert_eq!(between.map(|gap| gap.lost).sum::<u64>(), sample.cpu_lost - lost, "before {}", sample.time_ns);
            (time_ns, lost) = (sample.time_ns, sample.cpu_lost);
        }
    }
}

/// Check that a ring that fills up first makes stacks smaller, in steps, each of which records the full size, and
/// only then loses samples; and that no other stack is cut.
#[test]
fn filling_rings_shed_stack_bytes_first() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let mode = CaptureMode::Dwarf { stack_bytes: 1 << 20 };
    let request = Request {
        sampling: Sampling::FrequencyHz(3999),
        ring_bytes: Some(4 << 20),
        keep_raw_stacks: true,
        ..run(&program, &["900"], mode)
    };
    let stop = StopFlag::new().expect("a flag");
    let mut pause = Duration::from_millis(400);
    let taken = take_with(&request, &stop, &mut |progress| {
        // However little CPU time the program gets, it eventually fills the ring.
        if progress.samples > 0 && progress.lost == 0 {
            sleep(pause);
            pause *= 2;
        }
    });
    let stack_bytes = |sample: &Sample| {
        let sp = sample.user_regs.map_or(0, |regs| regs.sp());
        sample.stack_end.map_or(0, |end| end.address - sp)
    };
    let mut sizes = BTreeSet::new();
    for sample in taken.samples.iter().filter(|sample| sample.user_regs.is_some()) {
        match sample.shed_from {
            None => assert_eq!(sample.stack_from_sp().len() as u64, stack_bytes(sample), "whole"),
            Some(asked) => {
                assert_eq!(u64::from(asked), stack_bytes(sample));
                assert!(sample.stack_from_sp().len() < asked as usize);
                sizes.insert(sample.stack_from_sp().len());
            }
        }
    }
    // The pattern's stack has a little more than 128 KiB: a quarter of a MiB does not cut it.
    let steps = BTreeSet::from([64 << 10, 16 << 10, 4 << 10, 1 << 10]);
    assert!(sizes.is_subset(&steps) && sizes.contains(&(64 << 10)) && sizes.len() >= 2, "{sizes:?}");
    let n_shed = taken.samples.iter().filter(|sample| sample.shed_from.is_some()).count() as u64;
    assert!(taken.outcome.notes.contains(&Note::StacksShed(n_shed)), "{:?}", taken.outcome.notes);
    let full = taken.gaps.iter().filter(|gap| gap.cause == LossCause::RingFull);
    let first = full.min_by_key(|gap| gap.start_ns).expect("the ring ran full while the reader slept");
    let before: Vec<_> = taken.samples.iter().filter(|s| s.cpu == first.cpu && s.time_ns < first.start_ns).collect();
    assert!(before.last().is_some_and(|sample| sample.shed_from.is_some()), "shed before lost");
    gaps_lie_between_samples(&taken);
}

/// Check that with the default ring nothing is lost at 999 Hz, that ticks fire at the requested rate, and that other
/// processes' ticks are skipped.
#[test]
fn nothing_is_lost_by_default() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let taken = take(&run(&program, &["250"], CaptureMode::Dwarf { stack_bytes: 262_144 }));
    for cpu in &taken.outcome.end.cpus {
        let ring_full = cpu.lost.get(&LossCause::RingFull).copied().unwrap_or(0);
        assert_eq!(ring_full, 0, "{cpu:?}");
        let elapsed_ns = taken.outcome.end.time_ns - taken.meta.start_ns;
        let at_most = elapsed_ns * 999 / 1_000_000_000 + 1;
        assert!((at_most / 2..=at_most).contains(&cpu.fired), "{cpu:?}, not {at_most}");
    }
    assert!(taken.outcome.end.cpus.iter().any(|cpu| cpu.skipped > 0));
    let weights = taken.samples.iter().filter(|sample| sample.weight == 1_000_000_000 / 999);
    assert_eq!(weights.count(), taken.samples.len(), "each sample stands for one period");
    assert!(taken.outcome.end.own_cost.ring_bytes > 131_072 * taken.outcome.samples * 8 / 10);
}

/// Takes a number of bytes and then no more, like a full disk.
struct Full<'a> {
    room: usize,
    taken: &'a mut Vec<u8>,
}

impl Write for Full<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room - self.taken.len());
        if n == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.taken.extend(bytes.iter().take(n));
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Check that a full disk ends neither the command nor the balance: what was written stays readable, and the rest is
/// counted as dropped.
#[test]
fn full_disk() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let mut bytes = Vec::new();
    let request =
        Request { keep_raw_stacks: true, ..run(&program, &["1200"], CaptureMode::Dwarf { stack_bytes: 4096 }) };
    let stop = StopFlag::new().expect("a flag");
    let whole = record(&request, &mut bytes, &stop, &mut |_| {}).expect("recording works here");
    assert_eq!(whole.end.reason, EndReason::Exited(0));
    let mut cut = Vec::new();
    let sink = Full { room: bytes.len() / 2, taken: &mut cut };
    let outcome = record(&request, sink, &stop, &mut |_| {}).expect("a full disk is no error of recording");
    assert_balanced(&outcome);
    assert_eq!(outcome.end.reason, EndReason::WriteFailed(libc::ENOSPC));
    assert_eq!(outcome.target_status, Some(TargetStatus::Exited(0)));
    assert!(outcome.end.cpus.iter().map(|cpu| cpu.dropped).sum::<u64>() > 0);
    assert!(outcome.notes.contains(&fpprof_collector::Note::EndNotWritten(libc::ENOSPC)));
    let mut recording = Recording::open(io::Cursor::new(&cut)).expect("what was written can be read");
    let mut samples = 0;
    recording.samples(|_| samples += 1).expect("samples");
    assert_eq!(samples, outcome.samples);
}

/// Shows what has been written while the recording continues.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Check that encoding threads lose nothing, and that each thread's samples keep their order.
#[test]
fn samples_encoded_by_threads_balance() {
    let directory = directory();
    let program = build("threads", &["-pthread"], directory.path());
    let truth = directory.path().join("truth");
    let arguments = ["400", truth.to_str().expect("a path of ours")];
    let request = run(&program, &arguments, CaptureMode::Both { stack_bytes: 65_536, every: 1 });
    let taken = take(&Request { encoder_threads: Some(2), ..request });
    assert_eq!(taken.outcome.target_status, Some(TargetStatus::Exited(0)));
    let threads: BTreeSet<u32> = taken.samples.iter().map(|sample| sample.tid).collect();
    assert!(threads.len() >= 3, "each of the three burns for more than a tick: {:?}", taken.outcome);
    let mut last = BTreeMap::new();
    for sample in &taken.samples {
        let before = last.insert((sample.tid, sample.cpu), sample.time_ns).unwrap_or(0);
        assert!(before < sample.time_ns, "thread {} on CPU {}", sample.tid, sample.cpu);
    }
}

/// Check that a recording that is flushed on request then has all samples so far, with their balance.
#[test]
fn recordings_are_flushed_on_request() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let control = Arc::new(PartsControl::default());
    let of_program = run(&program, &["60000"], CaptureMode::Fp);
    let request = Request { parts_control: Some(Arc::clone(&control)), ..of_program };
    let stop = StopFlag::new().expect("a flag");
    let sink = Shared::default();
    let (mut requested, mut cut) = (None, Vec::new());
    record(&request, sink.clone(), &stop, &mut |update| {
        let Update::Progress(progress) = update else { return };
        if requested.is_none() && progress.samples >= 200 {
            requested = Some(progress.samples);
            control.request_flush();
        } else if requested.is_some() && !control.is_flush_requested() && cut.is_empty() {
            cut.clone_from(&sink.0.borrow());
            stop.stop(libc::SIGINT);
        }
    })
    .expect("recording works here");
    let recording = Recording::open(io::Cursor::new(&cut)).expect("what was written can be read");
    let cpus = &recording.checkpoint().expect("a checkpoint").cpus;
    let recorded: u64 = cpus.iter().map(|cpu| cpu.recorded).sum();
    assert!(Some(recorded) >= requested, "{recorded} of {requested:?}");
    assert!(recording.n_samples() >= recorded, "{} of {recorded}", recording.n_samples());
}

/// Check that a recording that breaks off, as when its recorder is killed, can be read up to its last flush, and
/// balances by cause: samples in flight do not count as dropped.
#[test]
fn broken_off_recordings_balance() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let request = run(&program, &["60000"], CaptureMode::Dwarf { stack_bytes: 65_536 });
    let stop = StopFlag::new().expect("a flag");
    let sink = Shared::default();
    let mut cut = Vec::new();
    let mut enough_since = None;
    record(&request, sink.clone(), &stop, &mut |update| {
        let Update::Progress(progress) = update else { return };
        if progress.samples >= 200 {
            enough_since.get_or_insert(progress.elapsed);
        }
        // What was there a second ago has been flushed.
        if enough_since.is_some_and(|since| progress.elapsed > since + Duration::from_millis(1200)) {
            cut.clone_from(&sink.0.borrow());
            stop.stop(libc::SIGINT);
        }
    })
    .expect("recording works here");
    let mut recording = Recording::open(io::Cursor::new(&cut)).expect("what was written can be read");
    assert_eq!(recording.end(), None);
    let mut tally = Tally::default();
    recording.samples(|sample| tally.observe(sample)).expect("samples");
    let cpus = balance(None, recording.checkpoint(), &tally);
    let recorded: u64 = cpus.iter().map(|cpu| cpu.recorded).sum();
    assert!(recorded >= 200, "{recorded} samples");
    for cpu in cpus {
        assert_eq!(cpu.dropped, 0, "{cpu:?}");
        let spoken_for = cpu.recorded + cpu.lost.values().sum::<u64>() + cpu.skipped + cpu.dropped;
        assert_eq!(cpu.fired, spoken_for, "{cpu:?}");
    }
}
