//! Reads, unwinds and collects samples on several threads.

use super::spaces::{PlacedSpace, Spaces};
use super::{Collect, Input, Seen};
use crate::address_space::{Place, SpaceKey, Timeline};
use crate::events::Selection;
use crate::kernel_walks::KernelWalks;
use crate::modules::ModuleTable;
use crate::strategy::{Item, Strategy, Unwound, Walker};
use fpprof_recording::model::{Arch, CaptureMode, Sample};
use fpprof_recording::{Error, Recording, SampleBlock};
use fpprof_unwind::{SharedRules, StackRef};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples unwound together: enough to interleave several walks.
const BATCH_SAMPLES: usize = 256;
/// A batch is closed at this many copied bytes, so that it stays in a core's cache.
const BATCH_BYTES: usize = 1 << 20;
/// The most spaces a thread caches, to avoid requesting them again.
const MAX_SPACES_AT_HAND: usize = 64;

/// The input for unwinding the samples of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    /// The mappings of all processes over time.
    pub timeline: &'a Timeline,
    /// The modules that were mapped.
    pub modules: &'a ModuleTable<'a>,
    /// The capture mode of the samples.
    pub mode: CaptureMode,
    /// The architecture of their registers.
    pub arch: Arch,
    /// The samples to unwind.
    pub selection: &'a Selection,
    /// The strategies to unwind each sample with.
    pub strategies: &'a [Strategy],
    /// Limits and options of strategies that use call frame information.
    pub unwinding: fpprof_unwind::Options,
}

/// Samples that are decoded together.
pub trait Block: Send {
    /// Calls `visit` with each sample, whose contents it may take.
    ///
    /// # Errors
    /// If the block is malformed; the samples before that point were visited.
    fn decode(self, visit: impl FnMut(&mut Sample)) -> Result<(), Error>;
}

impl Block for SampleBlock {
    fn decode(self, visit: impl FnMut(&mut Sample)) -> Result<(), Error> {
        Self::decode(&self, visit)
    }
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed<C> {
    /// The merged collectors.
    pub collected: C,
    /// Errors of malformed blocks; the samples before the malformed part were collected.
    pub malformed: Vec<Error>,
    /// How often an external library failed, by its error message.
    pub refused: BTreeMap<String, u64>,
    /// Walks in the kernel, if the strategy `cfi` was requested.
    pub kernel_walks: KernelWalks,
}

impl Replay<'_> {
    /// Unwinds every readable sample.
    ///
    /// # Errors
    /// [`Error::Read`] or [`Error::Changed`] if the recording cannot be read.
    pub fn run<C: Collect>(
        &self,
        recording: &mut Recording<dyn Input + '_>,
        n_threads: NonZeroUsize,
        make: impl Fn() -> C + Sync,
    ) -> Result<Replayed<C>, Error> {
        let all = self.run_blocks(recording.sample_blocks(), n_threads, make)?;
        for error in &all.malformed {
            recording.note(error);
        }
        Ok(all)
    }

    /// Unwinds the samples of blocks, up to the first block that cannot be read.
    ///
    /// # Errors
    /// Why that block cannot be read.
    pub fn run_blocks<B: Block, E: Send, C: Collect>(
        &self,
        blocks: impl Iterator<Item = Result<B, E>> + Send,
        n_threads: NonZeroUsize,
        make: impl Fn() -> C + Sync,
    ) -> Result<Replayed<C>, E> {
        let spaces = Spaces::new(self.timeline, self.modules);
        let rules = Arc::new(SharedRules::default());
        let blocks = Mutex::new(Source { blocks, failed: None });
        let next = || blocks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let mut done: Vec<Replayed<C>> = std::thread::scope(|scope| {
            let work = || Worker::new(self, &spaces, Arc::clone(&rules), make()).run(next);
            let others: Vec<_> = (1..n_threads.get()).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined =
                others.into_iter().map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            std::iter::once(own).chain(joined).collect()
        });
        if let Some(error) = blocks.into_inner().unwrap_or_else(PoisonError::into_inner).failed {
            return Err(error);
        }
        let kernel_walks = KernelWalks::default();
        let mut all = Replayed { collected: make(), malformed: Vec::new(), refused: BTreeMap::new(), kernel_walks };
        for part in done.drain(..) {
            all.collected.merge(part.collected);
            all.malformed.extend(part.malformed);
            all.kernel_walks.merge(part.kernel_walks);
            for (words, n) in part.refused {
                let total = all.refused.entry(words).or_default();
                *total = total.saturating_add(n);
            }
        }
        Ok(all)
    }
}

/// The remaining blocks, until reading fails.
struct Source<I, E> {
    blocks: I,
    failed: Option<E>,
}

impl<B, E, I: Iterator<Item = Result<B, E>>> Source<I, E> {
    fn next(&mut self) -> Option<B> {
        if self.failed.is_some() {
            return None;
        }
        match self.blocks.next()? {
            Ok(block) => Some(block),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

/// Samples of a batch and their places. The vectors are reused.
#[derive(Debug, Default)]
struct Batch {
    samples: Vec<Sample>,
    places: Vec<(Place, Arc<PlacedSpace>)>,
    n_bytes: usize,
}

/// The state of a thread.
struct Worker<'a, C> {
    replay: &'a Replay<'a>,
    spaces: &'a Spaces<'a>,
    at_hand: FxHashMap<Option<SpaceKey>, Arc<PlacedSpace>>,
    walker: Walker<'a>,
    batch: Batch,
    unwound: Vec<Unwound>,
    collected: C,
}

impl<'a, C: Collect> Worker<'a, C> {
    fn new(replay: &'a Replay<'a>, spaces: &'a Spaces<'a>, rules: Arc<SharedRules>, collected: C) -> Self {
        Self {
            replay,
            spaces,
            at_hand: FxHashMap::default(),
            walker: Walker::new(replay.modules, replay.mode, replay.arch, rules).with_options(replay.unwinding),
            batch: Batch::default(),
            unwound: replay.strategies.iter().map(|_| Unwound::default()).collect(),
            collected,
        }
    }

    fn run<B: Block>(mut self, next: impl Fn() -> Option<B>) -> Replayed<C> {
        let mut malformed = Vec::new();
        while let Some(block) = next() {
            malformed.extend(block.decode(|sample| self.take(sample)).err());
        }
        self.flush();
        let kernel_walks = self.walker.take_kernel_walks();
        Replayed { collected: self.collected, malformed, refused: self.walker.into_refused(), kernel_walks }
    }

    /// Moves a sample into the batch, and leaves an old one in its place to reuse its memory.
    fn take(&mut self, sample: &mut Sample) {
        if !self.replay.selection.has(sample.event) {
            return self.collected.pass(sample);
        }
        let place = self.replay.timeline.place(sample.pid, sample.tid, sample.time_ns);
        if !self.replay.selection.takes(sample, &place, self.replay.timeline) {
            return self.collected.leave(sample);
        }
        let space = self.space(place.space);
        let n = self.batch.places.len();
        if n == self.batch.samples.len() {
            self.batch.samples.push(Sample::default());
        }
        if let Some(slot) = self.batch.samples.get_mut(n) {
            std::mem::swap(slot, sample);
            self.batch.n_bytes = self.batch.n_bytes.saturating_add(slot.stack.len());
        }
        self.batch.places.push((place, space));
        if self.batch.places.len() >= BATCH_SAMPLES || self.batch.n_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    fn space(&mut self, key: Option<SpaceKey>) -> Arc<PlacedSpace> {
        if let Some(space) = self.at_hand.get(&key) {
            return Arc::clone(space);
        }
        if self.at_hand.len() >= MAX_SPACES_AT_HAND {
            self.at_hand.clear();
        }
        let space = self.spaces.get(key);
        self.at_hand.insert(key, Arc::clone(&space));
        space
    }

    /// Unwinds the batch under each strategy, and collects the results.
    fn flush(&mut self) {
        let Batch { samples, places, n_bytes } = &mut self.batch;
        let items: Vec<Item<'_>> = samples
            .iter()
            .zip(places.iter())
            .map(|(sample, (place, space))| Item { sample, place: *place, space })
            .collect();
        for (&strategy, unwound) in self.replay.strategies.iter().zip(&mut self.unwound) {
            self.walker.walk(strategy, &items, unwound);
        }
        let mut stacks: Vec<Option<StackRef<'_>>> = Vec::with_capacity(self.unwound.len());
        for (index, (item, (place, space))) in items.iter().zip(places.iter()).enumerate() {
            stacks.clear();
            stacks.extend(self.unwound.iter().map(|unwound| unwound.get(index)));
            let modules = self.replay.modules;
            self.collected.add(&Seen { sample: item.sample, place: *place, space, modules, stacks: &stacks });
        }
        places.clear();
        *n_bytes = 0;
    }
}
