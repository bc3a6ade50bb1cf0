//! Writes recordings.

use crate::block::{BLOCK_BYTES, Kind};
use crate::block_sink::BlockSink;
use crate::changes::Changes;
use crate::codec::{GapEncoder, SampleEncoder, SidebandEncoder, variable_bytes};
use crate::error::Error;
use crate::mapping_ranges::MappingRanges;
use crate::model::{Checkpoint, End, Gap, Meta, Sample, Sideband};
use crate::packed_module::PackedModule;
use crate::workers::{PackedBlock, Workers};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// The most bytes of gaps kept for a retry: about a hundred thousand gaps.
const MAX_KEPT_GAPS: usize = 1 << 20;

/// The most bytes of process events kept for a retry.
const MAX_KEPT_SIDEBAND: usize = 32 << 20;

/// How many samples of one CPU and event were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriteTally {
    /// In the sink, in a complete block.
    pub written: u64,
    /// In a block that the sink did not accept.
    pub unwritten: u64,
}

/// Writes a recording to a sink, block by block.
///
/// Pass the file itself: the writer writes whole blocks, and a buffer would only delay them. Samples and process events
/// are collected; they are in the sink after [`Self::flush`], or when a block is full.
///
/// If the sink fails, the call that encountered the failure returns it, and what was written stays readable. The writer
/// remains usable: the samples of the failed block are dropped and counted ([`Self::tallies`]), process events are kept
/// and retried with the next block, and calls return `Ok` until the sink has worked and fails again.
/// [`Self::is_failing`] returns whether it works.
///
/// Memory: at most 32 MiB for the images of stacks, 1 MiB for each kind of open block, about twice that for packing,
/// the size of the largest sample, and 32 MiB of process events while the sink fails. With stacks of 40 KiB in 20
/// threads it is 5 MiB. If equal samples are written once ([`Meta::aggregated_ns`]), at most 16 MiB to recognise them,
/// in each thread that encodes.
pub struct RecordingWriter<W> {
    blocks: BlockSink<W>,
    samples: SampleEncoder,
    changes: Changes,
    workers: Workers,
    sideband: SidebandEncoder,
    /// Modules still to be written after the sink failed.
    modules: Vec<PackedModule>,
    gaps: GapEncoder,
    gaps_dropped: u64,
    /// A block of process events failed and was not written yet.
    sideband_is_late: bool,
    sideband_dropped: u64,
    tallies: BTreeMap<(u16, u32), WriteTally>,
}

impl<W: Write> std::fmt::Debug for RecordingWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingWriter")
            .field("blocks_written", &self.blocks.blocks_written())
            .field("bytes_written", &self.blocks.bytes_written())
            .field("failing", &self.blocks.is_failing())
            .finish_non_exhaustive()
    }
}

impl<W: Write> RecordingWriter<W> {
    /// Starts a recording with its metadata, which is written twice so that damage in one place cannot destroy it.
    ///
    /// # Errors
    /// [`Error::Write`] if the sink does not accept it.
    pub fn new(sink: W, meta: &Meta) -> Result<Self, Error> {
        let json = to_json("description", meta)?;
        let mut blocks = BlockSink::new(sink, crc32c::crc32c(&json))?;
        for _ in 0..2 {
            blocks.write(Kind::Meta, 1, &[&json])?;
        }
        Ok(Self {
            blocks,
            samples: SampleEncoder::new(meta.host.machine()),
            changes: Changes::new(meta),
            workers: Workers::new(meta.host.machine()),
            sideband: SidebandEncoder::default(),
            modules: Vec::new(),
            gaps: GapEncoder::default(),
            gaps_dropped: 0,
            sideband_is_late: false,
            sideband_dropped: 0,
            tallies: BTreeMap::new(),
        })
    }

    /// Adds a process event.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for an event over 48 MiB, [`Error::Write`] if a block became full and the sink fails.
    pub fn sideband(&mut self, event: &Sideband) -> Result<(), Error> {
        if self.sideband.payload().len().saturating_add(variable_bytes(event)) > MAX_KEPT_SIDEBAND {
            let written = self.write_sideband();
            if written.is_err() && self.sideband.payload().len() > MAX_KEPT_SIDEBAND / 2 {
                self.sideband_dropped += 1;
                return self.blocks.once(written);
            }
        }
        self.sideband.push(event)?;
        self.changes.note(event);
        if self.sideband.payload().len() < BLOCK_BYTES || self.blocks.is_failing() {
            return Ok(());
        }
        let written = self.write_sideband();
        self.blocks.once(written)
    }

    /// Writes a module immediately, as a block of its own. If the sink fails, it is kept like process events.
    ///
    /// # Errors
    /// [`Error::Write`] if the sink fails.
    pub fn module(&mut self, module: PackedModule) -> Result<(), Error> {
        let kept_bytes: usize = self.modules.iter().map(|module| module.0.stored.len()).sum();
        if kept_bytes.saturating_add(module.0.stored.len()) > MAX_KEPT_SIDEBAND && kept_bytes > 0 {
            self.sideband_dropped += 1;
        } else {
            self.modules.push(module);
        }
        let written = self.write_modules();
        self.blocks.once(written)
    }

    /// Adds a gap.
    ///
    /// # Errors
    /// [`Error::Write`] if a block became full and the sink fails.
    pub fn gap(&mut self, gap: &Gap) -> Result<(), Error> {
        if self.gaps.payload().len() >= MAX_KEPT_GAPS {
            let written = self.write_gaps();
            if written.is_err() {
                self.gaps_dropped += 1;
                return self.blocks.once(written);
            }
        }
        self.gaps.push(gap);
        Ok(())
    }

    /// Adds a sample. With `scrub`, words and registers that point into none of these ranges are written as zero.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a sample beyond the format's limits (16 MiB of stack, 4,096 frames, 2,048 of a walk by
    /// call frame information), [`Error::ForeignRegisters`], [`Error::WalkWithoutEnd`] and [`Error::FrameOutOfPlace`]
    /// for values that the format cannot represent; such a sample is not in the recording. [`Error::Write`] if a block
    /// became full and the sink fails.
    pub fn sample(&mut self, sample: &Sample, scrub: Option<&MappingRanges>) -> Result<(), Error> {
        let cut_before =
            if self.samples.is_full_for(sample) { self.write_sideband().and(self.write_samples()) } else { Ok(()) };
        self.samples.push(sample, scrub, self.changes.repeats_since(sample))?;
        let cut_after =
            if self.samples.len() >= BLOCK_BYTES { self.write_sideband().and(self.write_samples()) } else { Ok(()) };
        self.blocks.once(cut_before.and(cut_after))
    }

    /// Starts a thread that encodes samples passed to [`Self::hand_over`].
    ///
    /// # Errors
    /// [`Error::Thread`] if no more threads can be started, [`Error::Write`] if the sink fails.
    pub fn add_worker(&mut self) -> Result<(), Error> {
        // Profiled threads are redistributed over the workers: their earlier samples must be in the sink first.
        let written = self.write_open_blocks();
        self.blocks.once(written)?;
        self.workers.add().map_err(Error::Thread)
    }

    /// Number of threads for [`Self::hand_over`].
    #[must_use]
    pub fn n_workers(&self) -> usize {
        self.workers.len()
    }

    /// Like [`Self::sample`], but by the threads of [`Self::add_worker`], if there are any. Then the order in the
    /// recording may differ, except for samples of one thread.
    ///
    /// # Errors
    /// Those of [`Self::sample`], for this sample or an earlier one.
    pub fn hand_over(&mut self, sample: &Sample, scrub: Option<&Arc<MappingRanges>>) -> Result<(), Error> {
        if self.workers.len() == 0 {
            return self.sample(sample, scrub.map(|ranges| &**ranges));
        }
        self.workers.encode(sample.clone(), scrub.cloned(), self.changes.repeats_since(sample));
        let written = self.write_finished(false);
        self.blocks.once(written)
    }

    /// Writes the current counters, so that a recording that breaks off can still be balanced by cause. Pass the
    /// counters of the samples handed over so far, then call [`Self::flush`].
    ///
    /// # Errors
    /// [`Error::Write`] if the sink fails.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let json = to_json("checkpoint", checkpoint)?;
        let written = self.write_open_blocks().and_then(|()| self.blocks.write(Kind::Checkpoint, 1, &[&json]));
        self.blocks.once(written)
    }

    /// Writes what was collected: after `Ok` (and not [`Self::is_failing`]) all of it is in the sink. Call it once per
    /// second.
    ///
    /// # Errors
    /// [`Error::Write`] if the sink fails.
    pub fn flush(&mut self) -> Result<(), Error> {
        let written = self.write_open_blocks().and_then(|()| self.blocks.flush());
        self.blocks.once(written)
    }

    /// Writes what was collected and the end. Unlike the other calls, it returns an error each time the sink fails.
    ///
    /// # Errors
    /// [`Error::Write`] if the sink fails.
    pub fn finish(&mut self, end: &End) -> Result<(), Error> {
        self.write_open_blocks()?;
        let json = to_json("end", end)?;
        self.blocks.write(Kind::End, 1, &[&json])?;
        self.blocks.flush()
    }

    /// Bytes the sink accepted, including those of broken-off blocks.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.blocks.bytes_written()
    }

    /// Whether the last attempt to write failed, or process events of an earlier one are still to be written.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.blocks.is_failing() || self.sideband_is_late || !self.modules.is_empty()
    }

    /// How many samples were written, by event and CPU. Samples in the open block are not counted.
    #[must_use]
    pub fn tallies(&self) -> &BTreeMap<(u16, u32), WriteTally> {
        &self.tallies
    }

    /// Process events discarded because the sink failed for too long.
    #[must_use]
    pub fn sideband_dropped(&self) -> u64 {
        self.sideband_dropped
    }

    /// Gaps discarded because the sink failed for too long. The balance still counts their samples.
    #[must_use]
    pub fn gaps_dropped(&self) -> u64 {
        self.gaps_dropped
    }

    /// The columns of the open block of samples with their names, for measurements of the format.
    #[doc(hidden)]
    pub fn open_columns(&mut self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.samples.columns()
    }

    /// Returns the sink. What was collected since the last flush is lost.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.blocks.into_inner()
    }

    fn write_open_blocks(&mut self) -> Result<(), Error> {
        let sideband = self.write_sideband().and(self.write_modules());
        sideband.and(self.write_samples()).and(self.write_finished(true)).and(self.write_gaps())
    }

    /// Writes the blocks that the workers have ready, or with `flushes` all they were given.
    fn write_finished(&mut self, flushes: bool) -> Result<(), Error> {
        let mut result = Ok(());
        for block in self.workers.finished(flushes) {
            let written = block.and_then(|block| self.write_packed(&block));
            result = result.and(written);
        }
        result
    }

    fn write_packed(&mut self, block: &PackedBlock) -> Result<(), Error> {
        // Process events are written before the samples that follow them.
        let written = self.write_sideband().and_then(|()| self.blocks.write_packed(Kind::Samples, block));
        count(&mut self.tallies, written.is_ok(), block.by_cpu.iter().copied());
        written
    }

    /// Writes the gaps. If that fails, they are kept like process events.
    fn write_gaps(&mut self) -> Result<(), Error> {
        if self.gaps.items() > 0 {
            self.blocks.write(Kind::Gaps, self.gaps.items(), &[self.gaps.payload()])?;
            self.gaps.clear();
        }
        Ok(())
    }

    /// Writes the events. If that fails, they are kept for the next block.
    fn write_sideband(&mut self) -> Result<(), Error> {
        if self.sideband.items() > 0 {
            let written = self.blocks.write(Kind::Sideband, self.sideband.items(), &[self.sideband.payload()]);
            self.sideband_is_late = written.is_err();
            written?;
            self.sideband.clear();
        }
        Ok(())
    }

    fn write_modules(&mut self) -> Result<(), Error> {
        while let Some(module) = self.modules.first() {
            self.blocks.write_packed(Kind::Sideband, &module.0)?;
            self.modules.remove(0);
        }
        Ok(())
    }

    fn write_samples(&mut self) -> Result<(), Error> {
        if self.samples.items() == 0 {
            return Ok(());
        }
        let items = self.samples.items();
        let written = self.blocks.write(Kind::Samples, items, self.samples.parts().as_ref());
        count(&mut self.tallies, written.is_ok(), self.samples.samples_by_cpu());
        self.samples.clear();
        written
    }
}

/// Counts the samples of a block.
fn count(
    tallies: &mut BTreeMap<(u16, u32), WriteTally>,
    is_written: bool,
    by_cpu: impl Iterator<Item = ((u16, u32), u64)>,
) {
    for (key, samples) in by_cpu {
        let tally = tallies.entry(key).or_default();
        *(if is_written { &mut tally.written } else { &mut tally.unwritten }) += samples;
    }
}

fn to_json(what: &'static str, value: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|source| Error::BadJson { what, source })
}
