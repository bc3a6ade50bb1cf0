//! Counts equal stacks.

use super::frame::for_lookup;
use super::recent::Recent;
use super::{FrameKey, Interned, Where};
use crate::address_space::CommIx;
use crate::folded::Origin;
use crate::replay::{Collect, Seen};
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;

/// A distinct stack of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// Number of the strategy.
    pub strategy: u32,
    /// Process ID.
    pub pid: u32,
    /// Name of the thread.
    pub comm: Option<CommIx>,
    /// Why the user stack ended.
    pub stop: StopReason,
    /// Number of the list of frames.
    pub stack: u32,
}

/// Count and weight of a distinct stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Samples.
    pub samples: u64,
    /// Sum of their weights, in units of their event.
    pub weight: u64,
}

impl Amount {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

/// Counts equal stacks of all strategies.
#[derive(Debug, Default)]
pub struct Folder {
    frames: Interned<FrameKey>,
    stacks: FxHashMap<Box<[u32]>, u32>,
    counts: FxHashMap<StackKey, Amount>,
    /// The current stack, leaf first.
    current: Vec<u32>,
    /// Numbers of the lists of frames of the last added sample, by strategy.
    added: Vec<Option<u32>>,
    recent: Recent,
}

impl Folder {
    /// Distinct frames; lists of frames refer to them by number.
    #[must_use]
    pub fn frames(&self) -> &[FrameKey] {
        self.frames.values()
    }

    /// Lists of frames, leaf first, ordered by their number.
    pub fn stacks(&self) -> impl Iterator<Item = &[u32]> {
        let mut stacks: Vec<(&[u32], u32)> = self.stacks.iter().map(|(frames, &number)| (&**frames, number)).collect();
        stacks.sort_unstable_by_key(|&(_, number)| number);
        stacks.into_iter().map(|(frames, _)| frames)
    }

    /// Each distinct stack with its amount, in no particular order.
    pub fn counts(&self) -> impl Iterator<Item = (&StackKey, &Amount)> {
        self.counts.iter()
    }

    /// The number of the current list of frames.
    fn stack_number(&mut self) -> u32 {
        if let Some(&stack) = self.stacks.get(self.current.as_slice()) {
            return stack;
        }
        let stack = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        self.stacks.insert(self.current.as_slice().into(), stack);
        stack
    }

    fn push_kernel(&mut self, chain: &[u64]) {
        for (depth, &address) in chain.iter().enumerate() {
            // The first is the sampled instruction, the others are return addresses.
            let lookup = if depth == 0 { address } else { address.wrapping_sub(1) };
            let frame = FrameKey { place: Where::Kernel(lookup), origin: Origin::Kernel, is_return: depth > 0 };
            self.current.push(self.frames.number(frame));
        }
    }
}

impl Folder {
    /// Adds a sample to process `pid`; returns the numbers of its lists of frames, by strategy.
    pub(crate) fn add_of(&mut self, pid: u32, seen: &Seen<'_>) -> &[Option<u32>] {
        let one = Amount { samples: 1, weight: seen.sample.weight };
        self.current.clear();
        self.push_kernel(&seen.sample.kernel);
        let n_kernel = self.current.len();
        self.added.clear();
        for (strategy, unwound) in (0..).zip(seen.stacks) {
            let Some(unwound) = unwound else {
                self.added.push(None);
                continue;
            };
            self.current.truncate(n_kernel);
            for frame in for_lookup(unwound.frames) {
                let number = self
                    .recent
                    .number(&frame, seen.space, seen.modules, seen.sample.time_ns, |key| self.frames.number(key));
                self.current.push(number);
            }
            let stack = self.stack_number();
            let key = StackKey { strategy, pid, comm: seen.place.comm, stop: unwound.stop, stack };
            self.counts.entry(key).or_default().add(one);
            self.added.push(Some(stack));
        }
        &self.added
    }

    /// Merges another folder; returns the numbers that its lists of frames have here.
    pub(crate) fn merge_numbered(&mut self, other: Self) -> Vec<u32> {
        let numbers: Vec<u32> = other.frames.values().iter().map(|&frame| self.frames.number(frame)).collect();
        let mut stacks = vec![0; other.stacks.len()];
        for (frames, stack) in other.stacks {
            self.current.clear();
            self.current.extend(frames.iter().filter_map(|&frame| numbers.get(frame as usize)));
            let number = self.stack_number();
            if let Some(slot) = stacks.get_mut(stack as usize) {
                *slot = number;
            }
        }
        for (key, n) in other.counts {
            let Some(&stack) = stacks.get(key.stack as usize) else { continue };
            self.counts.entry(StackKey { stack, ..key }).or_default().add(n);
        }
        stacks
    }
}

impl Collect for Folder {
    fn add(&mut self, seen: &Seen<'_>) {
        self.add_of(seen.sample.pid, seen);
    }

    fn merge(&mut self, other: Self) {
        self.merge_numbered(other);
    }
}
