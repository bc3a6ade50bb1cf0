//! Carries out strategies, on a batch of samples at a time.

use super::Strategy;
use super::item::{Copied, Holes, Item, copied, holes, is_gone, no_stack_reason, user_regs, without_stack};
use crate::kernel_walks::KernelWalks;
use crate::modules::{BySframe, ModuleTable};
use crate::replay::PlacedSpace;
use fpprof_recording::model::{self, Abi, CaptureMode, CfiEnd, FoundBy, FpEnd, Sample, UserRegs};
use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Chunk, Fallback, Frame, FrameFlags, FrameSource, Job, Memory as _, Modules,
    Options, Regs, Root, SharedRules, Stack, StackRef, Stacks, StopReason, TruncatedReason, Unwinder,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stacks of a batch under one strategy.
#[derive(Debug, Default)]
pub struct Unwound {
    batch: Stacks,
    /// For each item, the index of its stack in `batch` or `own`.
    slots: Vec<Slot>,
    own: Vec<Stack>,
    /// Stacks of earlier batches, kept to reuse their memory.
    spare: Vec<Stack>,
    /// For each item, whether its chunk ends early because the recorder cut it short.
    shed: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Batch(usize),
    Own(usize),
    /// The strategy needs a copy of the stack, and none was to be made.
    None,
}

impl Unwound {
    /// The stack of an item, by its index in the batch; `None` if the strategy needs a copy of the stack, and none was to
    /// be made.
    #[must_use]
    pub fn get(&self, item: usize) -> Option<StackRef<'_>> {
        let mut stack = match *self.slots.get(item)? {
            Slot::Batch(index) => self.batch.get(index),
            Slot::Own(index) => self.own.get(index).map(|stack| StackRef { frames: &stack.frames, stop: stack.stop }),
            Slot::None => None,
        }?;
        let is_shed = self.shed.get(item).is_some_and(|&is_shed| is_shed);
        if is_shed && stack.stop == StopReason::Truncated(TruncatedReason::ChunkEnd) {
            stack.stop = StopReason::Truncated(TruncatedReason::Shed);
        }
        Some(stack)
    }

    fn reset(&mut self) {
        self.slots.clear();
        self.shed.clear();
        self.spare.append(&mut self.own);
    }

    /// Adds the stack of the next item, written by `fill`.
    fn add(&mut self, fill: impl FnOnce(&mut Stack)) {
        let mut stack = self.spare.pop().unwrap_or_default();
        stack.frames.clear();
        fill(&mut stack);
        self.slots.push(Slot::Own(self.own.len()));
        self.own.push(stack);
    }
}

/// The start of a walk over the copied bytes of one sample.
struct Start<'a> {
    regs: Regs,
    copied: Copied<'a>,
}

/// Unwinds samples under any strategy. Each thread has its own: it caches rules, not samples.
#[derive(Debug)]
pub struct Walker<'a> {
    modules: &'a ModuleTable<'a>,
    mode: CaptureMode,
    arch: model::Arch,
    unwinder: Unwinder,
    /// A separate unwinder, since its rules differ from those of call frame information.
    by_sframe: Unwinder,
    walks: KernelWalks,
    #[cfg(any(feature = "libdw", feature = "libunwind"))]
    external: super::external::ExternalUnwinders,
}

impl<'a> Walker<'a> {
    /// Creates a walker for samples of this mode and architecture. Walkers of several threads can share `rules`; their
    /// modules and spaces must be the same then.
    #[must_use]
    pub fn new(modules: &'a ModuleTable<'a>, mode: CaptureMode, arch: model::Arch, rules: Arc<SharedRules>) -> Self {
        Self {
            modules,
            mode,
            arch,
            unwinder: Unwinder::with_rules(Options::default(), rules),
            by_sframe: Unwinder::default(),
            walks: KernelWalks::default(),
            #[cfg(any(feature = "libdw", feature = "libunwind"))]
            external: super::external::ExternalUnwinders::default(),
        }
    }

    /// Sets other limits and options. By default nothing is guessed: at an instruction of a missing module a guess
    /// would be wrong more often than not.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.unwinder = self.unwinder.with_options(options);
        self.by_sframe = self.by_sframe.with_options(options);
        self
    }

    /// Returns and resets the counts of kernel walks, as far as strategies used them.
    pub fn take_kernel_walks(&mut self) -> KernelWalks {
        std::mem::take(&mut self.walks)
    }

    /// How often an external library failed, by its error message; such stacks are truncated and without frames.
    #[must_use]
    pub fn into_refused(self) -> BTreeMap<String, u64> {
        #[cfg(any(feature = "libdw", feature = "libunwind"))]
        return self.external.refused;
        #[cfg(not(any(feature = "libdw", feature = "libunwind")))]
        BTreeMap::new()
    }

    /// Writes the stacks of `items` under a strategy to `out`, which is overwritten.
    pub fn walk(&mut self, strategy: Strategy, items: &[Item<'_>], out: &mut Unwound) {
        out.reset();
        out.shed.extend(items.iter().map(|item| ends_by_shedding(item.sample, strategy)));
        if !self.mode.copies_some() || strategy == Strategy::Fp {
            return self.walk_all(strategy, items, out);
        }
        let copied: Vec<Item<'_>> = items.iter().filter(|item| item.sample.is_copied()).copied().collect();
        self.walk_all(strategy, &copied, out);
        let mut slots = std::mem::take(&mut out.slots).into_iter();
        let slot = |item: &Item<'_>| if item.sample.is_copied() { slots.next() } else { None };
        out.slots = items.iter().map(slot).map(|slot| slot.unwrap_or(Slot::None)).collect();
    }

    fn walk_all(&mut self, strategy: Strategy, items: &[Item<'_>], out: &mut Unwound) {
        match strategy {
            Strategy::Fp if matches!(self.mode, CaptureMode::Dwarf { .. }) => self.walk_chunks_by_fp(items, out),
            Strategy::Fp => items.iter().for_each(|item| out.add(|stack| self.judge(item, stack))),
            Strategy::Dwarf => unwind(&mut self.unwinder, self.modules, items, usize::MAX, out),
            Strategy::DwarfAt(bytes) => unwind(&mut self.unwinder, self.modules, items, bytes as usize, out),
            Strategy::Cfi => self.take_walks(items, out),
            Strategy::Sframe => unwind(&mut self.by_sframe, &BySframe(self.modules), items, usize::MAX, out),
            Strategy::Elfutils | Strategy::Libunwind => self.ask(strategy, items, out),
        }
    }

    /// Uses the kernel's walks; if there is none, unwinds the copied bytes.
    fn take_walks(&mut self, items: &[Item<'_>], out: &mut Unwound) {
        let is_copied = |item: &Item<'_>| complete_walk(item).is_none() || !item.sample.stack.is_empty();
        let copied: Vec<Item<'_>> = items.iter().filter(|item| is_copied(item)).copied().collect();
        unwind(&mut self.unwinder, self.modules, &copied, usize::MAX, out);
        for (n, item) in copied.iter().enumerate() {
            if let Some(stack) = out.get(n) {
                self.walks.verify(item.sample, &stack);
            }
        }
        let mut slots = std::mem::take(&mut out.slots).into_iter();
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let copied = if is_copied(item) { slots.next() } else { None };
            match complete_walk(item) {
                Some(root) => {
                    let fallback = self.unwinder.options().fallback;
                    out.add(|stack| walked(item, root, fallback, stack));
                    all.append(&mut out.slots);
                }
                None => all.extend(copied),
            }
            self.walks.add(item.sample);
        }
        out.slots = all;
    }

    /// Walks the copied bytes as a frame-pointer profiler would have.
    fn walk_chunks_by_fp(&mut self, items: &[Item<'_>], out: &mut Unwound) {
        for item in items {
            let holes = holes(item.sample);
            out.add(|stack| match start(item, &holes, usize::MAX) {
                Ok(Start { regs, copied }) => {
                    let (space, memory) = (&item.space.space, copied.memory());
                    self.unwinder.walk_frame_pointers(self.modules, space, &regs, &memory, stack);
                }
                Err(stop) => stack.stop = stop,
            });
        }
    }

    /// The architecture of the module at an address.
    fn arch_at(&self, space: &PlacedSpace, address: u64) -> Option<Arch> {
        let module = space.space.find(address)?.module?;
        Some(self.modules.module(module).ok()?.arch())
    }

    /// Judges the recorded chain.
    fn judge(&mut self, item: &Item<'_>, out: &mut Stack) {
        let Item { sample, space, .. } = item;
        if let Some(stop) = no_stack_reason(sample) {
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
        // Without registers, only the code tells 32-bit processes from others.
        let of_code = || entries.iter().find_map(|entry| self.arch_at(space, entry.address));
        let arch = regs.as_ref().map(Regs::arch).or_else(of_code).unwrap_or(native);
        let last = sample.user_fp.last().map_or(0, |frame| frame.frame_address);
        let stack_end = copied(sample, &Holes::default(), usize::MAX).memory().stack_end(last);
        let chain = Chain { entries: &entries, end: chain_end(sample.fp_end), arch, regs: regs.as_ref(), stack_end };
        self.unwinder.judge_chain(self.modules, &space.space, &chain, out);
        // A chain of a single address from perf does not show whether there was a return address, or which.
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
        // `Strategy::check` refuses these strategies in this build.
        for _ in items {
            out.add(|stack| stack.stop = StopReason::Truncated(TruncatedReason::Budget));
        }
    }
}

/// Whether a strategy comes to the end of the copied bytes because the recorder cut them short.
fn ends_by_shedding(sample: &Sample, strategy: Strategy) -> bool {
    let uses = if let Strategy::DwarfAt(bytes) = strategy { u64::from(bytes) } else { u64::MAX };
    sample.shed_from.is_some() && sample.copied_bytes() < uses
}

/// The root that the kernel's walk of a sample reached, if it did.
fn complete_walk(item: &Item<'_>) -> Option<Root> {
    Some(match item.sample.cfi_end.filter(|_| !item.sample.cfi_frames.is_empty())? {
        CfiEnd::UndefinedRa => Root::UndefinedRa,
        CfiEnd::Start => Root::Start,
        CfiEnd::ThreadStart => Root::ThreadStart,
        CfiEnd::StartContext => Root::StartContext,
        CfiEnd::Goexit => Root::Goexit,
        CfiEnd::G0 => Root::G0,
        _ => return None,
    })
}

/// The stack walked by the kernel; without a fallback, up to where it followed frame pointers.
fn walked(item: &Item<'_>, root: Root, fallback: Fallback, out: &mut Stack) {
    out.stop = StopReason::Complete(root);
    if is_gone(item) {
        out.stop = StopReason::Truncated(TruncatedReason::ProcessGone);
        return;
    }
    out.frames.extend(item.sample.cfi_frames.iter().enumerate().map(|(number, frame)| {
        let source = match frame.found_by {
            FoundBy::Row if number == 0 => FrameSource::Registers,
            FoundBy::Row => FrameSource::Cfi,
            FoundBy::FramePointer => FrameSource::FramePointer,
            FoundBy::LastWord => FrameSource::Heuristic,
        };
        let fp_in_jit = frame.found_by == FoundBy::FramePointer;
        let flags = FrameFlags { is_instruction: frame.is_instruction, fp_in_jit, ..FrameFlags::default() };
        Frame { address: frame.address, cfa: frame.cfa, source, flags }
    }));
    if fallback == Fallback::None
        && let Some(first) = out.frames.iter().position(|frame| frame.flags.fp_in_jit)
    {
        out.frames.truncate(first);
        let Some(last) = out.frames.last_mut() else { return };
        last.cfa = 0;
        let is_in_file = item.space.space.find(last.lookup()).is_some_and(|mapping| mapping.module.is_some());
        let reason = if is_in_file { TruncatedReason::NoCfi } else { TruncatedReason::NoModule };
        out.stop = StopReason::Truncated(reason);
    }
}

/// Unwinds by the modules' rows over at most `max_bytes` of each chunk, from the stack pointer up.
fn unwind<M: Modules + ?Sized>(
    unwinder: &mut Unwinder,
    modules: &M,
    items: &[Item<'_>],
    max_bytes: usize,
    out: &mut Unwound,
) {
    let holes: Vec<Holes> = items.iter().map(|item| holes(item.sample)).collect();
    let starts: Vec<Result<Start<'_>, StopReason>> =
        items.iter().zip(&holes).map(|(item, holes)| start(item, holes, max_bytes)).collect();
    // Samples with two stacks are few, and batches of them are slower.
    let jobs: Vec<Job<'_, Chunk<'_>>> = items
        .iter()
        .zip(&starts)
        .filter_map(|(item, start)| match start {
            Ok(Start { regs, copied: Copied { current, interrupted: None } }) => {
                Some(Job { space: &item.space.space, regs, memory: *current })
            }
            _ => None,
        })
        .collect();
    unwinder.unwind_batch(modules, &jobs, &mut out.batch);
    let mut n_jobs = 0;
    for (item, start) in items.iter().zip(&starts) {
        match start {
            Ok(Start { copied: Copied { interrupted: None, .. }, .. }) => {
                out.slots.push(Slot::Batch(n_jobs));
                n_jobs += 1;
            }
            Ok(Start { regs, copied }) => {
                out.add(|stack| unwinder.unwind(modules, &item.space.space, regs, &copied.memory(), stack));
            }
            Err(stop) => out.add(|stack| stack.stop = *stop),
        }
    }
}

/// Whether a sample has no user stack at all. Samples of mode `fp` have no registers that would show it. There it is a
/// thread in the kernel without a chain: a chain has at least the interrupted instruction.
fn has_no_user_stack(mode: CaptureMode, Item { sample, .. }: &Item<'_>) -> bool {
    match mode {
        CaptureMode::Fp => sample.in_kernel && sample.user_fp.is_empty(),
        CaptureMode::Dwarf { .. } => sample.user_regs.is_none(),
        // Where some stacks only are copied, the others leave no registers in the sample.
        CaptureMode::Both { .. } => sample.user_regs.is_none() && sample.user_fp.is_empty(),
        // A complete walk leaves no registers in the sample.
        CaptureMode::Cfi { .. } => sample.user_regs.is_none() && sample.cfi_frames.is_empty(),
    }
}

/// The start of the walk, or the stop reason if there is no walk.
fn start<'a>(item: &Item<'a>, holes: &'a Holes, max_bytes: usize) -> Result<Start<'a>, StopReason> {
    let (sample, regs) = (item.sample, user_regs(item)?);
    Ok(Start { regs: unwind_regs(regs)?, copied: copied(sample, holes, max_bytes) })
}

/// The registers in the unwinder's numbering; 32-bit x86 code has its own, and 32-bit ARM is not supported.
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
