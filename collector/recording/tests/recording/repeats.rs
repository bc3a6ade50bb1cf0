//! Equal samples that are written once.

use crate::layout;
use crate::values::{end, fixed_sample, meta};
use fpprof_recording::model::{
    CaptureMode, CfiEnd, CfiFrame, Cgroup, Checkpoint, Comm, Event, Exit, Fork, FoundBy, FpFrame, Measure, Meta, Mmap,
    Sample, Sampling, Sideband,
};
use fpprof_recording::{Damage, Recording, RecordingWriter, Tally};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;

const REPEATS_COLUMN: usize = 28;
const APART_NS: u64 = 100;

fn aggregated_meta() -> Meta {
    let waits =
        Event { name: "off-cpu".into(), sampling: Sampling::Period(1), measure: Measure::Blocked { threshold_ns: 1 } };
    Meta {
        mode: CaptureMode::Cfi { stack_bytes: 65_528, verify: 100, frame_pointers: true },
        events: meta().events.into_iter().chain([waits]).collect(),
        aggregated_ns: Some(APART_NS),
        ..meta()
    }
}

/// One of a few stacks in one of a few threads.
fn walked(stack: u64, tid: u32) -> Sample {
    let found_by = |n: u64| if n * stack % 2 == 1 { FoundBy::FramePointer } else { FoundBy::Row };
    let frame = |n: u64| CfiFrame {
        address: 0x5555_0000_1000 + n * stack,
        cfa: 16 + n * 16,
        is_instruction: n == 0,
        found_by: found_by(n),
    };
    Sample {
        pid: tid / 10 * 10,
        tid,
        weight: 1,
        cpu_fired: 1,
        in_kernel: stack == 1,
        kernel: (0..stack % 3).map(|n| 0xffff_ffff_8100_0000 + n).collect(),
        user_fp: (0..stack % 2).map(|n| FpFrame { address: 0x5555_0000_1000 + n, frame_address: 0 }).collect(),
        cfi_frames: (0..3).map(frame).collect(),
        cfi_end: Some(CfiEnd::UndefinedRa),
        ..Sample::default()
    }
}

fn file(meta: &Meta, samples: &[Sample]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), meta).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
    writer.flush().unwrap();
    writer.into_inner()
}

fn read(file: Vec<u8>) -> (Vec<Sample>, Damage) {
    let mut recording = Recording::open(Cursor::new(file)).unwrap();
    let mut read = Vec::new();
    recording.samples(|sample| read.push(sample.clone())).unwrap();
    (read, recording.damage())
}

/// The times that are read for samples of one stack and thread with these times.
fn times_read(times: &[u64], sample: &Sample) -> Vec<u64> {
    let samples: Vec<Sample> = times.iter().map(|&time_ns| Sample { time_ns, ..sample.clone() }).collect();
    read(file(&aggregated_meta(), &samples)).0.iter().map(|sample| sample.time_ns).collect()
}

/// Check that equal samples are read as often as they were written, with the time of the first and the sum of their
/// weights, and that the last one of the CPU says how far the CPU had come.
#[test]
fn equal_samples_are_written_once() {
    let of = |number: u64, stack, weight| Sample {
        time_ns: 1000 + number * 7,
        cpu_fired: 10 + number,
        weight,
        ..walked(stack, 10)
    };
    let samples = [of(0, 1, 8), of(1, 2, 5), of(2, 1, 9), of(3, 1, 8), of(4, 1, 8), of(5, 2, 7)];
    let file = file(&aggregated_meta(), &samples);
    let block = layout::blocks(&file).into_iter().find(|block| block.kind == 3).unwrap();
    assert_eq!((block.items, block.parts[0].len()), (6, 2), "six samples, two rows");
    assert_eq!(block.parts[REPEATS_COLUMN], [0, 2 << 1, 2, 0, 1, 2 * 2, 2 * 28, 2 * 4]);
    let (read, damage) = read(file);
    assert!(damage.is_none());
    let expected = [(1000, 10, 8), (1000, 10, 8), (1000, 10, 8), (1000, 10, 9), (1007, 11, 5), (1035, 15, 7)];
    let found: Vec<_> = read.iter().map(|sample| (sample.time_ns, sample.cpu_fired, sample.weight)).collect();
    assert_eq!(found, expected);
}

/// Check that samples that are too far apart are written one by one, and so are all without the option.
#[test]
fn distant_samples_are_kept_apart() {
    let times = [1000, 1040, 1100, 1101, 1190, 1250];
    assert_eq!(times_read(&times, &walked(1, 10)), [1000, 1000, 1000, 1101, 1101, 1250]);
    let samples = times.map(|time_ns| Sample { time_ns, ..walked(1, 10) });
    let file = file(&Meta { aggregated_ns: None, ..aggregated_meta() }, &samples);
    assert!(layout::blocks(&file).iter().all(|block| block.kind != 3 || block.parts[REPEATS_COLUMN].is_empty()));
    assert_eq!(read(file).0, samples);
}

/// Check that copied stacks and waits are never taken for equal, and neither are samples that differ in what is lost.
#[test]
fn copies_and_waits_are_written_one_by_one() {
    let times = [1000, 1010, 1020];
    let copied = fixed_sample(3);
    let wait = Sample { event: 1, ..walked(1, 10) };
    let shed = Sample { shed_from: Some(65_528), ..walked(1, 10) };
    for sample in [copied, wait, shed] {
        assert_eq!(times_read(&times, &sample), times, "{sample:?}");
    }
    let samples = times.map(|time_ns| Sample { time_ns, cpu_lost: time_ns / 1010, ..walked(1, 10) });
    let (read, _) = read(file(&aggregated_meta(), &samples));
    assert_eq!(read.iter().map(|sample| sample.cpu_lost).collect::<Vec<_>>(), [0, 1, 1]);
}

/// Check that samples of a process that dumps compiled code are written one by one until it executes another program:
/// what is at an address then depends on the time.
#[test]
fn compiling_processes_are_not_aggregated() {
    let mut writer = RecordingWriter::new(Vec::new(), &aggregated_meta()).unwrap();
    let Sideband::Mmap(mmap) = event(900, 5, 10) else { panic!("a mapping") };
    writer.sideband(&Sideband::Mmap(Mmap { path: b"/tmp/jit-10.dump".to_vec(), ..mmap })).unwrap();
    for time_ns in [1000, 1010, 1020, 1030, 1040] {
        if time_ns == 1020 {
            writer.sideband(&event(1015, 3, 10)).unwrap();
        }
        writer.sample(&Sample { time_ns, ..walked(1, 10) }, None).unwrap();
    }
    writer.flush().unwrap();
    let times: Vec<u64> = read(writer.into_inner()).0.iter().map(|sample| sample.time_ns).collect();
    assert_eq!(times, [1000, 1010, 1020, 1020, 1040], "the last sample of a CPU has its own time");
}

/// What is done to a writer.
#[derive(Debug, Clone)]
enum Step {
    Sample(Box<Sample>),
    Event(Sideband),
    Flush,
}

/// Events of the processes and threads of [`walked`], at any time: ahead of samples, as they are read earlier.
fn event(time_ns: u64, kind: u32, tid: u32) -> Sideband {
    let pid = tid / 10 * 10;
    match kind {
        0 => Sideband::Fork(Fork { time_ns, pid, tid, parent_pid: pid, parent_tid: pid }),
        1 => Sideband::Exit(Exit { time_ns, pid, tid }),
        2 => Sideband::Comm(Comm { time_ns, pid, tid, comm: vec![b'x'], exec: false, start_ticks: 0 }),
        3 => Sideband::Comm(Comm { time_ns, pid, tid, comm: vec![b'x'], exec: true, start_ticks: 0 }),
        4 => Sideband::Cgroup(Cgroup { time_ns, pid, path: vec![b'/'], environment: Vec::new() }),
        _ => Sideband::Mmap(Mmap {
            time_ns,
            pid,
            tid,
            start: 0x5555_0000_0000,
            len: 0x2000,
            file_offset: 0,
            prot: 5,
            flags: 2,
            path: vec![b'/'],
            identity: Default::default(),
            synthesized: false,
        }),
    }
}

/// Samples and flushes in order of time; events before all samples that are not older.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = (0..30u64, 0..20u32, 0..3u64, prop::sample::select(vec![10u32, 11, 20, 21]), 0..2u32, 0..60u64);
    prop::collection::vec(one, 1..120).prop_map(|ones| {
        let mut time_ns = 1000;
        let mut counters: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let step = |(pause, kind, stack, tid, cpu, more): (u64, u32, u64, u32, u32, u64)| {
            time_ns += pause;
            match kind {
                0..6 => Step::Event(event(time_ns + 1 + more % 3 * 20, kind, tid)),
                6 => Step::Flush,
                _ => {
                    let (fired, lost) = counters.entry(cpu).or_default();
                    *lost += u64::from(more == 0);
                    *fired += 1 + more % 3;
                    let (weight, cpu_fired, cpu_lost) = (1 + more % 2, *fired, *lost);
                    Step::Sample(Box::new(Sample { time_ns, cpu, weight, cpu_fired, cpu_lost, ..walked(stack, tid) }))
                }
            }
        };
        ones.into_iter().map(step).collect()
    })
}

/// What must not change: the samples but for time, ticks and weight, with the sum of weights, apart by how many events
/// of their process or thread were before them.
fn sums(samples: &[Sample], events: &[Sideband]) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for sample in samples {
        let is_before = |event: &&Sideband| {
            let (pid, tid) = (sample.pid, sample.tid);
            let concerns = match event {
                Sideband::Mmap(event) => event.pid == pid,
                Sideband::Comm(event) => event.tid == tid || event.pid == pid && event.exec,
                Sideband::Fork(event) => event.tid == tid,
                Sideband::Exit(event) => event.tid == tid,
                Sideband::Cgroup(event) => event.pid == pid,
                Sideband::Module(_) => false,
            };
            concerns && event.time_ns() <= Some(sample.time_ns)
        };
        let epoch = events.iter().filter(is_before).count();
        let same = Sample { time_ns: 0, weight: 0, cpu_fired: 0, ..sample.clone() };
        let sum = sums.entry(format!("{epoch} {same:?}")).or_default();
        *sum = (sum.0 + 1, sum.1 + sample.weight);
    }
    sums
}

fn tally(samples: &[Sample]) -> Tally {
    let mut tally = Tally::default();
    samples.iter().for_each(|sample| tally.observe(sample));
    tally
}

fn latest(samples: &[Sample]) -> Option<u64> {
    samples.iter().map(|sample| sample.time_ns).max()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Check that an aggregated recording has the same samples with the same weights, none on the other side of an
    /// event of its process or further away than allowed, and the same counters; also one that breaks off at any flush.
    #[test]
    fn aggregated_recordings_have_the_same_sums(steps in steps(), n_workers in 0..3usize) {
        let mut writer = RecordingWriter::new(Vec::new(), &aggregated_meta()).unwrap();
        (0..n_workers).for_each(|_| writer.add_worker().unwrap());
        let (mut samples, mut events, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps.iter().chain([&Step::Flush]) {
            match step {
                Step::Sample(sample) => {
                    writer.hand_over(sample, None).unwrap();
                    samples.push(sample.as_ref().clone());
                }
                Step::Event(event) => {
                    writer.sideband(event).unwrap();
                    events.push(event.clone());
                }
                Step::Flush => {
                    let checkpoint = Checkpoint { cpus: end().cpus, ..Checkpoint::default() };
                    writer.checkpoint(&checkpoint).unwrap();
                    writer.flush().unwrap();
                    flushes.push((writer.bytes_written(), samples.len()));
                }
            }
        }
        let file = writer.into_inner();
        for (bytes, n_samples) in flushes {
            let written = &samples[..n_samples];
            let file = file[..usize::try_from(bytes).unwrap()].to_vec();
            let (read, damage) = read(file.clone());
            prop_assert!(damage.is_none());
            prop_assert_eq!(sums(&read, &events), sums(written, &events));
            prop_assert_eq!(tally(&read), tally(written));
            prop_assert_eq!(latest(&read), latest(written));
            let mut of_threads = Vec::new();
            let mut recording = Recording::open(Cursor::new(file)).unwrap();
            prop_assert_eq!(recording.n_samples(), n_samples as u64);
            recording.sampled(|pid, tid, time_ns| of_threads.push((pid, tid, time_ns))).unwrap();
            prop_assert_eq!(of_threads, read.iter().map(|s| (s.pid, s.tid, s.time_ns)).collect::<Vec<_>>());
        }
    }
}

/// A file with one sample and other contents of the column of repeats.
fn with_repeats(column: Vec<u8>, items: u32) -> Vec<u8> {
    let file = file(&aggregated_meta(), &[walked(1, 10)]);
    let block = layout::blocks(&file).into_iter().find(|block| block.kind == 3).unwrap();
    let mut parts = block.parts.clone();
    parts[REPEATS_COLUMN] = column;
    let mut bytes = layout::rebuilt(&file, &block, &parts);
    bytes[20..24].copy_from_slice(&items.to_le_bytes());
    layout::seal(&mut bytes);
    [&file[..block.offset], &bytes].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f | 0x80).unwrap());
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// Check that invalid numbers of repeats are damage, that valid ones are read, and that none keeps a reader busy long.
#[test]
fn hostile_numbers_of_repeats_are_refused() {
    let with_number =
        |repeats: u64, items| with_repeats([vec![0], varint((repeats - 1) << 1), vec![0]].concat(), items);
    let n_read = |file: Vec<u8>| {
        let mut recording = Recording::open(Cursor::new(file.clone())).unwrap();
        let mut n_sampled = 0_u64;
        recording.sampled(|_, _, _| n_sampled += 1).unwrap();
        let (mut n_samples, items) = (0_u64, recording.n_samples());
        recording.samples(|_| n_samples += 1).unwrap();
        let damage = recording.damage();
        assert_eq!(n_samples + damage.lost_samples, items);
        (n_samples, n_sampled, damage.malformed_blocks)
    };
    assert_eq!(n_read(with_number(2, 3)), (3, 3, 0));
    for (repeats, items) in [(3, 3), (1 << 60, 3), (1 << 62, u32::MAX), (u64::from(u32::MAX), u32::MAX)] {
        assert_eq!(n_read(with_number(repeats, items)), (0, 1, 1), "{repeats} of {items}");
    }
    let (n_samples, n_sampled, malformed) = n_read(with_number(u64::from(u32::MAX) - 1, u32::MAX));
    assert!(n_samples < 1 << 23 && n_sampled < 1 << 23 && malformed == 1, "{n_samples} {n_sampled}");
    assert_eq!(n_read(with_repeats(vec![0, 0], 2)), (0, 1, 1), "no weight");
    assert_eq!(n_read(with_repeats(vec![1, 0, 0], 1)), (1, 1, 1), "repeats of no row");
    assert_eq!(n_read(with_repeats(vec![0, 1, 0, 2], 2)), (0, 1, 1), "no ticks");
}
