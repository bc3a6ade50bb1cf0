//! `perf.data` read in place: what is asked of its samples once needs no recording.

use super::error::ImportError;
use super::perf_data::{Import, Imported, Sink};
use super::records::Records;
use crate::address_space::{Builder, Timeline};
use fpprof_recording::model::{Meta, Sample, Sideband};
use std::io::{Read, Seek};

/// Most samples in one piece.
const MAX_SAMPLES: usize = 64;

/// What the events of a file say. Its samples are passed over.
///
/// # Errors
/// As [`perf_data`](super::perf_data) has.
pub fn perf_events<R: Read + Seek>(input: R) -> Result<(Meta, Timeline), ImportError> {
    struct Events(Builder);
    impl Sink for Events {
        fn sample(&mut self, _: &Import, _: &mut Sample) -> Result<(), ImportError> {
            Ok(())
        }

        fn sideband(&mut self, event: Sideband) -> Result<(), ImportError> {
            self.0.add(&event);
            Ok(())
        }
    }
    let (mut import, records) = Import::of_file(input)?;
    let mut records = records.without_samples();
    let mut events = Events(Builder::default());
    while import.step(&mut records, &mut events)? {}
    Ok((import.meta(0)?, events.0.finish()))
}

/// The samples of a file in the order of time, some at a time, until one cannot be read.
pub struct PerfSamples<R> {
    import: Import,
    records: Records<R>,
    ready: Ready,
    is_over: bool,
}

/// Samples that were read and not yet given.
#[derive(Default)]
struct Ready(Vec<Sample>);

impl Sink for Ready {
    fn sample(&mut self, _: &Import, sample: &mut Sample) -> Result<(), ImportError> {
        self.0.push(std::mem::take(sample));
        Ok(())
    }

    fn sideband(&mut self, _: Sideband) -> Result<(), ImportError> {
        Ok(())
    }
}

impl<R> std::fmt::Debug for PerfSamples<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerfSamples").field("done", &self.import.done).finish_non_exhaustive()
    }
}

impl<R: Read + Seek> PerfSamples<R> {
    /// Starts with the first.
    ///
    /// # Errors
    /// As [`perf_data`](super::perf_data) has.
    pub fn new(input: R) -> Result<Self, ImportError> {
        let (import, records) = Import::of_file(input)?;
        Ok(Self { import, records, ready: Ready::default(), is_over: false })
    }

    /// What was taken and what was left out, once there are no more.
    ///
    /// # Errors
    /// If there was no sample.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
        if self.import.done.samples == 0 {
            return Err(self.records.damage().map_or(ImportError::NoSamples, ImportError::Damaged));
        }
        self.import.end();
        Ok(self.import.done)
    }
}

impl<R: Read + Seek> Iterator for PerfSamples<R> {
    type Item = Result<Vec<Sample>, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over && self.ready.0.len() < MAX_SAMPLES {
            match self.import.step(&mut self.records, &mut self.ready) {
                Ok(is_more) => self.is_over = !is_more,
                Err(error) => {
                    self.is_over = true;
                    self.ready.0.clear();
                    return Some(Err(error));
                }
            }
        }
        let n = self.ready.0.len().min(MAX_SAMPLES);
        (n > 0).then(|| Ok(self.ready.0.drain(..n).collect()))
    }
}
