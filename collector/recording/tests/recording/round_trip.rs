//! Arbitrary values are read back as written.

use crate::values::{aarch64_meta, arbitrary_sample, arbitrary_sideband, end, fixed_gap, meta, on_aarch64};
use fpprof_recording::model::Sample;
use fpprof_recording::{Recording, RecordingWriter};
use proptest::prelude::*;
use std::io::Cursor;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Check that arbitrary samples and events are read back equal and in order, wherever the blocks are split.
    #[test]
    fn anything_written_is_read_again(
        mut samples in prop::collection::vec((arbitrary_sample(), prop::bool::weighted(0.1)), 0..40),
        events in prop::collection::vec(arbitrary_sideband(), 0..20),
        is_aarch64: bool,
    ) {
        let meta = if is_aarch64 { aarch64_meta() } else { meta() };
        if is_aarch64 {
            samples = samples.into_iter().map(|(sample, flush)| (on_aarch64(sample), flush)).collect();
        }
        let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
        events.iter().for_each(|event| writer.sideband(event).unwrap());
        for ((sample, flush), number) in samples.iter().zip(0..) {
            writer.sample(sample, None).unwrap();
            writer.gap(&fixed_gap(number)).unwrap();
            if *flush {
                writer.flush().unwrap();
            }
        }
        writer.finish(&end()).unwrap();
        let bytes_written = writer.bytes_written();
        let file = writer.into_inner();
        prop_assert_eq!(bytes_written, file.len() as u64);

        let mut recording = Recording::open(Cursor::new(file)).unwrap();
        prop_assert_eq!(recording.meta(), &meta);
        prop_assert_eq!(recording.end(), Some(&end()));
        prop_assert_eq!(recording.n_samples(), samples.len() as u64);
        let mut read_events = Vec::new();
        recording.sideband(|event| read_events.push(event.clone())).unwrap();
        prop_assert_eq!(read_events, events);
        let mut read_gaps = Vec::new();
        recording.gaps(|gap| read_gaps.push(*gap)).unwrap();
        prop_assert_eq!(read_gaps, (0..samples.len() as u64).map(fixed_gap).collect::<Vec<_>>());
        let mut read_samples = Vec::new();
        recording.samples(|sample| read_samples.push(sample.clone())).unwrap();
        prop_assert_eq!(read_samples, samples.into_iter().map(|(sample, _)| sample).collect::<Vec<_>>());
        prop_assert!(recording.damage().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Check that decoding blocks one by one gives the same as a single pass.
    #[test]
    fn blocks_decode_on_their_own(samples in prop::collection::vec(arbitrary_sample(), 1..40)) {
        let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
        for sample in &samples {
            writer.sample(sample, None).unwrap();
            if sample.time_ns.is_multiple_of(3) {
                writer.flush().unwrap();
            }
        }
        writer.flush().unwrap();
        let mut recording = Recording::open(Cursor::new(writer.into_inner())).unwrap();
        let blocks: Vec<_> = recording.sample_blocks().map(Result::unwrap).collect();
        let mut read: Vec<(u64, Vec<Sample>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = blocks
                .iter()
                .rev()
                .map(|block| {
                    scope.spawn(|| {
                        let mut samples = Vec::new();
                        block.decode(|sample| samples.push(std::mem::take(sample))).unwrap();
                        (block.first_sample(), samples)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        read.sort_by_key(|&(first, _)| first);
        let read: Vec<Sample> = read.into_iter().flat_map(|(_, samples)| samples).collect();
        prop_assert_eq!(read, samples);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Check that samples encoded by several threads are all read back, those of one thread in order, and are counted;
    /// and that the guarantee of a flush holds then, too.
    #[test]
    fn workers_lose_nothing(samples in prop::collection::vec(arbitrary_sample(), 1..60), n_workers in 1_usize..4) {
        let mut writer = RecordingWriter::new(Vec::new(), &meta()).unwrap();
        for (number, sample) in samples.iter().enumerate() {
            if number % 20 == 0 && writer.n_workers() < n_workers {
                writer.add_worker().unwrap();
            }
            writer.hand_over(sample, None).unwrap();
        }
        writer.flush().unwrap();
        let written: u64 = writer.tallies().values().map(|tally| tally.written).sum();
        prop_assert_eq!(written, samples.len() as u64);
        let mut recording = Recording::open(Cursor::new(writer.into_inner())).unwrap();
        prop_assert!(recording.damage().is_none());
        let mut read = Vec::new();
        recording.samples(|sample| read.push(sample.clone())).unwrap();
        prop_assert_eq!(read.len(), samples.len());
        for tid in samples.iter().map(|sample| sample.tid) {
            let of_thread = |all: &[Sample]| all.iter().filter(|sample| sample.tid == tid).cloned().collect::<Vec<_>>();
            prop_assert_eq!(of_thread(&read), of_thread(&samples));
        }
    }
}
