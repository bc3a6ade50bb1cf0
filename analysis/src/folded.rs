//! Folded stacks with names: equal stacks are merged and counted. The model behind flame graphs and exports.

use fpprof_unwind::{Root, StopReason};
use std::collections::BTreeMap;

/// All stacks of a recording under one strategy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    /// Every distinct frame, in order of first use.
    pub frames: Vec<FrameLabel>,
    /// Distinct stacks, sorted; the same input gives the same order whatever the number of threads.
    pub stacks: Vec<FoldedStack>,
    /// Unit of their amounts.
    pub unit: Unit,
}

/// The unit in which stacks are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Number of samples.
    #[default]
    Samples,
    /// The time that threads were blocked, nanoseconds.
    BlockedNs,
    /// CPU time, nanoseconds: of samples that stand for different amounts of it.
    CpuNs,
}

impl Folded {
    /// The amount of a stack, in this unit.
    #[must_use]
    pub fn amount(&self, stack: &FoldedStack) -> u64 {
        match self.unit {
            Unit::Samples => stack.samples,
            Unit::BlockedNs | Unit::CpuNs => stack.weight,
        }
    }
}

/// Makes complete stacks from names of frames, root first, and samples; without module or process name.
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
    /// Process ID.
    pub pid: u32,
    /// Indices into [`Folded::frames`], **root first**: user frames, then kernel frames.
    pub frames: Vec<u32>,
    /// Why the user stack ended (at the root end).
    pub stop: StopReason,
    /// Samples.
    pub samples: u64,
    /// Sum of their weights, in units of their event.
    pub weight: u64,
}

/// The marker below the frames of a stack that did not reach its root, such as `[broken: ra_not_exec]`; `None` for one
/// that did, and for one without a user stack.
#[must_use]
pub fn marker(stop: StopReason) -> Option<String> {
    match stop {
        StopReason::Complete(_) | StopReason::NoStack(_) => None,
        StopReason::Truncated(_) | StopReason::Broken(_) => Some(format!("[{}: {}]", stop.class(), stop.name())),
    }
}

/// A frame for display.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameLabel {
    /// Demangled name; `[module+0xoffset]` if the module has no symbol there, `[unknown 0xaddress]` without a module,
    /// `[unnamed]` for JIT-compiled code without a name.
    pub name: String,
    /// Base name of the module; empty if there is none, `[kernel]` for the kernel, `[jit]` for JIT-compiled code.
    pub module: String,
    /// How it was found.
    pub origin: Origin,
}

/// How a frame was found, for display.
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
    /// A heuristic of ours where there is no unwind information.
    Heuristic,
    /// A return address that does not follow a call: forged or stale.
    WithoutCall,
    /// Not a physical frame: inlined into the frame before it.
    Inlined,
}
