//! Walks by call frame information: their size, and invalid ones.

use crate::layout;
use crate::values::{fixed_sample, meta};
use fpprof_recording::model::{CaptureMode, CfiEnd, CfiFrame, FoundBy, Meta, Sample};
use fpprof_recording::{Damage, Error, MAX_CFI_FRAMES, Recording, RecordingWriter};
use std::io::Cursor;

const CFI_COLUMN: usize = 27;
const SP: u64 = 0x7ffd_0000_1000;

/// A sample that has a walk and no copied stack. The frames of the walk differ in size, and the last has no CFA.
fn walked(number: u64, n_frames: u64, leaf_cfa: u64) -> Sample {
    let frame = |n: u64| {
        let cfa = if n + 1 == n_frames { 0 } else { leaf_cfa + n * (n + 5) * 8 };
        let found_by = if n % 5 == 1 { FoundBy::FramePointer } else { FoundBy::Row };
        CfiFrame { address: 0x5555_0000_1000 + n * 0x123, cfa, is_instruction: n == 0, found_by }
    };
    Sample {
        cfi_frames: (0..n_frames).map(frame).collect(),
        cfi_end: Some(CfiEnd::ThreadStart),
        ..without_stack(number)
    }
}

fn without_stack(number: u64) -> Sample {
    let sample = Sample { user_regs: None, user_fp: vec![], fp_end: Default::default(), ..fixed_sample(number) };
    Sample { stack: vec![], kernel: vec![], ..sample }
}

fn cfi_meta() -> Meta {
    Meta { mode: CaptureMode::Cfi { stack_bytes: 65_528, verify: 100, frame_pointers: false }, ..meta() }
}

fn file(samples: &[Sample]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &cfi_meta()).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
    writer.flush().unwrap();
    writer.into_inner()
}

fn samples_block(file: &[u8]) -> layout::Block {
    layout::blocks(file).into_iter().find(|block| block.kind == 3).unwrap()
}

fn read_with_damage(file: Vec<u8>) -> (Vec<Sample>, Damage) {
    let mut recording = Recording::open(Cursor::new(file)).unwrap();
    assert_eq!(recording.meta(), &cfi_meta());
    let mut read = Vec::new();
    recording.samples(|sample| read.push(sample.clone())).unwrap();
    (read, recording.damage())
}

/// The samples of a file without damage.
fn read(file: Vec<u8>) -> Vec<Sample> {
    let (samples, damage) = read_with_damage(file);
    assert!(damage.is_none(), "{damage:?}");
    samples
}

/// The file with other columns in its block of samples, which is the last.
fn with_columns(file: &[u8], columns: &[Vec<u8>]) -> Vec<u8> {
    let block = samples_block(file);
    [&file[..block.offset], &layout::rebuilt(file, &block, columns)].concat()
}

/// Check that a stack that occurs again at another depth costs a few bytes, however many frames it has.
#[test]
fn same_stack_at_another_depth_costs_a_few_bytes() {
    let columns = |samples: &[Sample]| {
        let mut writer = RecordingWriter::new(Vec::new(), &cfi_meta()).unwrap();
        samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
        let len = |name| writer.open_columns().find(|column| column.0 == name).unwrap().1.len();
        ["cfi", "new_chains", "chain_words", "literals"].map(len)
    };
    let samples = [walked(4, 60, SP), walked(6, 60, SP - 0x2340), walked(8, 60, SP + 0x170)];
    let [cfi, rest @ ..] = columns(&samples[..1]);
    assert!(cfi < 12 && rest[1] >= 119);
    let [cfi_of_three, rest_of_three @ ..] = columns(&samples);
    // The gap, the end, the chain's number, and three bytes of the CFA.
    assert!(cfi_of_three - cfi <= 2 * 6, "{} bytes", cfi_of_three - cfi);
    assert_eq!(rest_of_three, rest);
}

/// Check that callers shared with the previous chain are not spelt out again.
#[test]
fn shared_callers_are_spelt_once() {
    let mut other = walked(7, 60, SP);
    other.cfi_frames[0].address += 8;
    other.cfi_frames[1].cfa += 8;
    let n_words = |samples: &[Sample]| samples_block(&file(samples)).parts[22].len();
    // The leaf's address, and the size of the next two frames, with the address between.
    assert_eq!(n_words(&[walked(5, 60, SP), other]) - n_words(&[walked(5, 60, SP)]), 5);
}

/// Check that the longest walk is read back, and that a longer one is refused.
#[test]
fn longest_walk_is_read_again() {
    let longest = walked(3, MAX_CFI_FRAMES as u64, SP);
    assert_eq!(read(file(std::slice::from_ref(&longest))), [longest]);
    let mut writer = RecordingWriter::new(Vec::new(), &cfi_meta()).unwrap();
    let refused = writer.sample(&walked(3, MAX_CFI_FRAMES as u64 + 1, SP), None).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { value: 2049, limit: 2048, .. }), "{refused}");
}

/// Check that walks that cannot be represented are refused, and the recording stays valid.
#[test]
fn walks_that_cannot_be_encoded_are_refused() {
    let mut writer = RecordingWriter::new(Vec::new(), &cfi_meta()).unwrap();
    let mut refusal = |sample: &Sample| writer.sample(sample, None).unwrap_err().to_string();
    let without_end = Sample { cfi_end: None, ..walked(3, 3, SP) };
    assert_eq!(
        refusal(&without_end),
        "a sample has 3 frames of a walk by call frame information, but not how it ended"
    );
    for (cfas, number, cfa) in
        [([8, 8, 0], 1, "0x8"), ([16, 24, 24], 2, "0x18"), ([8, 0, 24], 2, "0x18"), ([0, 8, 16], 1, "0x8")]
    {
        let mut sample = walked(3, 3, SP);
        sample.cfi_frames.iter_mut().zip(cfas).for_each(|(frame, cfa)| frame.cfa = cfa);
        let expected = format!(
            "frame {number} of a walk by call frame information has CFA {cfa}, which does not follow the one before"
        );
        assert_eq!(refusal(&sample), expected);
    }
    let good = walked(3, 3, SP);
    writer.sample(&good, None).unwrap();
    writer.flush().unwrap();
    assert_eq!(read(writer.into_inner()), [good]);
}

/// Check that neither the frames nor the end of a sample are left in the next one, which has none.
#[test]
fn samples_without_a_walk_have_none_of_it() {
    let given_up = Sample { cfi_end: Some(CfiEnd::NoRule), ..fixed_sample(5) };
    let samples = [walked(3, 5, SP), given_up, without_stack(6), walked(7, 1, 0), fixed_sample(8)];
    assert_eq!(read(file(&samples)), samples);
}

/// Check that a block of version 6, which lacks this column, is read.
#[test]
fn block_of_version_6_is_read() {
    let samples = [fixed_sample(3), without_stack(4), fixed_sample(5)];
    let file = file(&samples);
    let block = samples_block(&file);
    assert!(block.parts[CFI_COLUMN..].iter().all(Vec::is_empty));
    let mut older = with_columns(&file, &block.parts[..CFI_COLUMN]);
    older[block.offset + 8] = 6;
    layout::seal(&mut older[block.offset..]);
    assert_eq!(read(older), samples);
}

/// Check that a column with invalid contents is refused from the affected sample on.
#[test]
fn corrupt_columns_are_refused() {
    let samples = [walked(3, 3, SP), without_stack(5), walked(7, 3, SP - 8)];
    let file = file(&samples);
    let parts = samples_block(&file).parts;
    let column = &parts[CFI_COLUMN];
    let [leaf_cfa @ .., 1, 2, 2, 15] = &column[3..] else { panic!("{column:?}") };
    assert_eq!(&column[..3], [0, 2, 1]);
    let read_of = |column: Vec<u8>| {
        let mut parts = parts.clone();
        parts[CFI_COLUMN] = column;
        let (read, damage) = read_with_damage(with_columns(&file, &parts));
        assert_eq!(read, samples[..read.len()]);
        assert_eq!((read.len() as u64 + damage.lost_samples, damage.malformed_blocks), (3, 1));
        read.len()
    };
    let walk = |start: &[u8], rest: &[u8]| read_of([start, leaf_cfa, rest].concat());
    assert_eq!(walk(&[0, 16, 1], &[1, 2, 2, 15]), 0, "no such end");
    assert_eq!(walk(&[0, 2, 2], &[1, 2, 2, 15]), 0, "no chain yet");
    assert_eq!(read_of(vec![0, 2, 1, 0, 1, 2, 2, 15]), 0, "callers of an outermost frame");
    assert_eq!(read_of(vec![0, 2, 1, 95, 1, 2, 2, 15]), 0, "a CFA of 0 by a size");
    assert_eq!(walk(&[0, 34, 1], &[1, 3, 1, 2, 2, 15]), 0, "no such frame was interrupted");
    assert_eq!(read_of(vec![0, 34, 0, 1, 2, 2, 15]), 0, "interrupted frames of none");
    assert_eq!(walk(&[0, 34, 1], &[0, 1, 2, 2, 15]), 0, "no interrupted frame");
    assert_eq!(walk(&[0, 34, 1], &[2, 2, 1, 1, 2, 2, 15]), 0, "interrupted frames descend");
    assert_eq!(walk(&[0, 2, 1], &[1, 2, 4, 15]), 2, "no such chain");
    assert_eq!(walk(&[0, 2, 1], &[1, 2]), 2, "no chain");
    assert_eq!(walk(&[0, 2, 1], &[1, 2, 2]), 2, "no CFA");
    assert_eq!(walk(&[0, 2, 1], &[1, 2, 2, 15, 0]), 3, "a walk of no sample");
}

/// Check that chains of other kinds are refused as walks if they have a word for half a frame.
#[test]
fn half_a_frame_is_refused() {
    let kernel = Sample { kernel: vec![1, 2], cfi_end: Some(CfiEnd::Start), ..without_stack(3) };
    let file = file(&[kernel]);
    let mut parts = samples_block(&file).parts;
    assert_eq!(parts[CFI_COLUMN], [0, 1, 0]);
    parts[CFI_COLUMN] = vec![0, 1, 2, 16];
    let (read, damage) = read_with_damage(with_columns(&file, &parts));
    assert_eq!((read.len(), damage.lost_samples, damage.malformed_blocks), (0, 1, 1));
}
