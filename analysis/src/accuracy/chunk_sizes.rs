//! What other chunk sizes would have given, computed from one recording.
//!
//! A stack that reached its root needed the bytes up to the CFA of the frame before its outermost one: its last return
//! address was read there, and all saved registers are below. A chunk of `n` bytes suffices exactly if that is at most
//! `n`, so one pass over the samples gives the whole curve.

use crate::address_space::{CommIx, Timeline};
use crate::fold::shown_comm;
use crate::replay::{Collect, Seen};
use crate::spread::{count, merge};
use fpprof_recording::model::Sample;
use fpprof_unwind::{Frame, StackRef, StopReason};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sizes are rounded up to a multiple of this.
const GRAIN_BYTES: u64 = 8;
/// Above this, sizes are rounded up to a page, to limit the number of distinct sizes.
const COARSE_ABOVE_BYTES: u64 = 256 << 10;

/// Bytes that stacks need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChunkSizes {
    /// Samples with a copied user stack, but for those that the recorder cut short (`shed`).
    pub samples: u64,
    /// All samples whose user stack would be copied in a mode that copies each.
    #[serde(default)]
    pub to_copy: u64,
    /// Samples that reached their root, by the bytes they needed.
    pub needed_bytes: BTreeMap<u64, u64>,
    /// Samples by the bytes from the stack pointer to the end of the stack, where that is known.
    pub depth_bytes: BTreeMap<u64, u64>,
    /// Samples whose stack end is not known.
    pub without_depth: u64,
}

impl ChunkSizes {
    /// Samples whose stacks a chunk of this size would have completed.
    #[must_use]
    pub fn complete_at(&self, bytes: u64) -> u64 {
        self.needed_bytes.range(..=bytes).map(|(_, n)| n).sum()
    }

    /// The smallest chunk that would have completed this share (0 to 1) of the samples; `None` if the recording does
    /// not show one.
    #[must_use]
    pub fn smallest_for(&self, share: f64) -> Option<u64> {
        let mut complete = 0;
        self.needed_bytes.iter().find_map(|(&bytes, &n)| {
            complete += n;
            (complete as f64 >= share * self.samples as f64).then_some(bytes)
        })
    }

    /// Mean bytes copied per sample with chunks of at most this size. A stack of unknown depth fills its chunk.
    #[must_use]
    pub fn mean_copied_at(&self, bytes: u64) -> f64 {
        let known: f64 = self.depth_bytes.iter().map(|(&depth, &n)| depth.min(bytes) as f64 * n as f64).sum();
        let all = known + bytes as f64 * self.without_depth as f64;
        if self.samples == 0 { 0.0 } else { all / self.samples as f64 }
    }

    fn add(&mut self, sample: &Sample, stack: StackRef<'_>) {
        self.samples += 1;
        if let Some(needed) = needed_bytes(sample, stack) {
            count(&mut self.needed_bytes, needed);
        }
        match depth(sample) {
            Some(depth) => count(&mut self.depth_bytes, grain(depth)),
            None => self.without_depth += 1,
        }
    }

    /// Adds the needs of other stacks.
    pub fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.to_copy += other.to_copy;
        self.without_depth += other.without_depth;
        merge(&mut self.needed_bytes, &other.needed_bytes);
        merge(&mut self.depth_bytes, &other.depth_bytes);
    }
}

/// What the stacks of all processes with one name need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedChunkSizes {
    /// Last name of the processes.
    pub comm: String,
    /// What their stacks need.
    pub sizes: ChunkSizes,
}

/// Measures the stacks of one strategy, the one that uses all copied bytes.
#[derive(Debug)]
pub struct ChunkSizeCounter<'a> {
    strategy: usize,
    timeline: &'a Timeline,
    names: FxHashMap<Name, ChunkSizes>,
}

/// Last name of a process, or its number if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Comm(CommIx),
    Pid(u32),
}

impl<'a> ChunkSizeCounter<'a> {
    /// Creates a counter for the stacks of strategy number `strategy`.
    #[must_use]
    pub fn new(strategy: usize, timeline: &'a Timeline) -> Self {
        Self { strategy, timeline, names: FxHashMap::default() }
    }

    /// Sum over all processes.
    #[must_use]
    pub fn total(&self) -> ChunkSizes {
        let mut total = ChunkSizes::default();
        self.names.values().for_each(|sizes| total.merge(sizes));
        total
    }

    /// Results by name, most samples first.
    #[must_use]
    pub fn names(self) -> Vec<NamedChunkSizes> {
        let comm = |name| match name {
            Name::Comm(comm) => shown_comm(self.timeline.comm(comm), 0),
            Name::Pid(pid) => shown_comm(&[], pid),
        };
        // Names with different bytes may be displayed alike.
        let mut by_name: BTreeMap<String, ChunkSizes> = BTreeMap::new();
        for (name, sizes) in self.names {
            by_name.entry(comm(name)).or_default().merge(&sizes);
        }
        let copied = by_name.into_iter().filter(|(_, sizes)| sizes.samples > 0);
        let mut all: Vec<_> = copied.map(|(comm, sizes)| NamedChunkSizes { comm, sizes }).collect();
        all.sort_by_key(|named| std::cmp::Reverse(named.sizes.samples));
        all
    }
}

impl Collect for ChunkSizeCounter<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let sample = seen.sample;
        let has_frames = !sample.user_fp.is_empty() || !sample.cfi_frames.is_empty();
        // If the stack was withheld, no chunk size would have copied it.
        if sample.withheld || (sample.user_regs.is_none() && !has_frames) {
            return;
        }
        let comm = seen.place.process.and_then(|process| self.timeline.last_comm(process));
        let comm = comm.filter(|&comm| !self.timeline.comm(comm).is_empty());
        let name = comm.map_or(Name::Pid(seen.sample.pid), Name::Comm);
        let sizes = self.names.entry(name).or_default();
        sizes.to_copy += 1;
        let is_whole = sample.user_regs.is_some() && sample.shed_from.is_none();
        if let Some(stack) = seen.stack(self.strategy).filter(|_| is_whole) {
            sizes.add(sample, stack);
        }
    }

    fn merge(&mut self, other: Self) {
        for (name, sizes) in other.names {
            self.names.entry(name).or_default().merge(&sizes);
        }
    }
}

/// Bytes from the stack pointer to the end of the stack, including an interrupted stack.
fn depth(sample: &Sample) -> Option<u64> {
    let current = sample.stack_end?.address.checked_sub(sample.user_regs?.sp())?;
    let interrupted = match &sample.interrupted {
        Some(own) => own.stack_end?.address.checked_sub(own.sp)?,
        None => 0,
    };
    current.checked_add(interrupted)
}

/// Bytes from the stack pointer up that a stack needed to reach its root, rounded as all such counts; `None` if it did
/// not reach it, or if a frame's position is not known or is on a stack that was not copied. A frame on an interrupted
/// stack needs all of the current one, too.
pub(crate) fn needed_bytes(sample: &Sample, stack: StackRef<'_>) -> Option<u64> {
    if !matches!(stack.stop, StopReason::Complete(_)) {
        return None;
    }
    let callees = stack.frames.split_last().map_or(&[][..], |(_, callees)| callees);
    let sp = sample.user_regs?.sp();
    let current = sp..=sample.stack_end.map_or(u64::MAX, |end| end.address);
    let interrupted = sample.interrupted.as_ref().map(|own| own.sp..=own.stack_end.map_or(u64::MAX, |end| end.address));
    let needed = |frame: &Frame| match &interrupted {
        _ if current.contains(&frame.cfa) => Some(frame.cfa - sp),
        Some(own) if own.contains(&frame.cfa) => {
            Some(current.end().saturating_sub(sp).saturating_add(frame.cfa - own.start()))
        }
        _ => None,
    };
    let most = callees.iter().try_fold(0, |most, frame| Some(needed(frame)?.max(most)));
    most.map(grain)
}

fn grain(bytes: u64) -> u64 {
    let grain = if bytes > COARSE_ABOVE_BYTES { 4096 } else { GRAIN_BYTES };
    bytes.checked_next_multiple_of(grain).unwrap_or(bytes)
}
