//! Golden files: the format cannot change unnoticed.

use crate::layout;
use crate::values::{aarch64_meta, end, fixed_gap, fixed_sample, meta, on_aarch64};
use fpprof_recording::model::{
    BuildId, CfiEnd, CfiFrame, Cgroup, Checkpoint, ChunkHole, Comm, Exit, FileIdentity, Fork, FoundBy, FpEnd, FpFrame,
    Gap, Interrupted, Meta, Mmap, ModuleBytes, Sample, Sideband, StackEnd, StackEndSource,
};
use fpprof_recording::{MappingRanges, Recording, RecordingWriter};
use std::io::Cursor;
use std::path::PathBuf;

fn events() -> Vec<Sideband> {
    let identity = FileIdentity {
        dev_major: 8,
        dev_minor: 1,
        inode: 1234,
        inode_generation: 5,
        build_id: BuildId::new(&[0xab; 20]),
    };
    vec![
        Sideband::Mmap(Mmap {
            time_ns: 1_000,
            pid: 7,
            tid: 7,
            start: 0x5555_0000_0000,
            len: 0x2000,
            file_offset: 0x1000,
            prot: 5,
            flags: 2,
            path: b"/usr/bin/true".to_vec(),
            identity,
            synthesized: true,
        }),
        Sideband::Comm(Comm { time_ns: 1_500, pid: 7, tid: 8, comm: b"true".to_vec(), exec: true, start_ticks: 99 }),
        Sideband::Fork(Fork { time_ns: 1_400, pid: 9, tid: 9, parent_pid: 7, parent_tid: 8 }),
        Sideband::Exit(Exit { time_ns: 2_000, pid: 9, tid: 9 }),
        Sideband::Module(ModuleBytes { path: b"[vdso]".to_vec(), identity, bytes: vec![0x7f, b'E', b'L', b'F'] }),
    ]
}

fn samples() -> Vec<Sample> {
    let mut with_hole = fixed_sample(5);
    with_hole.stack[32..40].fill(0);
    with_hole.stack_holes = vec![ChunkHole { offset: 32, len: 8 }];
    with_hole.user_fp.push(FpFrame { address: 0x5555_0000_2000, frame_address: 0 });
    let kernel_thread = Sample { pid: 2, tid: 2, cpu: 1, in_kernel: true, kernel: vec![3, 5], ..Sample::default() };
    vec![fixed_sample(3), fixed_sample(4), with_hole, kernel_thread, fixed_sample(8)]
}

/// Samples that version 1 could not represent.
fn newer_samples() -> Vec<Sample> {
    let shed = |number| Sample { shed_from: Some(65_528), ..fixed_sample(number) };
    let on_alternate_stack = Sample {
        stack_end: Some(StackEnd { address: 0x6000_0001_0000, source: StackEndSource::AltStack }),
        ..fixed_sample(10)
    };
    vec![shed(11), fixed_sample(12), shed(13), shed(14), on_alternate_stack]
}

/// Samples that versions 1 and 2 could not represent.
fn samples_in_exec() -> Vec<Sample> {
    let in_exec = |kernel| Sample {
        in_kernel: true,
        in_exec: true,
        kernel,
        user_regs: None,
        user_fp: vec![],
        fp_end: FpEnd::Unknown,
        stack: vec![],
        stack_end: None,
        ..fixed_sample(15)
    };
    vec![in_exec(vec![]), in_exec(vec![3, 5]), fixed_sample(16)]
}

/// Samples that versions before 4 could not represent.
fn samples_with_red_zone() -> Vec<Sample> {
    let with_red_zone = |number, bytes_below_sp| {
        let sample = fixed_sample(number);
        let below: Vec<u8> = (0..u64::from(bytes_below_sp) / 8).flat_map(|word| (word % 5).to_le_bytes()).collect();
        Sample { stack: [below, sample.stack].concat(), bytes_below_sp, ..sample }
    };
    vec![with_red_zone(17, 128), fixed_sample(18), with_red_zone(19, 128), with_red_zone(20, 8)]
}

/// Samples that versions before 5 could not represent.
fn samples_with_interrupted_stack() -> Vec<Sample> {
    let with_interrupted = |number, n_bytes: usize| {
        let sample = fixed_sample(number);
        let sp = 0x7ffe_0000_0ff0 + number * 16;
        let mut interrupted = Interrupted {
            sp,
            stack: sample.stack.iter().copied().take(n_bytes).collect(),
            bytes_below_sp: 8,
            stack_holes: vec![],
            stack_end: Some(StackEnd { address: sp + 0x100, source: StackEndSource::StartStack }),
        };
        if number == 23 {
            interrupted.stack[8..16].fill(0);
            (interrupted.stack_holes, interrupted.stack_end) = (vec![ChunkHole { offset: 8, len: 8 }], None);
        }
        Sample { interrupted: Some(interrupted), ..sample }
    };
    vec![with_interrupted(21, 64), fixed_sample(22), with_interrupted(23, 48), with_interrupted(24, 0)]
}

/// Samples that versions before 6 could not represent.
fn samples_withheld() -> Vec<Sample> {
    let withheld = |number| {
        let sample = fixed_sample(number);
        let user_regs = sample.user_regs.map(|regs| regs.pointers());
        Sample { withheld: true, user_regs, stack: vec![], ..sample }
    };
    vec![withheld(25), fixed_sample(26), withheld(27)]
}

/// Samples that versions before 7 could not represent: two walks of one stack at two depths, one of a single frame, and
/// one that was given up.
fn samples_with_walks() -> Vec<Sample> {
    let walked = |number, addresses: &[u64], cfa: u64, cfi_end| {
        let last = addresses.len().saturating_sub(1);
        let frame = |(n, &address): (usize, &u64)| {
            let cfa = if n == last { 0 } else { cfa + 48 * n as u64 };
            CfiFrame { address, cfa, is_instruction: n == 0, found_by: FoundBy::Row }
        };
        let cfi_frames = addresses.iter().enumerate().map(frame).collect();
        let sample = Sample { user_regs: None, stack: vec![], user_fp: vec![], ..fixed_sample(number) };
        Sample { cfi_frames, cfi_end: Some(cfi_end), fp_end: FpEnd::Unknown, ..sample }
    };
    let stack = [0x5555_0000_1000, 0x5555_0000_1234, 0x5555_0000_1400];
    vec![
        walked(28, &stack, 0x7ffd_0000_1010, CfiEnd::UndefinedRa),
        fixed_sample(29),
        walked(30, &stack, 0x7ffd_0000_0010, CfiEnd::ThreadStart),
        walked(31, &stack[..1], 0, CfiEnd::Start),
        Sample { cfi_end: Some(CfiEnd::NoRule), ..fixed_sample(32) },
    ]
}

/// Samples that versions before 9 could not represent: a walk through two signal frames, from an alternate stack to one
/// below it and on in the same stack, with frames found by frame pointers and by the end of the stack.
fn samples_with_signals() -> Vec<Sample> {
    let mut samples = samples_with_walks();
    samples.truncate(3);
    let cfas = [0x7ffd_0000_1010, 0x7ffc_0000_2000, 0x7ffc_0000_2040, 0x7ffc_0000_3000, 0];
    let found_by = [FoundBy::Row, FoundBy::FramePointer, FoundBy::Row, FoundBy::FramePointer, FoundBy::LastWord];
    let frame = |((n, cfa), found_by): ((u64, u64), FoundBy)| CfiFrame {
        address: 0x5555_0000_1000 + n,
        cfa,
        is_instruction: n == 0 || n == 2,
        found_by,
    };
    for (sample, time) in samples.iter_mut().zip(33..) {
        sample.time_ns = fixed_sample(time).time_ns;
    }
    if let Some(sample) = samples.get_mut(2) {
        sample.cfi_frames = (0..).zip(cfas).zip(found_by).map(frame).collect();
    }
    samples
}

/// Events that versions before 8 could not represent.
fn newer_events() -> Vec<Sideband> {
    let cgroup =
        |time_ns, path: &str| Sideband::Cgroup(Cgroup { time_ns, pid: 9, path: path.into(), ..Cgroup::default() });
    vec![cgroup(1_600, "/system.slice/true.service"), cgroup(1_700, "/")]
}

/// The same, and what versions before 9 could not represent: a variable with a value, and one that could not be read.
fn newest_events() -> Vec<Sideband> {
    let environment = b"TEAM=web\0ROLE\0".to_vec();
    let cgroup = Cgroup { time_ns: 1_800, pid: 9, path: "/".into(), environment };
    newer_events().into_iter().chain([Sideband::Cgroup(cgroup)]).collect()
}

fn file() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    events().iter().chain(&newest_events()).for_each(|event| writer.sideband(event).unwrap());
    samples().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    let checkpoint = Checkpoint { time_ns: 8_000, cpus: end().cpus, ..Checkpoint::default() };
    writer.checkpoint(&checkpoint).unwrap();
    let ranges: MappingRanges = [(0x5555_0000_0000, 0x5555_0000_2000)].into_iter().collect();
    writer.sample(&fixed_sample(9), Some(&ranges)).unwrap();
    newer_samples().iter().chain(&samples_in_exec()).for_each(|sample| writer.sample(sample, None).unwrap());
    samples_with_red_zone().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    samples_with_interrupted_stack().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    samples_withheld().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    samples_with_walks().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    samples_with_signals().iter().for_each(|sample| writer.sample(sample, None).unwrap());
    (0..4).for_each(|number| writer.gap(&fixed_gap(number)).unwrap());
    writer.finish(&end()).unwrap();
    writer.into_inner()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recording/golden").join(name)
}

fn compare_or_bless(name: &str, found: &[u8]) -> Vec<u8> {
    if std::env::var_os("FPPROF_BLESS").is_some() {
        std::fs::create_dir_all(path("")).unwrap();
        std::fs::write(path(name), found).unwrap();
    }
    std::fs::read(path(name)).unwrap()
}

/// Check that what is written now has the bytes of the golden file, by block and part (except for packing, which is up
/// to zstd). A difference requires a new format version, unless older readers read the new bytes correctly.
#[test]
fn written_bytes_are_the_golden_ones() {
    let found = layout::dump(&file());
    let golden = String::from_utf8(compare_or_bless("version9.txt", found.as_bytes())).unwrap();
    for (number, (found, golden)) in found.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, golden, "version9.txt line {}", number + 1);
    }
    assert_eq!(found.len(), golden.len());
}

/// Check that golden files of this and earlier format versions can be read.
#[test]
fn golden_files_are_read() {
    let gaps: Vec<Gap> = (0..4).map(fixed_gap).collect();
    let (its_gaps, mut samples) = read(compare_or_bless("version9.bin", &file()), &newest_events());
    assert_eq!(samples.split_off(30), samples_with_signals());
    assert_eq!(
        read(std::fs::read(path("version8.bin")).unwrap(), &newer_events()),
        (its_gaps.clone(), samples.clone())
    );
    let read = |golden| read(golden, &[]);
    assert_eq!(read(std::fs::read(path("version7.bin")).unwrap()), (its_gaps.clone(), samples.clone()));
    assert_eq!((its_gaps, samples.split_off(25)), (gaps.clone(), samples_with_walks()));
    assert_eq!(read(std::fs::read(path("version6.bin")).unwrap()), (gaps.clone(), samples.clone()));
    assert_eq!(samples.split_off(22), samples_withheld());
    assert_eq!(read(std::fs::read(path("version5.bin")).unwrap()), (gaps.clone(), samples.clone()));
    assert_eq!(samples.split_off(18), samples_with_interrupted_stack());
    assert_eq!(read(std::fs::read(path("version4.bin")).unwrap()), (gaps.clone(), samples.clone()));
    assert_eq!(samples.split_off(14), samples_with_red_zone());
    assert_eq!(read(std::fs::read(path("version3.bin")).unwrap()), (gaps.clone(), samples.clone()));
    assert_eq!(samples.split_off(11), samples_in_exec());
    assert_eq!(read(std::fs::read(path("version2.bin")).unwrap()), (gaps, samples.clone()));
    assert_eq!(samples.split_off(6), newer_samples());
    assert_eq!(read(std::fs::read(path("version1.bin")).unwrap()), (vec![], samples));
}

/// Gaps and samples of a file, after checking what is the same in all versions except for `newer` events.
fn read(golden: Vec<u8>, newer: &[Sideband]) -> (Vec<Gap>, Vec<Sample>) {
    let mut recording = Recording::open(Cursor::new(golden)).unwrap();
    assert_eq!((recording.meta(), recording.end()), (&meta(), Some(&end())));
    assert_eq!(recording.checkpoint().unwrap().time_ns, 8_000);
    let mut read_events = Vec::new();
    recording.sideband(|event| read_events.push(event.clone())).unwrap();
    assert_eq!(read_events, [&*events(), newer].concat());
    let mut read_samples = Vec::new();
    recording.samples(|sample| read_samples.push(sample.clone())).unwrap();
    assert_eq!(read_samples[..5], samples());
    assert!(read_samples.len() >= 6);
    let mut gaps = Vec::new();
    recording.gaps(|gap| gaps.push(*gap)).unwrap();
    assert!(recording.damage().is_none());
    (gaps, read_samples)
}

/// Check the same for what versions before 4 could not represent: the registers of aarch64, and signed return
/// addresses, from which the frame-pointer chain follows.
#[test]
fn golden_file_of_aarch64() {
    let samples: Vec<Sample> = samples().into_iter().map(on_aarch64).collect();
    let mut writer = RecordingWriter::new(Vec::new(), &aarch64_meta()).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
    writer.finish(&end()).unwrap();
    let file = writer.into_inner();
    let found = layout::dump(&file);
    assert_eq!(found, String::from_utf8(compare_or_bless("version9-aarch64.txt", found.as_bytes())).unwrap());
    let older = [8, 7, 6, 5, 4].map(|version| std::fs::read(path(&format!("version{version}-aarch64.bin"))).unwrap());
    for golden in older.into_iter().chain([compare_or_bless("version9-aarch64.bin", &file)]) {
        let mut recording = Recording::open(Cursor::new(golden)).unwrap();
        assert_eq!(recording.meta(), &aarch64_meta());
        let mut read = Vec::new();
        recording.samples(|sample| read.push(sample.clone())).unwrap();
        assert_eq!(read, samples);
    }
    let blocks = layout::blocks(&file);
    let predicted = &blocks.iter().find(|block| block.kind == 3).unwrap().parts[17];
    assert_eq!(predicted[0], 6 * 2 + 1, "both frames follow, and the end is a zero");
}

/// Check the same for what versions before 9 could not represent: equal samples that are written once. Those with
/// copied stacks are not.
#[test]
fn golden_file_of_equal_samples() {
    let aggregated = Meta { aggregated_ns: Some(1_000_000_000), ..meta() };
    let mut writer = RecordingWriter::new(Vec::new(), &aggregated).unwrap();
    let later = |sample: Sample, by: u64| {
        let (time_ns, cpu_fired, cpu_lost) = (sample.time_ns + by * 1000, 40 + by, 3);
        Sample { time_ns, cpu_fired, cpu_lost, weight: sample.weight + by, ..sample }
    };
    for by in 0..3 {
        samples_with_walks().into_iter().for_each(|sample| writer.sample(&later(sample, by), None).unwrap());
    }
    writer.finish(&end()).unwrap();
    let file = writer.into_inner();
    let found = layout::dump(&file);
    assert_eq!(found, String::from_utf8(compare_or_bless("version9-aggregated.txt", found.as_bytes())).unwrap());
    let golden = compare_or_bless("version9-aggregated.bin", &file);
    let mut recording = Recording::open(Cursor::new(golden)).unwrap();
    assert_eq!(recording.meta(), &aggregated);
    let mut read = Vec::new();
    recording
        .samples(|sample| read.push((sample.time_ns / 1000, sample.weight - 1_001_001, sample.cpu_fired)))
        .unwrap();
    // The last sample of a CPU, here CPU 1, has its own time and ticks. A weight is the rest of the sum: 1 + 2.
    let row = |time| [(time, 0, 40), (time, 1, 40), (time, 2, 40)];
    let walks = [row(28_000), [(30_000, 0, 40), (30_000, 1, 40), (30_002, 2, 42)], row(31_000)].concat();
    let copies = [(29_000, 0, 40), (32_000, 0, 40), (29_001, 1, 41), (32_001, 1, 41), (29_002, 2, 42), (32_002, 2, 42)];
    read.sort_by_key(|&(time, ..)| (time / 1000, time));
    let mut expected = [walks, copies.to_vec()].concat();
    expected.sort_by_key(|&(time, ..)| (time / 1000, time));
    assert_eq!(read, expected);
}

/// Check that a sample with the registers of another architecture is refused, and the recording stays valid.
#[test]
fn foreign_registers_are_refused() {
    let mut writer = RecordingWriter::new(Vec::new(), &aarch64_meta()).unwrap();
    let refused = writer.sample(&fixed_sample(3), None).unwrap_err();
    assert_eq!(refused.to_string(), "a sample has x86_64 registers, but the recording is from aarch64");
    writer.sample(&on_aarch64(fixed_sample(3)), None).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(Recording::open(Cursor::new(writer.into_inner())).unwrap().n_samples(), 1);
}

/// Check that the same input gives the same bytes.
#[test]
fn same_input_gives_same_bytes() {
    assert_eq!(file(), file());
}
