//! The model.

use crate::accuracy::Relation;
use crate::folded::Origin;
use fpprof_unwind::StopReason;

/// The contents of the HTML page beyond the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// Stacks of two strategies.
    pub stacks: PairedStacks,
    /// Samples and losses over time.
    pub over_time: OverTime,
}

/// The stacks of all samples under one or two strategies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PairedStacks {
    /// The reference strategy.
    pub reference: String,
    /// The strategy compared with it; `None` if there is only one.
    pub other: Option<String>,
    /// Processes, most samples first.
    pub processes: Vec<Process>,
    /// Threads by process.
    pub threads: Vec<Thread>,
    /// Distinct pairs of function name and base name of the module; [`Node::label`] is an index.
    pub labels: Vec<(String, String)>,
    /// The frames of all stacks as one tree; parents precede their children.
    pub nodes: Vec<Node>,
    /// Samples by thread and pair of stacks.
    pub rows: Vec<PairRow>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process ID.
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
    /// Thread ID.
    pub tid: u32,
    /// Its name at the time of the samples.
    pub comm: String,
}

/// A frame below its callers, or the reason why the callers are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The node of its caller; `None` for an outermost frame, and for the end of stacks.
    pub parent: Option<u32>,
    /// Index of its label.
    pub label: u32,
    /// The kind of node.
    pub kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A frame.
    Frame {
        /// How it was found.
        origin: Origin,
        /// Whether the other strategy has it, too.
        mark: Mark,
    },
    /// Not a frame: the parent of stacks that ended before their root for this reason. The frames in between are not
    /// known.
    End(StopReason),
}

/// Which strategies have a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Both; also the sampled instruction, kernel frames, and every frame if there is only one strategy.
    Same,
    /// Only the reference has it.
    Missing,
    /// Only the other has it, and it is wrong: the reference continues without it.
    Wrong,
    /// Only the other has it, after the end of a reference that did not reach its root.
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
    /// How the other stack relates to the reference's; `None` if there is one strategy, or neither has a user frame.
    pub relation: Option<Relation>,
    /// Number of samples.
    pub samples: u64,
}

/// Samples and losses over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverTime {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Length of a slice, nanoseconds.
    pub slice_ns: u64,
    /// Slices with samples, ascending by number and process.
    pub slices: Vec<Slice>,
    /// Lost samples, by CPU and time.
    pub gaps: Vec<Gap>,
}

/// Samples of a process in a time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Number of the slice.
    pub number: u32,
    /// Index of the process in [`PairedStacks::processes`].
    pub process: u32,
    /// Complete, truncated and broken stacks under the reference.
    pub reference: [u64; 3],
    /// The same under the other strategy; zeros if there is none.
    pub other: [u64; 3],
}

/// Samples that a CPU lost between two moments. Losses with one cause that are less than a slice apart are one gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u32,
    /// Start of the gap, nanoseconds since the start of the recording.
    pub from_ns: u64,
    /// End of the gap.
    pub to_ns: u64,
    /// Number of lost samples.
    pub lost: u64,
    /// The cause ([`LossCause::name`](fpprof_recording::model::LossCause::name)). `None` if the recording does not have
    /// the time: then the gap extends between the samples around it.
    pub cause: Option<&'static str>,
}
