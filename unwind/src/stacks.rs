//! The stacks of a batch.

use alloc::vec::Vec;

use crate::stack::{Frame, Stack, StopReason, TruncatedReason};

/// The stacks of many samples, in the order of the samples. Keeps its memory when reused.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    /// Frames, one vector per lane of the batch, so that no frame has to be moved.
    parts: Vec<Vec<Frame>>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Index into [`Stacks::parts`], and the range of frames there.
    pub(crate) part: usize,
    pub(crate) first: usize,
    pub(crate) n_frames: usize,
    pub(crate) stop: StopReason,
}

/// One of the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRef<'a> {
    /// Leaf first.
    pub frames: &'a [Frame],
    /// Why the walk ended.
    pub stop: StopReason,
}

impl StackRef<'_> {
    /// Copies the frames into an owned stack.
    #[must_use]
    pub fn to_stack(&self) -> Stack {
        Stack { frames: self.frames.to_vec(), stop: self.stop }
    }
}

impl Stacks {
    /// Number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Total number of frames.
    #[must_use]
    pub fn n_frames(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// The stack of sample `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<StackRef<'_>> {
        self.entries.get(index).map(|entry| self.stack(entry))
    }

    /// All stacks, in order.
    pub fn iter(&self) -> impl Iterator<Item = StackRef<'_>> {
        self.entries.iter().map(|entry| self.stack(entry))
    }

    fn stack(&self, entry: &Entry) -> StackRef<'_> {
        let part = self.parts.get(entry.part).and_then(|part| part.get(entry.first..));
        StackRef { frames: part.and_then(|part| part.get(..entry.n_frames)).unwrap_or(&[]), stop: entry.stop }
    }

    /// Clears all stacks, and makes room for `n` entries in `n_parts` parts.
    pub(crate) fn reset(&mut self, n: usize, n_parts: usize) {
        const NONE: StopReason = StopReason::Truncated(TruncatedReason::ChunkEmpty);
        self.parts.resize_with(n_parts, Vec::new);
        self.parts.iter_mut().for_each(Vec::clear);
        self.entries.clear();
        self.entries.resize(n, Entry { part: 0, first: 0, n_frames: 0, stop: NONE });
    }

    /// The frames of a part, for a lane to take and put back.
    pub(crate) fn part(&mut self, part: usize) -> Option<&mut Vec<Frame>> {
        self.parts.get_mut(part)
    }

    /// Sets where the frames of sample `index` are.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(index) {
            *place = entry;
        }
    }
}
