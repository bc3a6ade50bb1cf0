//! Many stacks in one place.

use alloc::vec::Vec;

use crate::stack::{Frame, Stack, StopReason, TruncatedReason};

/// The stacks of many samples, in the order of the samples. Filled again and again it keeps its memory.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    /// Frames as the walks that take turns have found them, so that none is moved.
    parts: Vec<Vec<Frame>>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Whose frames they are, and which.
    pub(crate) part: usize,
    pub(crate) first: usize,
    pub(crate) n_frames: usize,
    pub(crate) stop: StopReason,
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
        self.parts.iter().map(Vec::len).sum()
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
        let part = self.parts.get(entry.part).and_then(|part| part.get(entry.first..));
        StackRef { frames: part.and_then(|part| part.get(..entry.n_frames)).unwrap_or(&[]), stop: entry.stop }
    }

    /// Forgets all stacks, and makes room for the entries of `n` others in so many parts.
    pub(crate) fn reset(&mut self, n: usize, n_parts: usize) {
        const NONE: StopReason = StopReason::Truncated(TruncatedReason::ChunkEmpty);
        self.parts.resize_with(n_parts, Vec::new);
        self.parts.iter_mut().for_each(Vec::clear);
        self.entries.clear();
        self.entries.resize(n, Entry { part: 0, first: 0, n_frames: 0, stop: NONE });
    }

    /// The frames of a part, to be added to and put back.
    pub(crate) fn part(&mut self, part: usize) -> Option<&mut Vec<Frame>> {
        self.parts.get_mut(part)
    }

    /// Says where the frames of the sample of this number are.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(index) {
            *place = entry;
        }
    }
}
