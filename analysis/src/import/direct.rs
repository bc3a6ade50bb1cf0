//! Reads `perf.data` in place: samples that are read only once need no recording.

use super::error::ImportError;
use super::perf_data::{Import, Imported, Sink};
use super::records::Records;
use crate::address_space::{Builder, Timeline};
use crate::replay::{Block, Input};
use fpprof_recording::model::{Meta, Sample, Sideband};
use std::io::{Read, Seek};
use std::sync::{Arc, Mutex, PoisonError};

/// The most samples in a block.
const MAX_SAMPLES: usize = 64;
/// A block is closed at this many bytes of stack, so that they are unwound while they are in a core's cache.
const PIECE_BYTES: usize = 256 << 10;

/// Reads the events of a file and skips its samples.
///
/// # Errors
/// Those of [`perf_data`](super::perf_data).
pub fn perf_events(input: &mut dyn Input) -> Result<(Meta, Timeline), ImportError> {
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

/// The samples of a file in order of time, in blocks, up to the first one that cannot be read.
pub struct PerfSamples<R> {
    import: Import,
    records: Records<R>,
    ready: Ready,
    is_over: bool,
}

/// Used samples, kept to reuse their memory.
type Spare = Arc<Mutex<Vec<Sample>>>;

/// Samples that were read and not yet returned.
#[derive(Default)]
struct Ready {
    samples: Vec<Sample>,
    n_bytes: usize,
    spare: Spare,
}

impl Ready {
    fn is_full(&self) -> bool {
        self.samples.len() >= MAX_SAMPLES || self.n_bytes >= PIECE_BYTES
    }
}

/// A block of samples, in order of time.
#[derive(Debug)]
pub struct PerfBlock {
    samples: Vec<Sample>,
    spare: Spare,
}

impl PerfBlock {
    /// The samples.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

impl Block for PerfBlock {
    fn decode(mut self, visit: impl FnMut(&mut Sample)) -> Result<(), fpprof_recording::Error> {
        self.samples.iter_mut().for_each(visit);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.samples);
        Ok(())
    }
}

impl Sink for Ready {
    fn sample(&mut self, _: &Import, sample: &mut Sample) -> Result<(), ImportError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        self.n_bytes = self.n_bytes.saturating_add(sample.stack.len());
        self.samples.push(std::mem::replace(sample, spare.unwrap_or_default()));
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
    /// Opens a file at its first sample.
    ///
    /// # Errors
    /// Those of [`perf_data`](super::perf_data).
    pub fn new(input: R) -> Result<Self, ImportError> {
        let (import, records) = Import::of_file(input)?;
        Ok(Self { import, records, ready: Ready::default(), is_over: false })
    }

    /// What was imported and what was left out; to be called after the last block.
    ///
    /// # Errors
    /// If there was no sample.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
        if self.import.done.samples == 0 {
            return Err(self.import.no_samples(&self.records));
        }
        self.import.end();
        Ok(self.import.done)
    }
}

impl<R: Read + Seek> Iterator for PerfSamples<R> {
    type Item = Result<PerfBlock, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over && !self.ready.is_full() {
            match self.import.step(&mut self.records, &mut self.ready) {
                Ok(is_more) => self.is_over = !is_more,
                Err(error) => {
                    self.is_over = true;
                    self.ready.samples.clear();
                    return Some(Err(error));
                }
            }
        }
        self.ready.n_bytes = 0;
        let samples = std::mem::take(&mut self.ready.samples);
        (!samples.is_empty()).then(|| Ok(PerfBlock { samples, spare: Arc::clone(&self.ready.spare) }))
    }
}
