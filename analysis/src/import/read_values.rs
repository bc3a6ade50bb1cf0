//! Removes the counter values from a sample (`PERF_SAMPLE_READ`).
//!
//! `linux-perf-event-reader` 0.10.2 confuses the values of a group with those of a single event, and does not know
//! `PERF_FORMAT_LOST`. Therefore the values are removed before a sample is parsed.

use super::bytes::Bytes;
use super::stacks::fixed_bytes;
use linux_perf_event_reader::SampleFormat;

const TOTAL_TIMES: u64 = 1 << 0 | 1 << 1;
const ID: u64 = 1 << 2;
const GROUP: u64 = 1 << 3;
const LOST: u64 = 1 << 4;

/// Offset and format of the counter values in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadValues {
    at: usize,
    /// `PERF_FORMAT_*`.
    format: u64,
}

impl ReadValues {
    /// The values in samples of this format; `None` if they have none.
    pub(super) fn new(sample_format: SampleFormat, format: u64) -> Option<Self> {
        let at = fixed_bytes(sample_format).filter(|_| sample_format.contains(SampleFormat::READ))?;
        Some(Self { at, format })
    }

    /// Removes the values from a sample; returns how many belonged to other events. `None`, with the sample unchanged,
    /// if it is shorter than the format requires.
    ///
    /// # Sources
    /// `include/uapi/linux/perf_event.h`, `struct read_format`: for a group `nr`, the times, and for each event its value,
    /// id and losses; for one event its value, the times, its id and losses.
    pub(super) fn remove(self, body: &mut Vec<u8>) -> Option<u64> {
        let n_of = |bits: u64| u64::from((self.format & bits).count_ones());
        let is_group = self.format & GROUP != 0;
        let n_values = if is_group { Bytes(body.get(self.at..)?).u64()? } else { 1 };
        let n_words = n_of(GROUP | TOTAL_TIMES).checked_add(n_values.checked_mul(1 + n_of(ID | LOST))?)?;
        let end = self.at.checked_add(usize::try_from(n_words.checked_mul(8)?).ok()?)?;
        if end > body.len() {
            return None;
        }
        body.drain(self.at..end);
        Some(n_values.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that exactly the values of each format are removed, for one event and for a group, and nothing if the
    /// sample is too short.
    #[test]
    fn every_format_is_taken_out() {
        let format = SampleFormat::IP | SampleFormat::READ | SampleFormat::CALLCHAIN;
        for (read_format, n_words, others) in
            [(0, 1, 0), (0b1_0111, 5, 0), (0b1000, 3, 1), (0b1100, 5, 1), (0b1_1100, 7, 1), (0b1_1111, 9, 1)]
        {
            let read = ReadValues::new(format, read_format).unwrap();
            let sample: Vec<u64> = [&[7], &[2; 9][..n_words], &[1, 9]].concat();
            let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            let mut body = bytes(&sample);
            assert_eq!(read.remove(&mut body), Some(others), "{read_format:#b}");
            assert_eq!(body, bytes(&[7, 1, 9]), "{read_format:#b}");
            let mut cut = bytes(&sample[..n_words]);
            assert_eq!((read.remove(&mut cut), cut.len()), (None, n_words * 8), "{read_format:#b}");
        }
        let endless = ReadValues::new(format, GROUP).unwrap();
        assert_eq!(endless.remove(&mut vec![0xff; 64]), None);
        assert_eq!(ReadValues::new(SampleFormat::IP, GROUP), None);
    }
}
