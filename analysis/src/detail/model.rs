//! The model.

use crate::accuracy::Relation;
use crate::folded::Origin;
use fpprof_unwind::StopReason;

/// What a page shows beyond the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// Stacks of two strategies.
    pub stacks: PairedStacks,
    /// Samples and losses by time.
    pub over_time: OverTime,
}

/// The stacks of all samples under one or two strategies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PairedStacks {
    /// The strategy taken for the reference.
    pub reference: String,
    /// The strategy beside it; `None` where there is but one.
    pub other: Option<String>,
    /// Processes, most samples first.
    pub processes: Vec<Process>,
    /// Threads by process.
    pub threads: Vec<Thread>,
    /// Names of functions and base names of modules, distinct: what [`Node::label`] counts.
    pub labels: Vec<(String, String)>,
    /// The frames of all stacks as one tree; parents stand before their children.
    pub nodes: Vec<Node>,
    /// Samples by thread and pair of stacks.
    pub rows: Vec<PairRow>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its last name.
    pub comm: String,
    /// Its samples.
    pub samples: u64,
}

/// A thread under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Index of its process.
    pub process: u32,
    /// Its number.
    pub tid: u32,
    /// Its name at the time of the samples.
    pub comm: String,
}

/// A frame under its callers, or why they are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The node of its caller; `None` for the outermost frame, and for the end of stacks.
    pub parent: Option<u32>,
    /// Index of its label.
    pub label: u32,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A frame.
    Frame {
        /// How it was found.
        origin: Origin,
        /// Whether the other strategy has it too.
        mark: Mark,
    },
    /// No frame: below it stand the stacks that ended so before their root. What lies between is not known.
    End(StopReason),
}

/// Whether two strategies both have a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Both have it; also the sampled instruction, kernel frames, and every frame where there is one strategy.
    Same,
    /// Only the reference has it.
    Missing,
    /// Only the other has it, and it is wrong: the reference went on without it.
    Wrong,
    /// Only the other has it, beyond the end of a reference that did not reach its root.
    Beyond,
}

/// Samples of a thread with the same two stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairRow {
    /// Index of the thread.
    pub thread: u32,
    /// The leaf of the reference's stack; `None` for an empty one.
    pub reference: Option<u32>,
    /// The leaf of the other's stack.
    pub other: Option<u32>,
    /// How the reference's stack ended.
    pub reference_end: StopReason,
    /// How the other's stack ended.
    pub other_end: Option<StopReason>,
    /// What the other is to the reference; `None` where there is one strategy, or neither has a user frame.
    pub relation: Option<Relation>,
    /// How many.
    pub samples: u64,
}

/// Samples and losses by time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverTime {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Length of a slice, nanoseconds.
    pub slice_ns: u64,
    /// Slices with samples, ascending by number and process.
    pub slices: Vec<Slice>,
    /// Where samples were lost, by CPU and time.
    pub gaps: Vec<Gap>,
}

/// Samples of a process in a slice of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Number of the slice.
    pub number: u32,
    /// Index of the process in [`PairedStacks::processes`].
    pub process: u32,
    /// Complete, truncated and broken stacks of the reference.
    pub reference: [u64; 3],
    /// The same of the other; zeros where there is none.
    pub other: [u64; 3],
}

/// Samples that a CPU lost between two moments. Losses for one cause that are less than a slice apart are one gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u32,
    /// After this, nanoseconds since the start.
    pub from_ns: u64,
    /// Before this.
    pub to_ns: u64,
    /// How many.
    pub lost: u64,
    /// Why ([`LossCause::name`](fpprof_recording::model::LossCause::name)). `None` where the recording does not say when:
    /// then the moments are those of the samples around it.
    pub cause: Option<&'static str>,
}
