//! Malicious files with valid checksums: no panic, no hang, bounded memory.

use crate::layout;
use crate::values::{arbitrary_sample, arbitrary_sideband, end, fixed_gap, meta};
use fpprof_recording::{Damage, Recording, RecordingWriter};
use proptest::prelude::*;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// Reads everything in a file.
fn read(file: Vec<u8>) -> (u64, Damage) {
    let mut recording = Recording::open(Cursor::new(file)).unwrap();
    let mut n_samples = 0;
    recording.sideband(|_| ()).unwrap();
    recording.samples(|_| n_samples += 1).unwrap();
    recording.gaps(|_| ()).unwrap();
    (n_samples, recording.damage())
}

fn with_block(file: &[u8], block: &layout::Block, bytes: &[u8]) -> Vec<u8> {
    [&file[..block.offset], bytes, &file[block.end..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Check that changed payloads with valid checksums never cause a panic, and that no sample goes uncounted.
    #[test]
    fn changed_payloads_never_panic(
        samples in prop::collection::vec(arbitrary_sample(), 1..12),
        events in prop::collection::vec(arbitrary_sideband(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
        events.iter().for_each(|event| writer.sideband(event).unwrap());
        samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
        (0..4).for_each(|number| writer.gap(&fixed_gap(number)).unwrap());
        writer.finish(&end()).unwrap();
        let file = writer.into_inner();
        for block in layout::blocks(&file).iter().filter(|block| matches!(block.kind, 2 | 3 | 6)) {
            let mut parts = block.parts.clone();
            for (part, at, value) in &changes {
                let n_parts = parts.len();
                let part = &mut parts[part.index(n_parts)];
                match part.len() {
                    0 => part.push(*value),
                    len => part[at.index(len)] = *value,
                }
            }
            let (n_samples, damage) = read(with_block(&file, block, &layout::rebuilt(&file, block, &parts)));
            prop_assert_eq!(n_samples + damage.lost_samples, samples.len() as u64);
        }
    }

    /// Check that random payloads never cause a panic.
    #[test]
    fn random_payloads_never_panic(
        parts in prop::collection::vec(prop::collection::vec(0u8..40, 0..60), 23..31),
        items in any::<u32>(),
    ) {
        let file = RecordingWriter::new(Vec::new(), &meta()).unwrap().into_inner();
        let block = layout::blocks(&file)[1].clone();
        for kind in 1..7 {
            let mut bytes = layout::rebuilt(&file, &block, &parts);
            bytes[10] = kind;
            bytes[16] = 2;
            bytes[20..24].copy_from_slice(&items.to_le_bytes());
            layout::seal(&mut bytes);
            let file = [&file[..], &bytes].concat();
            if let Ok(mut recording) = Recording::open(Cursor::new(file)) {
                recording.sideband(|_| ()).unwrap();
                recording.samples(|_| ()).unwrap();
                recording.gaps(|_| ()).unwrap();
            }
        }
    }
}

/// Counts the bytes that are read.
struct Counted {
    file: Cursor<Vec<u8>>,
    n_bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(bytes)?;
        self.n_bytes += n as u64;
        Ok(n)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Check that a file of only headers that announce large payloads, all beyond the file's end, is read in reasonable
/// time: without a limit this one would be read 100,000 times.
#[test]
fn headers_without_payloads_do_not_take_for_ever() {
    let mut file = RecordingWriter::new(Vec::new(), &meta()).unwrap().into_inner();
    let mut header = file[..layout::HEADER].to_vec();
    header[32..40].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 2]);
    layout::seal(&mut header);
    for _ in 0..100_000 {
        file.extend_from_slice(&header);
    }
    let len = file.len() as u64;
    let mut source = Counted { file: Cursor::new(file), n_bytes: 0 };
    let recording = Recording::open(&mut source).unwrap();
    assert_eq!(recording.damage().torn_tail_bytes, 100_000 * layout::HEADER as u64);
    assert!(source.n_bytes < 4 * len + (512 << 20), "{} bytes read of {len}", source.n_bytes);
}

/// Check that a block that announces the largest payload, packed into a few bytes of zeros, is refused immediately.
#[test]
fn packed_zeros_are_refused() {
    let file = RecordingWriter::new(Vec::new(), &meta()).unwrap().into_inner();
    let block = layout::blocks(&file)[1].clone();
    let mut parts = vec![Vec::new(); 24];
    parts[0] = vec![0; 1 << 20];
    let mut bytes = layout::rebuilt(&file, &block, &parts);
    bytes[10] = 3;
    bytes[16] = 2;
    bytes[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    layout::seal(&mut bytes);
    let (n_samples, damage) = read([&file[..], &bytes].concat());
    assert_eq!((n_samples, damage.lost_samples), (0, u64::from(u32::MAX)));
}

/// Check that an invalid block that claims to be preceded by the maximum number of items is damage and causes no
/// overflow.
#[test]
fn endless_losses_are_counted() {
    let file = RecordingWriter::new(Vec::new(), &meta()).unwrap().into_inner();
    let block = layout::blocks(&file)[1].clone();
    for kind in [2, 3] {
        let mut bytes = layout::rebuilt(&file, &block, &[vec![0xff; 8]]);
        bytes[10] = kind;
        bytes[16] = 2;
        bytes[20..24].copy_from_slice(&7_u32.to_le_bytes());
        bytes[24..32].fill(0xff);
        layout::seal(&mut bytes);
        let (_, damage) = read([&file[..], &bytes].concat());
        assert_eq!(damage.lost_samples.max(damage.lost_sideband), u64::MAX);
    }
}
