//! Counting equal stacks.

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
    /// Process.
    pub pid: u32,
    /// Name of the thread.
    pub comm: Option<CommIx>,
    /// Why the user stack ended.
    pub stop: StopReason,
    /// Number of the list of frames.
    pub stack: u32,
}

/// How much of a distinct stack there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Samples.
    pub samples: u64,
    /// What they stand for, in units of their event.
    pub weight: u64,
}

impl Amount {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

/// Counts equal stacks, of all strategies.
#[derive(Debug, Default)]
pub struct Folder {
    frames: Interned<FrameKey>,
    stacks: FxHashMap<Box<[u32]>, u32>,
    counts: FxHashMap<StackKey, Amount>,
    /// The stack at hand, leaf first.
    current: Vec<u32>,
    recent: Recent,
}

impl Folder {
    /// Distinct frames; lists of frames refer to them by number.
    #[must_use]
    pub fn frames(&self) -> &[FrameKey] {
        self.frames.values()
    }

    /// Lists of frames, leaf first, by their number.
    pub fn stacks(&self) -> impl Iterator<Item = &[u32]> {
        let mut stacks: Vec<(&[u32], u32)> = self.stacks.iter().map(|(frames, &number)| (&**frames, number)).collect();
        stacks.sort_unstable_by_key(|&(_, number)| number);
        stacks.into_iter().map(|(frames, _)| frames)
    }

    /// How much of each distinct stack was seen, in no order.
    pub fn counts(&self) -> impl Iterator<Item = (&StackKey, &Amount)> {
        self.counts.iter()
    }

    fn count(&mut self, key: impl FnOnce(u32) -> StackKey, n: Amount) {
        let stack = match self.stacks.get(self.current.as_slice()) {
            Some(&stack) => stack,
            None => {
                let stack = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
                self.stacks.insert(self.current.as_slice().into(), stack);
                stack
            }
        };
        self.counts.entry(key(stack)).or_default().add(n);
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
    /// Takes a sample in as one of the process of that number.
    pub(crate) fn add_of(&mut self, pid: u32, seen: &Seen<'_>) {
        let one = Amount { samples: 1, weight: seen.sample.weight };
        self.current.clear();
        self.push_kernel(&seen.sample.kernel);
        let n_kernel = self.current.len();
        for (strategy, stack) in (0..).zip(seen.stacks) {
            self.current.truncate(n_kernel);
            for frame in stack.frames {
                let number = self.recent.number(frame, seen.space, seen.sample.time_ns, |key| self.frames.number(key));
                self.current.push(number);
            }
            let (comm, stop) = (seen.place.comm, stack.stop);
            self.count(|stack| StackKey { strategy, pid, comm, stop, stack }, one);
        }
    }
}

impl Collect for Folder {
    fn add(&mut self, seen: &Seen<'_>) {
        self.add_of(seen.sample.pid, seen);
    }

    fn merge(&mut self, other: Self) {
        let numbers: Vec<u32> = other.frames.values().iter().map(|&frame| self.frames.number(frame)).collect();
        let mut by_stack: Vec<Vec<(StackKey, Amount)>> = other.stacks.iter().map(|_| Vec::new()).collect();
        for (key, n) in other.counts {
            if let Some(keys) = by_stack.get_mut(key.stack as usize) {
                keys.push((key, n));
            }
        }
        for (frames, stack) in other.stacks {
            self.current.clear();
            self.current.extend(frames.iter().filter_map(|&frame| numbers.get(frame as usize)));
            for (key, n) in by_stack.get(stack as usize).into_iter().flatten() {
                self.count(|stack| StackKey { stack, ..*key }, *n);
            }
        }
    }
}
