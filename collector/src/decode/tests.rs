//! Records put together byte by byte.

use super::*;
use fpprof_recording::model::LossCause;
use std::mem::offset_of;

const HEAD: usize = size_of::<types::sample_head>();
const RING: RingId = RingId { cpu: 3, event: 1 };

/// A record built from parts, as the BPF program writes it.
struct Fixture {
    bytes: Vec<u8>,
}

impl Fixture {
    fn new() -> Self {
        Self { bytes: vec![0; HEAD] }
    }

    fn set(mut self, at: usize, value: &[u8]) -> Self {
        self.bytes[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn part(mut self, part: &[u8]) -> Self {
        self.bytes.extend_from_slice(part);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0xee);
        self
    }

    fn words(self, words: &[u64]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.part(&bytes)
    }

    fn decode(&self, keeps_regs: bool) -> Result<Sample, BadRecord> {
        self.decode_all(keeps_regs).map(|(sample, _)| sample)
    }

    fn decode_all(&self, keeps_regs: bool) -> Result<(Sample, Vec<Gap>), BadRecord> {
        let mut sample =
            Sample { stack: vec![9; 99], bytes_below_sp: 9, kernel: vec![9], shed_from: Some(9), ..Sample::default() };
        let mut gaps = Vec::new();
        decode(&self.bytes, RING, keeps_regs, &mut sample, &mut gaps).map(|_miss| (sample, gaps))
    }
}

macro_rules! at {
    ($field:ident) => {
        offset_of!(types::sample_head, $field)
    };
    (regs.$field:ident) => {
        offset_of!(types::sample_head, regs) + offset_of!(types::user_regs, $field)
    };
}

fn paired() -> Fixture {
    Fixture::new()
        .set(at!(flags), &3u16.to_ne_bytes())
        .set(at!(fp_end), &[1])
        .set(at!(stack_end_source), &[2])
        .set(at!(time_ns), &77u64.to_ne_bytes())
        .set(at!(pid), &5u32.to_ne_bytes())
        .set(at!(tid), &6u32.to_ne_bytes())
        .set(at!(weight), &1_001_001u64.to_ne_bytes())
        .set(at!(cpu_fired), &40u64.to_ne_bytes())
        .set(at!(cpu_lost), &2u64.to_ne_bytes())
        .set(at!(stack_end), &0x9000u64.to_ne_bytes())
        .set(at!(chunk_bytes), &13u32.to_ne_bytes())
        .set(at!(n_frames), &2u16.to_ne_bytes())
        .set(at!(n_kernel), &1u16.to_ne_bytes())
        .set(at!(regs.sp), &0x8ff0u64.to_ne_bytes())
        .set(at!(regs.ax), &1u64.to_ne_bytes())
        .set(at!(regs.ip), &0x401_000u64.to_ne_bytes())
        .part(b"thirteen byte")
        .words(&[0x401_000, 0, 0x402_000, 0x8ff8])
        .words(&[0xffff_ffff_8100_0000])
}

/// Check that every field lands where it belongs, that padding is not taken for content, and that nothing of the
/// previous value stays.
#[test]
fn paired_sample() {
    let sample = paired().decode(true).expect("a good record");
    let regs = sample.user_regs.expect("registers");
    assert_eq!((regs.abi, regs.ip(), regs.sp(), regs.values[0]), (Abi::Bits64, 0x401_000, 0x8ff0, 1));
    let expected = Sample {
        time_ns: 77,
        cpu: 3,
        pid: 5,
        tid: 6,
        event: 1,
        weight: 1_001_001,
        cpu_fired: 40,
        cpu_lost: 2,
        in_kernel: true,
        in_exec: false,
        entering_kernel: false,
        withheld: false,
        user_regs: sample.user_regs,
        user_fp: vec![
            FpFrame { address: 0x401_000, frame_address: 0 },
            FpFrame { address: 0x402_000, frame_address: 0x8ff8 },
        ],
        fp_end: FpEnd::Zero,
        kernel: vec![0xffff_ffff_8100_0000],
        stack: b"thirteen byte".to_vec(),
        bytes_below_sp: 0,
        stack_holes: vec![],
        stack_end: Some(StackEnd { address: 0x9000, source: StackEndSource::ThreadBase }),
        interrupted: None,
        cfi_frames: vec![],
        cfi_end: None,
        shed_from: None,
    };
    assert_eq!(sample, expected);
    assert_eq!(paired().decode(false).expect("a good record").user_regs, None);
}

/// Check that the frames of a walk come before everything else, with or without a copied stack, and that an abandoned
/// walk has none and reports the code it lacked.
#[test]
fn walks_by_call_frame_information() {
    let frames = [0x401_000, 0x8001, 0x402_000, 2].map(u64::to_ne_bytes).concat();
    let complete = paired().set(at!(n_cfi_frames), &2u16.to_ne_bytes()).set(at!(cfi_end), &[3]);
    let mut copied = complete;
    copied.bytes.splice(HEAD..HEAD, frames.clone());
    let sample = copied.decode(true).expect("a good record");
    let walked = [(0x401_000, 0x8000, true, FoundBy::Row), (0x402_000, 0, false, FoundBy::FramePointer)];
    let walked =
        walked.map(|(address, cfa, is_instruction, found_by)| CfiFrame { address, cfa, is_instruction, found_by });
    assert_eq!((sample.cfi_frames.as_slice(), sample.cfi_end), (&walked[..], Some(CfiEnd::ThreadStart)));
    assert_eq!((sample.stack.len(), sample.user_regs.is_some()), (13, true));

    let alone = Fixture::new().set(at!(flags), &3u16.to_ne_bytes()).set(at!(n_cfi_frames), &2u16.to_ne_bytes());
    let sample = alone.set(at!(cfi_end), &[1]).part(&frames).decode(true).expect("a good record");
    assert_eq!((sample.cfi_frames.len(), sample.cfi_end), (2, Some(CfiEnd::UndefinedRa)));
    assert_eq!(sample.user_regs, None);

    let missed = Fixture::new().set(at!(flags), &2051u16.to_ne_bytes()).set(at!(cfi_end), &[16]);
    let missed = missed.words(&[7, 8, 9, 0x40_1000, 0x1000, 0x40_0000, 0x50_0000, 11, 12]);
    let (mut sample, mut gaps) = (Sample::default(), Vec::new());
    let miss = decode(&missed.bytes, RING, true, &mut sample, &mut gaps).expect("a good record").expect("a miss");
    assert_eq!((miss.file.inode, miss.address, miss.offset, miss.end), (7, 0x40_1000, 0x1000, 0x50_0000));
    assert_eq!((miss.program.start_boottime, miss.program.exec_id), (11, 12));
    assert_eq!((sample.cfi_frames.len(), sample.cfi_end), (0, Some(CfiEnd::NoRule)));
}

/// Check that a cut chunk has its full size, and that losses before the sample come out by cause, without causes that
/// lost nothing.
#[test]
fn what_there_was_no_room_for() {
    let cut = |words: &[u64]| {
        paired().set(at!(asked_bytes), &700u32.to_ne_bytes()).set(at!(n_gaps), &[2]).words(words).decode_all(true)
    };
    let gap = |cause, (start_ns, end_ns, lost)| Gap { cpu: 3, event: 1, start_ns, end_ns, lost, cause };
    let (sample, gaps) = cut(&[10, 20, 5, 15, 15, 1]).expect("a good record");
    assert_eq!(sample.shed_from, Some(700));
    assert_eq!(gaps, [gap(LossCause::RingFull, (10, 20, 5)), gap(LossCause::TableFull, (15, 15, 1))]);
    let (_, gaps) = cut(&[0, 0, 0, 15, 16, 2]).expect("a good record");
    assert_eq!(gaps, [gap(LossCause::TableFull, (15, 16, 2))]);
    assert_eq!(cut(&[10, 20, 5, 15, 15]).err(), Some(BadRecord));
}

/// Check that padding between the head and the chunk is not part of the chunk.
#[test]
fn chunks_that_lie_as_their_stack_does() {
    let (aligned, mut skipped) = (paired(), paired().set(at!(n_skipped), &[40]));
    skipped.bytes.splice(HEAD..HEAD, [0xdd; 40]);
    assert_eq!(skipped.decode(true), aligned.decode(true));
    assert_eq!(aligned.set(at!(n_skipped), &[40]).decode(true), Err(BadRecord));
}

/// Check that a chunk with a red zone has the right start and holes, and so has one without.
#[test]
fn chunks_that_begin_below_the_stack_pointer() {
    let red_zone = NATIVE.red_zone_bytes();
    let record = paired().set(at!(flags), &131u16.to_ne_bytes());
    let sample = record.decode(true).expect("a good record");
    assert_eq!((sample.bytes_below_sp, sample.stack_start()), (red_zone, 0x8ff0 - u64::from(red_zone)));
    let sample = paired().decode(true).expect("a good record");
    assert_eq!((sample.bytes_below_sp, sample.stack_start()), (0, 0x8ff0));
}

/// Check that the stack interrupted by a signal handler has its holes and its end, and that it is known even if none of
/// it fit in.
#[test]
fn interrupted_stacks() {
    let record = |chunk_bytes: u32, n_hole_words: u32| {
        let mut record = Fixture::new().set(at!(flags), &258u16.to_ne_bytes());
        record.bytes.splice(at!(chunk_bytes)..at!(chunk_bytes) + 4, 5u32.to_ne_bytes());
        let sizes = u64::from(chunk_bytes) | u64::from(n_hole_words) << 32 | 1 << 48;
        record.part(b"five!").words(&[0x7f80, 0x9000, sizes])
    };
    let red_zone = NATIVE.red_zone_bytes();
    let stack_end = Some(StackEnd { address: 0x9000, source: StackEndSource::StartStack });
    let sample = record(200, 1).part(&[7; 200]).words(&[1]).decode(true).expect("a good record");
    assert_eq!(sample.stack, b"five!");
    let own = sample.interrupted.expect("another stack");
    let hole = ChunkHole { offset: 0, len: 0x80 + u32::from(red_zone) };
    let expected =
        Interrupted { sp: 0x7f80, stack: vec![7; 200], bytes_below_sp: red_zone, stack_holes: vec![hole], stack_end };
    assert_eq!(own, Interrupted { stack_holes: vec![ChunkHole { len: hole.len.min(200), ..hole }], ..expected });
    let sample = record(0, 0).decode(true).expect("a good record");
    assert_eq!(sample.interrupted, Some(Interrupted { sp: 0x7f80, stack_end, ..Interrupted::default() }));
    assert_eq!(record(200, 1).part(&[7; 200]).decode(true), Err(BadRecord));
}

/// Check that a thread inside `execve` has a kernel chain and no user stack.
#[test]
fn threads_inside_execve() {
    let record = Fixture::new().set(at!(flags), &17u16.to_ne_bytes()).set(at!(n_kernel), &1u16.to_ne_bytes());
    let sample = record.words(&[0xffff_ffff_8100_0000]).decode(true).expect("a good record");
    let kernel = vec![0xffff_ffff_8100_0000];
    assert_eq!(sample, Sample { cpu: 3, event: 1, in_kernel: true, in_exec: true, kernel, ..Sample::default() });
    assert!(!paired().decode(true).expect("a good record").in_exec);
}

/// Check that registers come in DWARF's order.
#[test]
fn registers_in_dwarf_order() {
    let mut record = Fixture::new().set(at!(flags), &2u16.to_ne_bytes());
    for (i, at) in [
        at!(regs.ax),
        at!(regs.dx),
        at!(regs.cx),
        at!(regs.bx),
        at!(regs.si),
        at!(regs.di),
        at!(regs.bp),
        at!(regs.sp),
        at!(regs.r8),
        at!(regs.r9),
        at!(regs.r10),
        at!(regs.r11),
        at!(regs.r12),
        at!(regs.r13),
        at!(regs.r14),
        at!(regs.r15),
        at!(regs.ip),
    ]
    .into_iter()
    .enumerate()
    {
        record = record.set(at, &(100 + i as u64).to_ne_bytes());
    }
    let regs = record.decode(true).expect("a good record").user_regs.expect("registers");
    assert!(regs.own().iter().copied().eq(100..117), "{regs:?}");
}

/// Check that a record cut anywhere is refused, and so is one that claims more than there is.
#[test]
fn cut_records_are_refused() {
    let whole = paired();
    for len in 0..whole.bytes.len() {
        let cut = Fixture { bytes: whole.bytes[..len].to_vec() };
        assert_eq!(cut.decode(true), Err(BadRecord), "cut to {len} bytes");
    }
    for (at, value) in [(at!(chunk_bytes), u32::MAX.to_ne_bytes().as_slice()), (at!(n_kernel), &[0xff, 0xff])] {
        assert_eq!(paired().set(at, value).decode(true), Err(BadRecord));
    }
}

fn holes(sp: u64, chunk_bytes: u32, bitmap: &[u64]) -> Vec<(u32, u32)> {
    let bytes: Vec<u8> = bitmap.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut holes = Vec::new();
    append_holes(&bytes, sp, chunk_bytes, &mut holes);
    holes.iter().map(|hole: &ChunkHole| (hole.offset, hole.len)).collect()
}

/// Check that pages become ranges of the chunk: adjacent ones joined, the first and the last page cut to the chunk, and
/// the second word of the bitmap continuing the first.
#[test]
fn holes_are_ranges() {
    assert_eq!(holes(0x1000, 0x4000, &[0b0110]), [(0x1000, 0x2000)]);
    assert_eq!(holes(0x1ff8, 0x4000, &[0b0001]), [(0, 8)]);
    assert_eq!(holes(0x1ff8, 0x4000, &[0b1_0010]), [(8, 0x1000), (0x3008, 0xff8)]);
    assert_eq!(holes(0, 65 << 12, &[1 << 63, 1]), [(63 << 12, 0x2000)]);
    assert_eq!(holes(0x1000, 0x1000, &[u64::MAX]), [(0, 0x1000)]);
    assert_eq!(holes(0x1000, 0x1000, &[]), []);
}

/// Check that unknown sources and ends decode as unknown.
#[test]
fn unknown_values() {
    assert_eq!(stack_end(0x1000, 0), None);
    assert_eq!(stack_end(0x1000, 200), None);
    assert_eq!(fp_end(0), FpEnd::Unknown);
    assert_eq!(fp_end(200), FpEnd::Unknown);
    assert_eq!(fp_end(5), FpEnd::MaxDepth);
}
