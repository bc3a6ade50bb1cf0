//! Walks by call frame information in the kernel: how many reached the outermost frame, why others did not, and whether
//! copied stacks give the same frames.

use fpprof_recording::model::{CfiEnd, CfiFrame, FoundBy, Sample};
use fpprof_unwind::{Frame, StackRef, StopReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Walks in the kernel, of the selected samples.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelWalks {
    /// Walks that reached the outermost frame.
    pub complete: u64,
    /// Walks that were given up, by reason ([`CfiEnd::name`]): their stacks were copied.
    pub misses: BTreeMap<String, u64>,
    /// Walks whose stacks were copied for comparison, and which are complete in both ways.
    pub verified: u64,
    /// Verified walks with different frames.
    pub different: u64,
}

impl KernelWalks {
    /// Number of walks that were given up.
    #[must_use]
    pub fn n_missed(&self) -> u64 {
        self.misses.values().fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// Number of all walks.
    #[must_use]
    pub fn n_walks(&self) -> u64 {
        self.complete.saturating_add(self.n_missed())
    }

    pub(crate) fn add(&mut self, sample: &Sample) {
        match sample.cfi_end {
            Some(end) if !end.is_complete() => *self.misses.entry(end.name().to_owned()).or_default() += 1,
            Some(_) => self.complete += 1,
            None => {}
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        let Self { complete, misses, verified, different } = other;
        self.complete += complete;
        self.verified += verified;
        self.different += different;
        for (reason, n) in misses {
            *self.misses.entry(reason).or_default() += n;
        }
    }

    /// Compares a walk with the stack unwound from the copied bytes of the same sample.
    pub(crate) fn verify(&mut self, walked: &Sample, copied: &StackRef<'_>) {
        let is_complete = walked.cfi_end.is_some_and(CfiEnd::is_complete);
        if !is_complete || !matches!(copied.stop, StopReason::Complete(_)) {
            return;
        }
        self.verified += 1;
        let frames = copied
            .frames
            .iter()
            .map(|Frame { address, cfa, flags, .. }| (*address, *cfa, flags.is_instruction, flags.fp_in_jit));
        let walked = walked.cfi_frames.iter().map(|&CfiFrame { address, cfa, is_instruction, found_by }| {
            (address, cfa, is_instruction, found_by == FoundBy::FramePointer)
        });
        self.different += u64::from(!frames.eq(walked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_unwind::{FrameFlags, FrameSource, Root, TruncatedReason};

    /// Check that walks are counted by their end, and compared with a copied stack only if both are complete.
    #[test]
    fn walks_are_counted_and_compared() {
        let walked = |cfi_end, cfas: &[u64]| {
            let frame = |&cfa| CfiFrame { address: 0x1000, cfa, is_instruction: false, found_by: FoundBy::Row };
            let frames = cfas.iter().map(frame);
            Sample { cfi_end, cfi_frames: frames.collect(), ..Sample::default() }
        };
        let whole = walked(Some(CfiEnd::UndefinedRa), &[0x7000, 0]);
        let missed = walked(Some(CfiEnd::NoRule), &[]);
        let mut walks = KernelWalks::default();
        [&whole, &missed, &missed, &walked(None, &[])].into_iter().for_each(|sample| walks.add(sample));
        assert_eq!((walks.complete, walks.n_missed(), walks.n_walks()), (1, 2, 3));

        let flags = FrameFlags::default();
        let frame = |cfa| Frame { address: 0x1000, cfa, source: FrameSource::Cfi, flags };
        let (complete, cut) =
            (StopReason::Complete(Root::UndefinedRa), StopReason::Truncated(TruncatedReason::ChunkEnd));
        for (walk, cfas, stop, counted) in [
            (&whole, [0x7000, 0], complete, (1, 0)),
            (&whole, [0x7008, 0], complete, (2, 1)),
            (&whole, [0x7008, 0], cut, (2, 1)),
            (&missed, [0x7000, 0], complete, (2, 1)),
        ] {
            walks.verify(walk, &StackRef { frames: &cfas.map(frame), stop });
            assert_eq!((walks.verified, walks.different), counted);
        }
        let mut sum = walks.clone();
        sum.merge(walks);
        assert_eq!((sum.complete, sum.n_missed(), sum.verified, sum.different), (2, 4, 4, 2));
    }
}
