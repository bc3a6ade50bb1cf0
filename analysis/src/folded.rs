//! Stacks with names, folded: equal stacks once, with their count. The model behind flame graphs and exports.

use fpprof_unwind::{Root, StopReason};
use std::collections::BTreeMap;

/// All stacks of a recording under one strategy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    /// Every distinct frame, in order of first use.
    pub frames: Vec<FrameLabel>,
    /// Distinct stacks, sorted; the same input gives the same order whatever the number of threads.
    pub stacks: Vec<FoldedStack>,
    /// What shares of them are counted in.
    pub unit: Unit,
}

/// What shares of stacks are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Samples, each as good as another.
    #[default]
    Samples,
    /// The time that threads were blocked, nanoseconds.
    BlockedNs,
}

impl Folded {
    /// How much of the unit a stack has.
    #[must_use]
    pub fn amount(&self, stack: &FoldedStack) -> u64 {
        match self.unit {
            Unit::Samples => stack.samples,
            Unit::BlockedNs => stack.weight,
        }
    }
}

/// Complete stacks by the names of their frames, root first, and their samples; of no module, and of a process without a name.
impl<'a> FromIterator<(&'a [&'a str], u64)> for Folded {
    fn from_iter<I: IntoIterator<Item = (&'a [&'a str], u64)>>(stacks: I) -> Self {
        let mut folded = Self::default();
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        for (names, samples) in stacks {
            let frames = names.iter().map(|&name| {
                *numbers.entry(name).or_insert_with(|| {
                    let label = FrameLabel { name: name.to_owned(), module: String::new(), origin: Origin::Cfi };
                    folded.frames.push(label);
                    u32::try_from(folded.frames.len() - 1).unwrap_or(u32::MAX)
                })
            });
            let (frames, stop) = (frames.collect(), StopReason::Complete(Root::Start));
            folded.stacks.push(FoldedStack { comm: String::new(), pid: 0, frames, stop, samples, weight: 0 });
        }
        folded
    }
}

/// A distinct stack of one process name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedStack {
    /// Process name (the thread's comm at the time of the sample).
    pub comm: String,
    /// Process.
    pub pid: u32,
    /// Indices into [`Folded::frames`], **root first**: user frames, then kernel frames.
    pub frames: Vec<u32>,
    /// Why the user stack ended (at the root side).
    pub stop: StopReason,
    /// Samples.
    pub samples: u64,
    /// What they stand for, in units of their event.
    pub weight: u64,
}

/// What stands below the frames of a stack that did not reach its root, such as `[broken: ra_not_exec]`; `None` for one
/// that did, or has no frames of its own to be under anything.
#[must_use]
pub fn marker(stop: StopReason) -> Option<String> {
    match stop {
        StopReason::Complete(_) | StopReason::NoStack(_) => None,
        StopReason::Truncated(_) | StopReason::Broken(_) => Some(format!("[{}: {}]", stop.class(), stop.name())),
    }
}

/// A frame as shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameLabel {
    /// Demangled name; `[module+0xoffset]` when the module has no symbol there, `[unknown 0xaddress]` when there
    /// is no module, `[unnamed]` for compiled code without a name.
    pub name: String,
    /// Base name of the module; empty when there is none, `[kernel]` for the kernel, `[jit]` for code
    /// compiled while it ran.
    pub module: String,
    /// How it was found.
    pub origin: Origin,
}

/// How a shown frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The sampled instruction.
    Leaf,
    /// Call frame information.
    Cfi,
    /// Frame pointer.
    FramePointer,
    /// Kernel frame.
    Kernel,
    /// A rule of ours where no information exists.
    Heuristic,
    /// A return address that no call can have left: forged, or left over.
    WithoutCall,
    /// No frame of its own: inlined into the frame it follows.
    Inlined,
}
