//! Damaged files: what is intact is read, what is not is counted, and there is no other effect.

use crate::layout::{self, Block};
use crate::values::{end, fixed_event, fixed_sample, meta};
use fpprof_recording::model::{Checkpoint, Meta, ModuleBytes, Sample, Sideband};
use fpprof_recording::{Error, LooksLike, Recording, RecordingWriter};
use std::io::Cursor;

/// A recording of `n_blocks` blocks of `n_samples` samples each, with events between.
fn file(n_blocks: u64, n_samples: u64) -> Vec<u8> {
    file_of(&meta(), n_blocks, n_samples)
}

fn file_of(meta: &Meta, n_blocks: u64, n_samples: u64) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), meta).unwrap();
    for block in 0..n_blocks {
        writer.sideband(&fixed_event(block)).unwrap();
        for number in 0..n_samples {
            writer.sample(&fixed_sample(block * n_samples + number), None).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish(&end()).unwrap();
    writer.into_inner()
}

fn open(file: &[u8]) -> Result<Recording<Cursor<&[u8]>>, Error> {
    Recording::open(Cursor::new(file))
}

fn samples_of(recording: &mut Recording<Cursor<&[u8]>>) -> Vec<u64> {
    let mut numbers = Vec::new();
    recording
        .samples(|sample| {
            assert_eq!(sample, &fixed_sample(sample.cpu_fired));
            numbers.push(sample.cpu_fired);
        })
        .unwrap();
    numbers
}

fn n_events_of(recording: &mut Recording<Cursor<&[u8]>>) -> u64 {
    let mut events = 0;
    recording.sideband(|_| events += 1).unwrap();
    events
}

/// Numbers of the samples in a block of [`file`].
fn numbers(block: &Block) -> std::ops::Range<u64> {
    if block.kind == 3 { block.first_item..block.first_item + u64::from(block.items) } else { 0..0 }
}

/// The samples that must be found if all blocks except those that satisfy `lost` are intact.
fn expected(blocks: &[Block], lost: impl Fn(&Block) -> bool) -> Vec<u64> {
    blocks.iter().filter(|block| !lost(block)).flat_map(numbers).collect()
}

fn check_cut(file: &[u8], blocks: &[Block], cut: usize) {
    let kept = &file[..cut];
    if cut < blocks[0].end {
        let wanted = if cut == 0 { "the file is empty" } else { "first block is missing" };
        assert!(open(kept).unwrap_err().to_string().contains(wanted), "cut at {cut}");
        return;
    }
    let mut recording = open(kept).unwrap();
    assert_eq!(samples_of(&mut recording), expected(blocks, |block| block.end > cut), "cut at {cut}");
    let good_end = blocks.iter().map(|block| block.end).filter(|&end| end <= cut).max().unwrap();
    let damage = recording.damage();
    assert_eq!(damage.torn_tail_bytes, (cut - good_end) as u64, "cut at {cut}");
    assert_eq!((damage.skipped_bytes, damage.lost_samples, damage.malformed_blocks), (0, 0, 0), "cut at {cut}");
    let torn = blocks.iter().find(|block| (block.offset + layout::HEADER..block.end).contains(&cut));
    assert_eq!(damage.torn_tail_samples, torn.map_or(0, |block| numbers(block).count() as u64), "cut at {cut}");
    assert_eq!(recording.end().is_some(), cut == file.len());
}

fn check_flip(file: &[u8], blocks: &[Block], bit: usize) {
    let mut flipped = file.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    let hit = blocks.iter().find(|block| (block.offset..block.end).contains(&(bit / 8))).unwrap();
    let mut recording = open(&flipped).unwrap();
    assert_eq!(samples_of(&mut recording), expected(blocks, |block| block == hit), "bit {bit}");
    let damage = recording.damage();
    let n_lost = numbers(hit).count() as u64;
    let n_bytes = (hit.end - hit.offset) as u64;
    let is_last = hit.end == file.len();
    assert_eq!(damage.skipped_bytes, if is_last { 0 } else { n_bytes }, "bit {bit}");
    assert_eq!(damage.torn_tail_bytes, if is_last { n_bytes } else { 0 }, "bit {bit}");
    assert_eq!((damage.skipped_blocks, damage.lost_samples), (u64::from(!is_last), n_lost), "bit {bit}");
    let n_events = blocks.iter().filter(|block| block.kind == 2 && *block != hit).count() as u64;
    assert_eq!(n_events_of(&mut recording), n_events, "bit {bit}");
}

/// A deterministic sequence of numbers below `limit`.
fn spread(count: usize, limit: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    })
}

/// Check that a small file truncated at any byte gives all blocks before the cut and reports what is missing.
#[test]
fn every_cut_keeps_the_blocks_before_it() {
    let file = file(3, 4);
    let blocks = layout::blocks(&file);
    for cut in 0..=file.len() {
        check_cut(&file, &blocks, cut);
    }
}

/// Check that any flipped bit of a small file costs at most its block.
#[test]
fn every_flip_costs_one_block_at_most() {
    let file = file(2, 2);
    let blocks = layout::blocks(&file);
    for bit in 0..file.len() * 8 {
        check_flip(&file, &blocks, bit);
    }
}

/// Check the same for random places of a file with larger blocks.
#[test]
fn random_cuts_and_flips_of_a_larger_file() {
    let file = file(8, 25);
    let blocks = layout::blocks(&file);
    spread(500, file.len()).for_each(|cut| check_cut(&file, &blocks, cut));
    spread(1_000, file.len() * 8).for_each(|bit| check_flip(&file, &blocks, bit));
}

/// Check that bytes before, between and after the blocks are skipped, whatever they are.
#[test]
fn rubbish_between_blocks_is_passed_over() {
    let file = file(3, 4);
    let blocks = layout::blocks(&file);
    let rubbish = [&b"\x89FPREC\r\n"[..], &[0x89; 100], b"\x89FPREC\x89FPREC\r\r\n"].concat();
    for block in &blocks {
        let spoilt = [&file[..block.offset], &rubbish, &file[block.offset..]].concat();
        let mut recording = open(&spoilt).unwrap();
        assert_eq!(samples_of(&mut recording), expected(&blocks, |_| false));
        assert_eq!(recording.damage().skipped_bytes, rubbish.len() as u64);
        assert_eq!((recording.damage().skipped_blocks, recording.damage().lost_samples), (0, 0));
    }
}

/// Check that blocks of another recording and repeated blocks are left out and counted.
#[test]
fn foreign_and_repeated_blocks_are_left_out() {
    let file = file(2, 3);
    let blocks = layout::blocks(&file);
    let mut other = RecordingWriter::new(Vec::new(), &Meta { start_ns: 5, ..meta() }).unwrap();
    other.sample(&fixed_sample(77), None).unwrap();
    other.flush().unwrap();
    let joined = [&file[..blocks[4].offset], &other.into_inner(), &file[blocks[2].offset..]].concat();
    let mut recording = open(&joined).unwrap();
    assert_eq!(samples_of(&mut recording), expected(&blocks, |_| false));
    let damage = recording.damage();
    assert_eq!((damage.foreign_blocks, damage.repeated_blocks, damage.skipped_bytes), (3, 2, 0));
}

/// Check that a recording stored as a module inside another is not taken for part of it if its block is damaged.
#[test]
fn a_recording_inside_a_recording_stays_inside() {
    let inner = file_of(&Meta { start_ns: 5, ..meta() }, 1, 2);
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    let event = |bytes| Sideband::Module(ModuleBytes { path: b"x".to_vec(), identity: Default::default(), bytes });
    writer.sideband(&event(inner.clone())).unwrap();
    writer.sample(&fixed_sample(0), None).unwrap();
    writer.flush().unwrap();
    let mut file = writer.into_inner();
    let block = layout::blocks(&file)[2].clone();
    let stored = layout::rebuilt(&file, &block, &block.parts);
    file.splice(block.offset..block.end, stored.clone());
    assert_eq!(n_events_of(&mut open(&file).unwrap()), 1);
    // Damage the header of the next block too, so that the inside of this one is searched.
    file[block.offset + stored.len() - 1] ^= 1;
    file[block.offset + stored.len()] ^= 1;
    let mut recording = open(&file).unwrap();
    assert_eq!((n_events_of(&mut recording), recording.n_samples()), (0, 0));
    assert!(recording.damage().foreign_blocks > 0);
}

/// Check that a block with a valid checksum and invalid contents is counted once, gives the samples before that point,
/// and does not affect the others.
#[test]
fn malformed_blocks_are_counted_once() {
    let file = file(3, 4);
    let blocks = layout::blocks(&file);
    let block = blocks.iter().find(|block| block.kind == 3 && block.first_item == 4).unwrap();
    let mut parts = block.parts.clone();
    parts[0].truncate(2);
    let spoilt = [&file[..block.offset], &layout::rebuilt(&file, block, &parts), &file[block.end..]].concat();
    let mut recording = open(&spoilt).unwrap();
    for _ in 0..2 {
        assert_eq!(samples_of(&mut recording), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]);
        assert_eq!((recording.damage().malformed_blocks, recording.damage().lost_samples), (1, 2));
    }
    let errors: Vec<Error> =
        open(&spoilt).unwrap().sample_blocks().filter_map(|block| block.unwrap().decode(|_| ()).err()).collect();
    assert!(matches!(errors[..], [Error::Malformed { item: 2, .. }]));
    let mut recording = open(&spoilt).unwrap();
    recording.note(&errors[0]);
    recording.note(&errors[0]);
    assert_eq!((recording.damage().malformed_blocks, recording.damage().lost_samples), (1, 2));
}

/// Check that files of other formats are recognised, and that a later version is distinguished from damage.
#[test]
fn other_files_are_named() {
    let looks = |bytes: &[u8]| match open(bytes).unwrap_err() {
        Error::NotARecording(looks) => looks,
        other => panic!("{other}"),
    };
    assert_eq!(looks(b""), LooksLike::Empty);
    assert_eq!(LooksLike::judge(b"\x89FPREC\r\n\0"), LooksLike::Recording);
    assert_eq!(looks(b"PERFILE2\x68\0\0\0"), LooksLike::PerfData);
    assert_eq!(looks(b"\x7fELF\x02\x01\x01"), LooksLike::Elf);
    assert_eq!(looks(b"\x1f\x8b\x08\0"), LooksLike::Gzip);
    assert_eq!(looks(b"\x28\xb5\x2f\xfd\0"), LooksLike::Zstd);
    assert_eq!(looks(b" {\"a\": 1}"), LooksLike::Json);
    assert_eq!(looks(b"main;work 17\n"), LooksLike::Text);
    assert_eq!(looks(&[0; 5000]), LooksLike::Unknown);
    let mut newer = file(1, 1);
    let blocks = layout::blocks(&newer);
    for block in &blocks {
        newer[block.offset + 8] = 10;
        layout::seal(&mut newer[block.offset..]);
    }
    assert!(matches!(open(&newer), Err(Error::NewerVersion { found: 10, supported: 9 })));
}

/// Check that intact but unknown metadata gives the right error.
#[test]
fn unknown_descriptions_are_errors() {
    let file = file(1, 1);
    let block = layout::blocks(&file)[0].clone();
    let json = b"{\"tool_version\":3}".to_vec();
    let mut spoilt = layout::rebuilt(&file, &block, std::slice::from_ref(&json));
    spoilt[12..16].copy_from_slice(&crc32c::crc32c(&json).to_le_bytes());
    layout::seal(&mut spoilt);
    assert!(matches!(open(&spoilt), Err(Error::BadJson { what: "description", .. })));
}

/// Check that the last checkpoint is found, and that a recording without an end is reported as such.
#[test]
fn checkpoints_are_read_again() {
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
    assert!(open(&[]).is_err());
    for time_ns in [5, 6] {
        writer.sample(&fixed_sample(time_ns), None).unwrap();
        writer.checkpoint(&Checkpoint { time_ns, cpus: end().cpus, ..Checkpoint::default() }).unwrap();
    }
    let file = writer.into_inner();
    let recording = open(&file).unwrap();
    assert_eq!(recording.checkpoint().unwrap().time_ns, 6);
    assert_eq!(recording.checkpoint().unwrap().cpus, end().cpus);
    assert!(recording.end().is_none() && recording.damage().is_none());
    assert_eq!(recording.n_samples(), 2);
}

/// Check that a file that shrinks after it was opened gives an error, not wrong samples.
#[test]
fn changed_files_are_noticed() {
    let bytes = file(2, 2);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &bytes).unwrap();
    let mut recording = Recording::open(std::fs::File::open(path.path()).unwrap()).unwrap();
    std::fs::OpenOptions::new().write(true).open(path.path()).unwrap().set_len(bytes.len() as u64 / 2).unwrap();
    let mut seen: Vec<Sample> = Vec::new();
    let read = recording.samples(|sample| seen.push(sample.clone()));
    assert!(matches!(read, Err(Error::Changed { .. })));
    assert!(seen.len() < 4);
}
