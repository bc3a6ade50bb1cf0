//! Scrubbing: pointers are kept, everything else is removed.

use crate::values::{arbitrary_sample, end, meta};
use fpprof_recording::model::{
    Abi, Arch, ChunkHole, FpEnd, FpFrame, Interrupted, Sample, StackEnd, StackEndSource, UserRegs,
};
use fpprof_recording::{MappingRanges, Recording, RecordingWriter};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;

const SECRET: u64 = 0x7465_7263_6553_7365;
const SP: u64 = 0x7ffd_0000_1000;
const CODE: u64 = 0x5555_0000_0000;

fn ranges() -> MappingRanges {
    [(CODE, CODE + 0x1000), (0x0804_8000, 0x0805_0000)].into_iter().collect()
}

fn written(samples: &[Sample], scrub: Option<&MappingRanges>) -> Vec<Sample> {
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample, scrub).unwrap());
    writer.finish(&end()).unwrap();
    let mut read = Vec::new();
    let mut recording = Recording::open(Cursor::new(writer.into_inner())).unwrap();
    recording.samples(|sample| read.push(sample.clone())).unwrap();
    assert!(recording.damage().is_none());
    read
}

fn sample(words: &[u64], abi: Abi) -> Sample {
    let mut values = [SECRET; 17];
    values[3] = CODE + 8;
    values[6] = SP + 16;
    values[7] = SP;
    values[16] = SECRET ^ 1;
    Sample {
        pid: 1,
        tid: 1,
        user_regs: Some(UserRegs::new(Arch::X86_64, abi, &values)),
        stack: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        ..Sample::default()
    }
}

fn words(sample: &Sample) -> Vec<u64> {
    sample.stack.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Check that code and stack pointers are kept, and that secrets, small numbers and the ends of ranges are not.
#[test]
fn pointers_stay_and_the_rest_is_zero() {
    let stack = [CODE, SECRET, SP, SP + 63, SP + 64, 17, CODE + 0xfff, CODE + 0x1000];
    let read = written(&[sample(&stack, Abi::Bits64)], Some(&ranges()));
    assert_eq!(words(&read[0]), [CODE, 0, SP, SP + 63, 0, 0, CODE + 0xfff, 0]);
    let read_regs = read[0].user_regs.unwrap();
    let regs = read_regs.own();
    assert_eq!((regs[3], regs[6], regs[7], regs[16]), (CODE + 8, SP + 16, SP, SECRET ^ 1));
    assert_eq!(regs.iter().filter(|&&value| value == 0).count(), 13);
}

/// Check that below the stack pointer only words that point into the stack above it are kept.
#[test]
fn red_zones_are_scrubbed() {
    let stack = [CODE, SECRET, SP - 16, SP + 8, SP + 0x100, CODE, SECRET];
    let with_red_zone = Sample { bytes_below_sp: 40, ..sample(&stack, Abi::Bits64) };
    let read = written(std::slice::from_ref(&with_red_zone), Some(&ranges()));
    assert_eq!((read[0].bytes_below_sp, words(&read[0])), (40, vec![0, 0, 0, SP + 8, 0, CODE, 0]));
    let stack_end = Some(StackEnd { address: SP + 0x200, source: StackEndSource::Mapping });
    let read = written(&[Sample { stack_end, ..with_red_zone }], Some(&ranges()));
    assert_eq!(words(&read[0]), [0, 0, 0, SP + 8, SP + 0x100, CODE, 0]);
}

/// Check that without ranges nothing is changed.
#[test]
fn raw_stacks_are_kept_when_asked_for() {
    let sample = sample(&[SECRET, CODE, 17], Abi::Bits64);
    assert_eq!(written(std::slice::from_ref(&sample), None), [sample]);
}

/// Check that 32-bit code is judged by 4-byte words.
#[test]
fn words_of_32_bit_code_have_four_bytes() {
    let stack = [0x0804_8010_0804_9000, 0x0804_8010_1234_5678, SECRET];
    let read = written(&[sample(&stack, Abi::Bits32)], Some(&ranges()));
    assert_eq!(words(&read[0]), [0x0804_8010_0804_9000, 0x0804_8010_0000_0000, 0]);
}

/// Check that of a 32-bit stack the words that point into it are kept, up to its end but no further than a stack's
/// maximum size, however large its mapping is; and if its end is not known, words that point into the chunk, or without
/// a chunk near the stack pointer.
#[test]
fn words_of_32_bit_code_point_into_their_stack() {
    const SP: u64 = 0xa000_0000;
    const MIB: u64 = 1 << 20;
    let ends = [(Some(SP + MIB), SP + MIB), (Some(SP + 1000 * MIB), SP + 8 * MIB), (None, SP + 32)];
    for (address, first_above) in ends {
        let stack: Vec<u32> = [SP, SP + 31, first_above - 1, first_above, SP - 1, 0x0804_8010, 0x7465_7263, 0]
            .map(|word| u32::try_from(word).unwrap())
            .to_vec();
        let mut narrow = sample(&[], Abi::Bits32);
        narrow.stack = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        narrow.stack_end = address.map(|address| StackEnd { address, source: StackEndSource::Mapping });
        let regs = narrow.user_regs.as_mut().unwrap();
        (regs.values[7], regs.values[6], regs.values[3]) = (SP, first_above - 1, first_above);
        let read = written(&[narrow], Some(&ranges()));
        let kept: Vec<u32> =
            read[0].stack.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let expected: Vec<u32> =
            stack.iter().enumerate().map(|(at, &word)| [word, 0][usize::from(matches!(at, 3 | 4 | 6))]).collect();
        assert_eq!(kept, expected, "{address:x?}");
        let regs = read[0].user_regs.unwrap();
        assert_eq!((regs.values[6], regs.values[3]), (first_above - 1, 0));
    }
    let near = |above: u64| FpFrame { address: 0x0804_8010, frame_address: SP + above };
    let mut narrow = Sample { user_fp: vec![near(0), near(0xffff), near(0x1_0000)], ..sample(&[], Abi::Bits32) };
    narrow.user_regs.as_mut().unwrap().values[7] = SP;
    let read = written(&[narrow], Some(&ranges()));
    assert_eq!(read[0].user_fp.iter().map(|frame| frame.frame_address).collect::<Vec<_>>(), [SP, SP + 0xffff, 0]);
}

/// Check that a secret is not kept in a word that is only partly in the chunk: after an odd stack pointer, before the
/// chunk's end and beside a hole.
#[test]
fn parts_of_words_do_not_pass() {
    let mut odd = sample(&[SECRET; 6], Abi::Bits64);
    odd.user_regs.as_mut().unwrap().values[7] = SP + 3;
    odd.stack.truncate(43);
    odd.stack_holes = vec![ChunkHole { offset: 16, len: 3 }];
    let read = written(&[odd.clone()], Some(&ranges()));
    assert_eq!(read[0].stack, [0; 43]);
    assert_eq!(read[0].stack_holes, odd.stack_holes);
}

/// Check that the two stacks of a thread in a signal handler are scrubbed by one rule: words that point from one into
/// the other are kept, and below each stack pointer only those that point from there up to the end of the same stack.
#[test]
fn both_stacks_of_a_handler_are_scrubbed() {
    const OTHER: u64 = 0x6000_0000_1000;
    let own = |words: &[u64]| Interrupted {
        sp: OTHER,
        stack: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        bytes_below_sp: 16,
        ..Interrupted::default()
    };
    let interrupted = Some(own(&[SECRET, OTHER + 8, SP, CODE, SECRET, OTHER]));
    let read = written(
        &[Sample { interrupted, ..sample(&[OTHER + 8, SECRET, OTHER + 0x1000], Abi::Bits64) }],
        Some(&ranges()),
    );
    assert_eq!(words(&read[0]), [OTHER + 8, 0, 0]);
    assert_eq!(read[0].interrupted, Some(own(&[0, OTHER + 8, SP, CODE, 0, OTHER])));
    let interrupted = Some(own(&[CODE, SP, 0, 0, 0, 0]));
    let read = written(&[Sample { interrupted, ..sample(&[0], Abi::Bits64) }], Some(&ranges()));
    assert_eq!(read[0].interrupted, Some(own(&[0; 6])));
}

/// Check that garbage in a frame-pointer chain is removed too, and that the sampled instruction is kept.
#[test]
fn chains_are_scrubbed() {
    let mut sample = sample(&[0; 4], Abi::Bits64);
    let frame = |address, frame_address| FpFrame { address, frame_address };
    sample.user_fp = vec![frame(SECRET ^ 1, 0), frame(CODE, SP + 8), frame(SECRET, SECRET)];
    sample.fp_end = FpEnd::NotAscending;
    let read = written(&[sample], Some(&ranges()));
    assert_eq!(read[0].user_fp, [frame(SECRET ^ 1, 0), frame(CODE, SP + 8), frame(0, 0)]);
}

/// Check that a pointer into a mapping that becomes known late is zero before and present afterwards, although the word
/// itself did not change.
#[test]
fn mappings_may_become_known_late() {
    let sample = sample(&[CODE, 0x6666_0000_0010], Abi::Bits64);
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    let mut ranges = ranges();
    writer.sample(&sample, Some(&ranges)).unwrap();
    ranges.insert(0x6666_0000_0000, 0x6666_0000_1000);
    writer.sample(&sample, Some(&ranges)).unwrap();
    writer.flush().unwrap();
    let mut read = Vec::new();
    let mut recording = Recording::open(Cursor::new(writer.into_inner())).unwrap();
    recording.samples(|sample| read.push(words(sample))).unwrap();
    assert_eq!(read, [vec![CODE, 0], vec![CODE, 0x6666_0000_0010]]);
}

/// The rule in its simplest form. A word that equals the one written before at its address is kept, mapped or not.
#[derive(Default)]
struct Rule {
    written: HashMap<(u32, u64), u64>,
}

impl Rule {
    fn apply(&mut self, sample: &Sample, ranges: &MappingRanges) -> Sample {
        let mut expected = sample.clone();
        let range = |start: u64, bytes: &[u8]| start..start.saturating_add(bytes.len() as u64);
        let chunk = range(sample.stack_start(), &sample.stack);
        let is_narrow = sample.user_regs.is_some_and(|regs| regs.abi == Abi::Bits32);
        let of_narrow = |start: u64, chunk_end: u64, end: Option<StackEnd>| {
            let end = end.filter(|_| is_narrow).map_or(0, |end| end.address.min(start.saturating_add(8 << 20)));
            start..chunk_end.max(end)
        };
        let near = if is_narrow && sample.stack.is_empty() { 1 << 16 } else { sample.stack.len() as u64 };
        let near = chunk.start..chunk.start.saturating_add(near);
        let other = sample.interrupted.as_ref().map_or(0..0, |own| range(own.stack_start(), &own.stack));
        let keep_of = |one: Range<u64>, other: Range<u64>| {
            move |word: u64| {
                if one.contains(&word) || other.contains(&word) || ranges.contains(word) { word } else { 0 }
            }
        };
        let keep = keep_of(of_narrow(near.start, near.end, sample.stack_end), other.clone());
        let n_bytes = sample.user_regs.map_or(8, |regs| if regs.abi == Abi::Bits32 { 4 } else { 8 });
        let own = Copied {
            range: chunk.clone(),
            sp: sample.user_regs.filter(|_| sample.bytes_below_sp > 0).map_or(0, |regs| regs.sp()),
            stack_end: sample.stack_end.map_or(chunk.end, |end| end.address),
            holes: &sample.stack_holes,
        };
        self.chunk(sample.pid, &own, n_bytes, &keep, &mut expected.stack);
        if let (Some(own), Some(expected)) = (&sample.interrupted, &mut expected.interrupted) {
            let copied = Copied {
                range: other.clone(),
                sp: if own.bytes_below_sp > 0 { own.sp } else { 0 },
                stack_end: own.stack_end.map_or(other.end, |end| end.address),
                holes: &own.stack_holes,
            };
            let keep = keep_of(of_narrow(other.start, other.end, own.stack_end), near);
            self.chunk(sample.pid, &copied, n_bytes, keep, &mut expected.stack);
        }
        if let Some(regs) = &mut expected.user_regs {
            let (ip, sp) = (regs.ip(), regs.sp());
            regs.values = regs.values.map(|value| if value == ip || value == sp { value } else { keep(value) });
        }
        for (number, frame) in expected.user_fp.iter_mut().enumerate() {
            frame.address = if number == 0 { frame.address } else { keep(frame.address) };
            frame.frame_address = keep(frame.frame_address);
        }
        expected
    }
}

/// A chunk and its stack pointer; 0 if nothing below it was copied.
struct Copied<'a> {
    range: Range<u64>,
    sp: u64,
    stack_end: u64,
    holes: &'a [ChunkHole],
}

impl Rule {
    fn chunk(&mut self, pid: u32, copied: &Copied<'_>, n_bytes: usize, keep: impl Fn(u64) -> u64, bytes: &mut [u8]) {
        let Copied { range, sp, stack_end, holes } = copied;
        let in_hole = |at: u64| {
            holes
                .iter()
                .any(|hole| (u64::from(hole.offset)..u64::from(hole.offset) + u64::from(hole.len)).contains(&at))
        };
        let len = bytes.len();
        let readable = |address: u64| {
            let at = address.wrapping_sub(range.start);
            usize::try_from(at).ok().filter(|&at| at < len && !in_hole(at as u64))
        };
        let n_granules = len as u64 / 8 + 2;
        for granule in (0..n_granules).map(|number| (range.start & !7).wrapping_add(number * 8)) {
            let places: Vec<_> = (0..8).map(|byte| readable(granule.wrapping_add(byte))).collect();
            let old = self.written.entry((pid, granule)).or_default();
            for run in (0..8).collect::<Vec<_>>().chunk_by(|&a, &b| places[a].is_some() == places[b].is_some()) {
                if places[run[0]].is_some() {
                    let raw = |byte: usize| bytes[places[byte].unwrap()];
                    *old = match granule < *sp {
                        true => {
                            rule(*old, run, raw, 8, |word| if (*sp..*stack_end).contains(&word) { word } else { 0 })
                        }
                        false => rule(*old, run, raw, n_bytes, &keep),
                    };
                }
            }
            let kept = old.to_le_bytes();
            for (byte, place) in places.iter().enumerate() {
                if let Some(at) = place {
                    bytes[*at] = kept[byte];
                }
            }
        }
    }
}

/// What is kept of the bytes `run` of a granule whose previous value was `old`.
fn rule(old: u64, run: &[usize], raw: impl Fn(usize) -> u8, n_bytes: usize, keep: impl Fn(u64) -> u64) -> u64 {
    let mut kept = old.to_le_bytes();
    let mut new = kept;
    run.iter().for_each(|&byte| new[byte] = raw(byte));
    if new == kept {
        return old;
    }
    for word in (0..8).collect::<Vec<usize>>().chunks(n_bytes) {
        let whole = word.iter().all(|byte| run.contains(byte));
        let value = word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(new[byte]));
        let value = if whole { keep(value) } else { 0 };
        for (number, &byte) in word.iter().enumerate().filter(|(_, byte)| run.contains(byte)) {
            kept[byte] = value.to_le_bytes()[number];
        }
    }
    u64::from_le_bytes(kept)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Check that arbitrary samples are read back as the rule says.
    #[test]
    fn anything_is_scrubbed_by_the_rule(samples in prop::collection::vec(arbitrary_sample(), 1..20)) {
        let mut rule = Rule::default();
        let expected: Vec<Sample> = samples.iter().map(|sample| rule.apply(sample, &ranges())).collect();
        for (read, expected) in written(&samples, Some(&ranges())).iter().zip(&expected) {
            let different = (0..expected.stack.len()).find(|&at| read.stack.get(at) != expected.stack.get(at));
            prop_assert_eq!(different, None, "bytes of the stack differ");
            prop_assert_eq!(read, expected);
        }
    }
}
