//! Carrying strategies out, a batch of samples at a time.

use super::Strategy;
use crate::address_space::Place;
use crate::modules::ModuleTable;
use crate::replay::PlacedSpace;
use fpprof_recording::model::{self, Abi, CaptureMode, ChunkHole, FpEnd, NO_PROCESS, Sample, UserRegs};
use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Chunk, Chunks, Job, Memory as _, NoStackReason, Options, Regs, Root,
    SharedRules, Stack, StackRef, Stacks, StopReason, TruncatedReason, Unwinder,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sample and where it was taken.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// Its process.
    pub place: Place,
    /// Its address space.
    pub space: &'a PlacedSpace,
}

/// Stacks of a batch under one strategy.
#[derive(Debug, Default)]
pub struct Unwound {
    batch: Stacks,
    /// Which stack of `batch` belongs to an item, or the item's own stack.
    slots: Vec<Slot>,
    own: Vec<Stack>,
    /// Stacks of earlier batches, for their memory.
    spare: Vec<Stack>,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Batch(usize),
    Own(usize),
}

impl Unwound {
    /// The stack of an item, by its place in the batch.
    #[must_use]
    pub fn get(&self, item: usize) -> Option<StackRef<'_>> {
        match *self.slots.get(item)? {
            Slot::Batch(index) => self.batch.get(index),
            Slot::Own(index) => self.own.get(index).map(|stack| StackRef { frames: &stack.frames, stop: stack.stop }),
        }
    }

    fn reset(&mut self) {
        self.slots.clear();
        self.spare.append(&mut self.own);
    }

    /// Adds the stack of the next item, filled by `fill`.
    fn add(&mut self, fill: impl FnOnce(&mut Stack)) {
        let mut stack = self.spare.pop().unwrap_or_default();
        stack.frames.clear();
        fill(&mut stack);
        self.slots.push(Slot::Own(self.own.len()));
        self.own.push(stack);
    }
}

/// What the copied bytes of one sample give to start from.
struct Start<'a> {
    regs: Regs,
    memory: Chunks<'a>,
}

/// Holes as the unwinder has them: those of the chunk, and of the interrupted stack's.
pub(super) type Holes = [Vec<(u32, u32)>; 2];

/// Unwinds samples under any strategy. One for each thread: it remembers rules, not samples.
#[derive(Debug)]
pub struct Walker<'a> {
    modules: &'a ModuleTable<'a>,
    mode: CaptureMode,
    arch: model::Arch,
    unwinder: Unwinder,
    #[cfg(any(feature = "libdw", feature = "libunwind"))]
    external: super::external::ExternalUnwinders,
}

impl<'a> Walker<'a> {
    /// A walker for samples of this mode and architecture. Walkers of several threads remember rules together if they are given the same
    /// `rules`; their modules and spaces must be the same then.
    #[must_use]
    pub fn new(modules: &'a ModuleTable<'a>, mode: CaptureMode, arch: model::Arch, rules: Arc<SharedRules>) -> Self {
        Self {
            modules,
            mode,
            arch,
            unwinder: Unwinder::with_rules(Options::default(), rules),
            #[cfg(any(feature = "libdw", feature = "libunwind"))]
            external: super::external::ExternalUnwinders::default(),
        }
    }

    /// The same with other limits and options. By default nothing is guessed: at an instruction of a missing module a
    /// guess would be wrong more often than not.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.unwinder = self.unwinder.with_options(options);
        self
    }

    /// How often a library of others could not work at all, by its words; such stacks are truncated without frames.
    #[must_use]
    pub fn into_refused(self) -> BTreeMap<String, u64> {
        #[cfg(any(feature = "libdw", feature = "libunwind"))]
        return self.external.refused;
        #[cfg(not(any(feature = "libdw", feature = "libunwind")))]
        BTreeMap::new()
    }

    /// The stacks of `items` under a strategy. `out` is filled anew.
    pub fn walk(&mut self, strategy: Strategy, items: &[Item<'_>], out: &mut Unwound) {
        out.reset();
        match strategy {
            Strategy::Fp if matches!(self.mode, CaptureMode::Dwarf { .. }) => self.walk_chunks_by_fp(items, out),
            Strategy::Fp => items.iter().for_each(|item| out.add(|stack| self.judge(item, stack))),
            Strategy::Dwarf => self.unwind(items, usize::MAX, out),
            Strategy::DwarfAt(bytes) => self.unwind(items, bytes as usize, out),
            Strategy::Elfutils | Strategy::Libunwind => self.ask(strategy, items, out),
        }
    }

    /// Call frame information over at most `max_bytes` of each chunk, from the stack pointer up.
    fn unwind(&mut self, items: &[Item<'_>], max_bytes: usize, out: &mut Unwound) {
        let holes: Vec<Holes> = items.iter().map(|item| holes(item.sample)).collect();
        let starts: Vec<Result<Start<'_>, StopReason>> =
            items.iter().zip(&holes).map(|(item, holes)| start(item, holes, max_bytes)).collect();
        let jobs: Vec<Job<'_, Chunks<'_>>> = items
            .iter()
            .zip(&starts)
            .filter_map(|(item, start)| {
                let Start { regs, memory } = start.as_ref().ok()?;
                Some(Job { space: &item.space.space, regs, memory: *memory })
            })
            .collect();
        self.unwinder.unwind_batch(self.modules, &jobs, &mut out.batch);
        let mut n_jobs = 0;
        for start in &starts {
            match start {
                Ok(_) => {
                    out.slots.push(Slot::Batch(n_jobs));
                    n_jobs += 1;
                }
                Err(stop) => out.add(|stack| stack.stop = *stop),
            }
        }
    }

    /// The chain that a profiler by frame pointers would have taken, from the copied bytes.
    fn walk_chunks_by_fp(&mut self, items: &[Item<'_>], out: &mut Unwound) {
        for item in items {
            let holes = holes(item.sample);
            out.add(|stack| match start(item, &holes, usize::MAX) {
                Ok(Start { regs, memory }) => {
                    self.unwinder.walk_frame_pointers(self.modules, &item.space.space, &regs, &memory, stack);
                }
                Err(stop) => stack.stop = stop,
            });
        }
    }

    /// What the recorded chain is worth.
    fn judge(&mut self, item: &Item<'_>, out: &mut Stack) {
        let Item { sample, space, .. } = item;
        if let Some(stop) = told_apart(sample) {
            out.stop = stop;
            return;
        }
        if has_no_user_stack(self.mode, item) {
            out.stop = without_stack(item);
            return;
        }
        if is_gone(item) {
            out.stop = StopReason::Truncated(TruncatedReason::ProcessGone);
            return;
        }
        if sample.user_fp.is_empty() {
            out.stop = StopReason::Truncated(TruncatedReason::ChunkEmpty);
            return;
        }
        let entry = |frame: &fpprof_recording::model::FpFrame| ChainEntry {
            address: frame.address,
            frame_address: frame.frame_address,
        };
        let entries: Vec<ChainEntry> = sample.user_fp.iter().map(entry).collect();
        let regs = match sample.user_regs.as_ref().map(unwind_regs).transpose() {
            Ok(regs) => regs,
            Err(stop) => return out.stop = stop,
        };
        let native = match self.arch {
            model::Arch::X86_64 => Arch::X86_64,
            model::Arch::Aarch64 => Arch::Aarch64,
        };
        let arch = regs.as_ref().map_or(native, Regs::arch);
        let last = sample.user_fp.last().map_or(0, |frame| frame.frame_address);
        let stack_end = memory(sample, &Holes::default(), usize::MAX).stack_end(last);
        let chain = Chain { entries: &entries, end: chain_end(sample.fp_end), arch, regs: regs.as_ref(), stack_end };
        self.unwinder.judge_chain(self.modules, &space.space, &chain, out);
        // Of a single address that perf took, nothing says that there was a return address, or which.
        let is_lone = entries.len() == 1 && chain.end == ChainEnd::Unknown && regs.is_none();
        if is_lone && matches!(out.stop, StopReason::Broken(_)) {
            out.stop = StopReason::Truncated(TruncatedReason::ChunkEmpty);
        }
    }

    #[cfg(any(feature = "libdw", feature = "libunwind"))]
    fn ask(&mut self, strategy: Strategy, items: &[Item<'_>], out: &mut Unwound) {
        for item in items {
            let holes = holes(item.sample);
            out.add(|stack| self.external.ask(strategy, self.modules, item, &holes, stack));
        }
    }

    #[cfg(not(any(feature = "libdw", feature = "libunwind")))]
    #[expect(clippy::unused_self, reason = "the other build asks its libraries")]
    fn ask(&mut self, _strategy: Strategy, items: &[Item<'_>], out: &mut Unwound) {
        // `Strategy::check` refuses these in this build.
        for _ in items {
            out.add(|stack| stack.stop = StopReason::Truncated(TruncatedReason::Budget));
        }
    }
}

/// Whether a sample has no user stack at all. Samples of mode `fp` have no registers to tell it by; there it is a thread
/// in the kernel without a chain, which has the interrupted instruction at least.
fn has_no_user_stack(mode: CaptureMode, Item { sample, .. }: &Item<'_>) -> bool {
    match mode {
        CaptureMode::Fp => sample.in_kernel && sample.user_fp.is_empty(),
        CaptureMode::Dwarf { .. } | CaptureMode::Both { .. } => sample.user_regs.is_none(),
    }
}

/// What a sample without a user stack is if the recording itself says why.
fn told_apart(sample: &Sample) -> Option<StopReason> {
    let reason = match (sample.in_exec, sample.entering_kernel) {
        (true, _) => NoStackReason::InExec,
        (false, true) => NoStackReason::EnteringKernel,
        (false, false) if sample.pid == NO_PROCESS => NoStackReason::Exiting,
        (false, false) => return None,
    };
    Some(StopReason::NoStack(reason))
}

/// What a sample without a user stack is: one of a kernel thread, or of a program's thread at its very end. Of a process
/// of which nothing was told it is not known which.
///
/// A program whose memory was gone already when the recorder read its name from `/proc` still looks like a kernel thread.
fn without_stack(item: &Item<'_>) -> StopReason {
    match (item.place.process, item.place.may_be_of_kernel && is_gone(item)) {
        (_, true) => StopReason::Complete(Root::KernelThread),
        (Some(_), false) => StopReason::NoStack(NoStackReason::Exiting),
        (None, false) => StopReason::Truncated(TruncatedReason::ProcessGone),
    }
}

/// Whether nothing is known of where the process has code. An address says nothing then, so there are no frames: every
/// return address would look like data, and a sound stack broken.
fn is_gone(item: &Item<'_>) -> bool {
    item.space.space.mappings().is_empty()
}

/// The registers to walk on from, or what the stack is without a walk.
pub(super) fn user_regs<'a>(item: &Item<'a>) -> Result<&'a UserRegs, StopReason> {
    if let Some(stop) = told_apart(item.sample) {
        return Err(stop);
    }
    let regs = item.sample.user_regs.as_ref().ok_or_else(|| without_stack(item))?;
    if is_gone(item) { Err(StopReason::Truncated(TruncatedReason::ProcessGone)) } else { Ok(regs) }
}

/// What to walk over, or what the stack is without a walk.
fn start<'a>(item: &Item<'a>, holes: &'a Holes, max_bytes: usize) -> Result<Start<'a>, StopReason> {
    let (sample, regs) = (item.sample, user_regs(item)?);
    Ok(Start { regs: unwind_regs(regs)?, memory: memory(sample, holes, max_bytes) })
}

/// What a collector that takes at most `max_bytes` from the stack pointers up would have copied: the interrupted stack gets
/// what the current one leaves.
pub(super) fn memory<'a>(sample: &'a Sample, [here, there]: &'a Holes, max_bytes: usize) -> Chunks<'a> {
    let left = max_bytes.saturating_sub(sample.stack_from_sp().len());
    let up_to = |bytes: &'a [u8], below: u8, n: usize| bytes.get(..n.saturating_add(below.into())).unwrap_or(bytes);
    let current = Chunk {
        start: sample.stack_start(),
        bytes: up_to(&sample.stack, sample.bytes_below_sp, max_bytes),
        stack_end: sample.stack_end.map(|end| end.address),
        holes: here,
    };
    let interrupted = sample.interrupted.as_ref().map(|own| Chunk {
        start: own.stack_start(),
        bytes: if left == 0 { &[] } else { up_to(&own.stack, own.bytes_below_sp, left) },
        stack_end: own.stack_end.map(|end| end.address),
        holes: there,
    });
    Chunks { current, interrupted }
}

fn holes(sample: &Sample) -> Holes {
    let pairs = |holes: &[ChunkHole]| holes.iter().map(|hole| (hole.offset, hole.len)).collect();
    [pairs(&sample.stack_holes), sample.interrupted.as_ref().map_or(Vec::new(), |own| pairs(&own.stack_holes))]
}

/// The registers as the unwinder numbers them; 32-bit code has its own numbers, and of ARM's nothing is known.
///
/// # Sources
/// System V psABI for AMD64, figure 3.36, and for Intel386 1.1, table 2.14.
fn unwind_regs(regs: &UserRegs) -> Result<Regs, StopReason> {
    Ok(match (regs.arch, regs.abi) {
        (model::Arch::X86_64, Abi::Bits64) => numbered(Arch::X86_64, regs.own()),
        (model::Arch::X86_64, Abi::Bits32) => {
            let [ax, dx, cx, bx, si, di, bp, sp, ..] = regs.values;
            numbered(Arch::I386, &[ax, cx, dx, bx, sp, bp, si, di, regs.ip()])
        }
        (model::Arch::Aarch64, Abi::Bits64) => numbered(Arch::Aarch64, regs.own()),
        (model::Arch::Aarch64, Abi::Bits32) => return Err(StopReason::Truncated(TruncatedReason::Abi32)),
    })
}

fn numbered(arch: Arch, values: &[u64]) -> Regs {
    let mut regs = Regs::new(arch);
    (0..).zip(values).for_each(|(register, value)| regs.set(register, *value));
    regs
}

fn chain_end(end: FpEnd) -> ChainEnd {
    match end {
        FpEnd::Unknown => ChainEnd::Unknown,
        FpEnd::Zero => ChainEnd::Zero,
        FpEnd::Unreadable => ChainEnd::Unreadable,
        FpEnd::NotAscending => ChainEnd::NotAscending,
        FpEnd::ZeroReturnAddress => ChainEnd::ZeroReturnAddress,
        FpEnd::MaxDepth => ChainEnd::MaxDepth,
    }
}
