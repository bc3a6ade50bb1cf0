//! Samples as the kernel lays them out.

use super::*;

const SP: u64 = 0x7000;

/// A sample with both: a callchain of `chain`, registers with frame pointer `fp`, and `copied` of the words of `stack`.
fn record(chain: &[u64], fp: u64, stack: &[u64], copied: u64) -> Vec<u8> {
    let mut words = vec![77, 0x1111, 11 << 32 | 10, 1234, 3, 1_001_001, chain.len() as u64];
    words.extend(chain);
    words.push(u64::from(bindings::PERF_SAMPLE_REGS_ABI_64));
    // ax bx cx dx si di bp sp ip r8…r15
    words.extend([1, 2, 3, 4, 5, 6, fp, SP, 0x1111, 8, 9, 10, 11, 12, 13, 14, 15]);
    words.push(stack.len() as u64 * 8);
    words.extend(stack);
    words.push(copied);
    let size = 8 + words.len() * 8;
    let mut bytes = bindings::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    bytes.extend(2u16.to_ne_bytes());
    bytes.extend(u16::try_from(size).expect("small").to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// ax to ip, and r8 to r15.
const REGS: u64 = 0x00ff_01ff;
const BOTH: SampleLayout = SampleLayout {
    period: None,
    has_chain: true,
    regs: REGS,
    has_stack: true,
    max_frames: 127,
    return_address_mask: u64::MAX,
};
const USER: u64 = bindings::PERF_CONTEXT_USER;
const KERNEL: u64 = bindings::PERF_CONTEXT_KERNEL;

fn decoded(bytes: &[u8]) -> Sample {
    let mut sample = Sample { stack: vec![1; 9], fp_end: FpEnd::MaxDepth, ..Sample::default() };
    decode(bytes, BOTH, &mut sample).expect("a sample");
    sample
}

/// Check that every part of a sample comes out, with registers in DWARF order, and that frames are located in the
/// copied stack.
#[test]
fn all_parts() {
    let stack = [0, 0, SP + 0x20, 0xaaaa, 0, 0xbbbb];
    let bytes = record(&[KERNEL, 0xffff_8000_0000_0001, USER, 0x1111, 0xaaaa, 0xbbbb], SP + 0x10, &stack, 48);
    assert_eq!((kind(&bytes), time_ns(&bytes)), (bindings::PERF_RECORD_SAMPLE, Some(1234)));
    let sample = decoded(&bytes);
    assert_eq!((sample.pid, sample.tid, sample.time_ns, sample.cpu, sample.weight), (10, 11, 1234, 3, 1_001_001));
    assert!(!sample.in_kernel);
    let regs = sample.user_regs.expect("registers");
    assert_eq!(regs.own(), [1, 4, 3, 2, 5, 6, SP + 0x10, SP, 8, 9, 10, 11, 12, 13, 14, 15, 0x1111]);
    assert_eq!(regs.abi, Abi::Bits64);
    assert_eq!(sample.kernel, [0xffff_8000_0000_0001]);
    let frame = |address, frame_address| FpFrame { address, frame_address };
    assert_eq!(sample.user_fp, [frame(0x1111, 0), frame(0xaaaa, SP + 0x10), frame(0xbbbb, SP + 0x20)]);
    assert_eq!((sample.fp_end, sample.stack.len()), (FpEnd::Zero, 48));
}

/// Check that samples without a period have that of the event.
#[test]
fn fixed_periods_are_not_in_samples() {
    let mut bytes = record(&[USER, 0x1111], SP, &[1, 2], 16);
    // After header, identifier, instruction pointer, thread, time and CPU.
    bytes.drain(48..56);
    let mut sample = Sample::default();
    decode(&bytes, SampleLayout { period: Some(7), ..BOTH }, &mut sample).expect("a sample");
    assert_eq!((sample.weight, sample.user_fp.len(), sample.stack.len()), (7, 1, 16));
}

/// Check that the requested registers come out without a stack, as with frame pointers on aarch64.
#[test]
fn registers_alone() {
    let mut bytes = record(&[], 0x7010, &[], 0);
    // Only the frame pointer, the stack pointer and the instruction pointer remain, and nothing follows.
    let regs_at = 8 + 8 * 8;
    bytes.drain(regs_at + 9 * 8..);
    bytes.drain(regs_at..regs_at + 6 * 8);
    let layout = SampleLayout { regs: 7 << 6, has_stack: false, ..BOTH };
    let mut sample = Sample::default();
    decode(&bytes, layout, &mut sample).expect("a sample");
    let regs = sample.user_regs.expect("registers");
    assert_eq!((regs.fp(), regs.sp(), regs.ip()), (0x7010, SP, 0x1111));
    assert_eq!(regs.own().iter().filter(|&&value| value != 0).count(), 3);
}

/// Check that a truncated copy has the bytes that were copied, and that frames beyond it, or in conflict with it, get
/// no location.
#[test]
fn frames_beyond_the_copy_have_no_location() {
    let stack = [0, 0, SP + 0x20, 0xaaaa, 0, 0xbbbb];
    let chain = [USER, 0x1111, 0xaaaa, 0xbbbb];
    let cut = decoded(&record(&chain, SP + 0x10, &stack, 40));
    assert_eq!(cut.stack.len(), 40);
    assert_eq!(cut.user_fp.iter().map(|frame| frame.frame_address).collect::<Vec<_>>(), [0, SP + 0x10, 0]);
    assert_eq!(cut.fp_end, FpEnd::Unknown);
    let other = decoded(&record(&[USER, 0x1111, 0xcccc], SP + 0x10, &stack, 48));
    assert_eq!(other.user_fp[1].frame_address, 0);
    let wild = decoded(&record(&chain, u64::MAX - 3, &stack, 48));
    assert!(wild.user_fp.iter().all(|frame| frame.frame_address == 0));
}

/// Check that a chain as long as the kernel walks counts as cut, kernel frames included.
#[test]
fn long_chains_are_cut() {
    let chain: Vec<u64> = [KERNEL, 1, 2, USER].into_iter().chain(1..126).collect();
    assert_eq!(decoded(&record(&chain, 0, &[], 0)[..]).fp_end, FpEnd::MaxDepth);
}

/// Check that records cut anywhere, and ones that claim more than they contain, are refused without a panic.
#[test]
fn cut_records_are_refused() {
    let whole = record(&[USER, 0x1111], SP, &[1, 2], 16);
    let mut sample = Sample::default();
    for len in 0..whole.len() {
        assert_eq!(decode(&whole[..len], BOTH, &mut sample), Err(BadRecord), "{len}");
        let _ = time_ns(&whole[..len]);
    }
    assert_eq!(decode(&record(&[USER], SP, &[1, 2], 17), BOTH, &mut sample), Err(BadRecord));
    for at in 7..whole.len() / 8 {
        let mut wrong = whole.clone();
        wrong[at * 8..at * 8 + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        let _ = decode(&wrong, BOTH, &mut sample);
    }
}
