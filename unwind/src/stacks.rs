//! Many stacks in one place.

use alloc::vec::Vec;

use crate::stack::{Frame, Stack, StopReason, TruncatedReason};

/// The stacks of many samples, in the order of the samples. Filled again and again it keeps its memory.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    first: usize,
    n_frames: u32,
    stop: StopReason,
}

/// One of many stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRef<'a> {
    /// Leaf first.
    pub frames: &'a [Frame],
    /// Why the walk ended.
    pub stop: StopReason,
}

impl StackRef<'_> {
    /// A stack of its own.
    #[must_use]
    pub fn to_stack(&self) -> Stack {
        Stack { frames: self.frames.to_vec(), stop: self.stop }
    }
}

impl Stacks {
    /// How many stacks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Frames of all stacks together.
    #[must_use]
    pub fn n_frames(&self) -> usize {
        self.frames.len()
    }

    /// The stack of the sample of this number.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<StackRef<'_>> {
        self.entries.get(index).map(|entry| self.stack(entry))
    }

    /// All stacks in order.
    pub fn iter(&self) -> impl Iterator<Item = StackRef<'_>> {
        self.entries.iter().map(|entry| self.stack(entry))
    }

    fn stack(&self, entry: &Entry) -> StackRef<'_> {
        let frames = self.frames.get(entry.first..).and_then(|frames| frames.get(..entry.n_frames as usize));
        StackRef { frames: frames.unwrap_or(&[]), stop: entry.stop }
    }

    /// Forgets all stacks, and makes room for the entries of `n` others.
    pub(crate) fn reset(&mut self, n: usize) {
        const NONE: StopReason = StopReason::Truncated(TruncatedReason::ChunkEmpty);
        self.frames.clear();
        self.entries.clear();
        self.entries.resize(n, Entry { first: 0, n_frames: 0, stop: NONE });
    }

    /// Sets the stack of the sample of this number.
    pub(crate) fn set(&mut self, index: usize, frames: &[Frame], stop: StopReason) {
        let first = self.frames.len();
        self.frames.extend_from_slice(frames);
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Entry { first, n_frames: u32::try_from(frames.len()).unwrap_or(u32::MAX), stop };
        }
    }
}
