//! A walk with ip, sp and fp only, by rules of eight bytes, one step at a time.

use alloc::vec::Vec;

use super::code::{NO_CFI, NOT_KNOWN_TO_BE_CODE};
use super::options::Options;
use super::outermost::near_end;
use crate::arch::Arch;
use crate::memory::Memory;
use crate::rule::{Kind, Rule};
use crate::stack::{BrokenReason, Frame, FrameFlags, FrameSource, Root, StopReason, TruncatedReason};

/// The position of a walk by rules, and the frames found so far.
#[derive(Debug, Default)]
pub(super) struct Lane {
    ip: u64,
    sp: u64,
    fp: u64,
    is_leaf: bool,
    /// The rule and the CFA of the frame being left; [`Rule::EMPTY`] if there is none.
    leaving: Rule,
    cfa: u64,
    /// Frames of this walk from `first` on; before them those of earlier walks.
    pub(super) frames: Vec<Frame>,
    first: usize,
    /// The rule was prefetched from the shared table.
    is_prefetched: bool,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Step {
    /// Reached the caller, or waits one round for a prefetch.
    #[default]
    On,
    /// The walk ended.
    Stop(StopReason),
    /// The walk needs all registers and must start anew.
    NeedsFull,
}

impl Lane {
    /// Creates a lane that appends to `frames`.
    pub(super) fn new(frames: Vec<Frame>) -> Self {
        Self { frames, ..Self::default() }
    }

    /// Starts a walk.
    #[inline]
    pub(super) fn start(&mut self, [ip, sp, fp]: [u64; 3]) {
        (self.ip, self.sp, self.fp, self.is_leaf) = (ip, sp, fp, true);
        self.leaving = Rule::EMPTY;
        self.first = self.frames.len();
        self.is_prefetched = false;
    }

    /// This walk's frames: index of the first, and how many.
    #[inline]
    pub(super) fn own(&self) -> (usize, usize) {
        (self.first, self.n_frames())
    }

    #[inline]
    fn n_frames(&self) -> usize {
        self.frames.len().wrapping_sub(self.first)
    }

    /// Removes this walk's frames.
    pub(super) fn undo(&mut self) {
        self.frames.truncate(self.first);
    }

    /// The address whose rule the next step follows.
    #[inline]
    pub(super) fn lookup(&self) -> u64 {
        self.ip.wrapping_sub(u64::from(!self.is_leaf))
    }

    /// Marks the rule as prefetched; true if it was not, so that the caller should prefetch it and wait a round.
    #[inline]
    pub(super) fn begin_lookup(&mut self) -> bool {
        !core::mem::replace(&mut self.is_prefetched, true)
    }

    /// Reads the caller's ip and fp, if a frame is being left.
    #[inline]
    pub(super) fn load_caller<Y: Memory>(&mut self, memory: &Y) -> Step {
        let (rule, cfa) = (core::mem::replace(&mut self.leaving, Rule::EMPTY), self.cfa);
        if rule == Rule::EMPTY {
            return Step::On;
        }
        self.ip = match memory.read_u64(cfa.wrapping_sub(8)) {
            Ok(address) => address,
            Err(fault) => return Step::Stop(fault.stop()),
        };
        if rule.is_fp_saved() {
            let fp_slot = cfa.wrapping_add(rule.fp_offset());
            if fp_slot < self.sp {
                match self.fp_below_sp(rule, fp_slot, memory) {
                    Some(value) => self.fp = value,
                    None => return Step::NeedsFull,
                }
            } else {
                match memory.read_u64(fp_slot) {
                    Ok(value) => self.fp = value,
                    Err(_) => return Step::NeedsFull,
                }
            }
        }
        self.sp = cfa;
        self.is_leaf = false;
        Step::On
    }

    /// Applies the frame's rule and prefetches what [`Self::load_caller`] reads, so that interleaved walks wait for memory
    /// together.
    #[inline]
    pub(super) fn apply_rule<Y: Memory>(&mut self, rule: Rule, options: &Options, memory: &Y) -> Step {
        self.is_prefetched = false;
        let cfa = if rule.is_simple() {
            rule.simple_cfa(self.sp, self.fp)
        } else {
            match rule.kind() {
                Kind::Plt => self.sp.wrapping_add(if self.ip & 15 >= rule.cfa_offset() { 16 } else { 8 }),
                Kind::Stop => return self.stop(rule, options, memory),
                _ => return Step::NeedsFull,
            }
        };
        // The full walk handles, and names, the unusual cases.
        if cfa & 7 != 0 || cfa <= self.sp {
            return Step::NeedsFull;
        }
        if self.n_frames() as u64 >= u64::from(options.max_depth) {
            return Step::Stop(StopReason::Truncated(TruncatedReason::MaxDepth));
        }
        memory.prefetch(cfa.wrapping_sub(8));
        memory.prefetch(cfa.wrapping_add(rule.fp_offset()));
        self.push(cfa);
        (self.leaving, self.cfa) = (rule, cfa);
        Step::On
    }

    /// The caller's fp if its slot is below sp, as [`Unwound::caller`](super::caller::Unwound::caller) finds it.
    #[cold]
    fn fp_below_sp<Y: Memory>(&self, rule: Rule, slot: u64, memory: &Y) -> Option<u64> {
        let in_memory = if self.is_leaf { memory.read_u64(slot).ok() } else { None };
        in_memory.or_else(|| rule.is_fp_restored().then_some(self.fp))
    }

    #[inline]
    fn push(&mut self, cfa: u64) {
        let source = if self.is_leaf { FrameSource::Registers } else { FrameSource::Cfi };
        let flags = FrameFlags { is_instruction: self.is_leaf, ..FrameFlags::default() };
        self.frames.push(Frame { address: self.ip, cfa, source, flags });
    }

    /// Ends a walk at a frame. The frame is kept unless it is a return address outside any code.
    fn stop<Y: Memory>(&mut self, rule: Rule, options: &Options, memory: &Y) -> Step {
        let mut stop = rule.stop_reason();
        if stop == NO_CFI && memory.stack_end(self.sp).is_some_and(|end| self.sp >= end) {
            stop = StopReason::Complete(if rule.is_at_entry() { Root::Start } else { Root::StackEnd });
        }
        let is_nowhere = stop == StopReason::Broken(BrokenReason::RaNotExec);
        let stop = if is_nowhere && self.is_leaf { NOT_KNOWN_TO_BE_CODE } else { stop };
        let may_be_outermost = || stop == NO_CFI && near_end(Arch::X86_64.spec(), memory, self.sp).is_some();
        if options.may_guess(stop) || may_be_outermost() {
            return Step::NeedsFull;
        }
        if is_nowhere && !self.is_leaf {
            return Step::Stop(stop);
        }
        if self.n_frames() as u64 >= u64::from(options.max_depth) {
            return Step::Stop(StopReason::Truncated(TruncatedReason::MaxDepth));
        }
        self.push(0);
        Step::Stop(stop)
    }
}
