//! The model.

use crate::folded::{Origin, Unit};
use crate::symbols::SourceLine;
use fpprof_recording::model::{BuildId, NO_PROCESS};
use fpprof_unwind::StopReason;
use std::ops::Range;
use std::time::Duration;

/// Whether samples keep their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Each sample separately, with its time and CPU.
    Each,
    /// Equal stacks of a thread are merged.
    Summed,
}

/// Which profiles to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profiles {
    /// None.
    #[default]
    None,
    /// Of the default strategy.
    OfDefault(Grouping),
    /// Of each strategy.
    OfEach(Grouping),
}

/// All samples of a recording under one strategy. The same recording gives the same profile on any number of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Where, when and by what it was recorded.
    pub recorded: ProfileOrigin,
    /// The strategy that its stacks were unwound with.
    pub strategy: String,
    /// The events of its samples.
    pub events: Vec<ProfileEvent>,
    /// The unit of its samples' amounts.
    pub unit: Unit,
    /// Whether its samples have their times.
    pub grouping: Grouping,
    /// Time from the start of the recording to its end, or to that of the selected range. If samples have no times, the length of
    /// that range.
    pub duration: Duration,
    /// The files that contain frames.
    pub modules: Vec<ProfileModule>,
    /// Every distinct frame, in order of first use.
    pub frames: Vec<ProfileFrame>,
    /// Every distinct stack, in order of first use.
    pub stacks: Vec<ProfileStack>,
    /// Every thread, in order of first use.
    pub threads: Vec<ProfileThread>,
    /// Sorted by time, or by thread if merged.
    pub samples: Vec<ProfileSample>,
}

/// Where, when and by what a profile was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOrigin {
    /// Program and version, such as `fpprof 0.2.0`; perf's for a perf.data file.
    pub recorder: String,
    /// `CLOCK_MONOTONIC` at the start, nanoseconds; for perf.data files, which lack it, at the first sample.
    pub start_ns: u64,
    /// Nanoseconds since 1970 at the same moment, or, if samples have no times, at the start of the selected range; 0 if not known.
    pub start_unix_ns: u64,
    /// Name of the machine; empty if not known.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// CPU model.
    pub cpu_model: String,
    /// Distribution.
    pub distribution: String,
}

/// A sampled event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEvent {
    /// perf's name, such as `cycles` or `cpu-clock`.
    pub name: String,
    /// The unit of its samples' weights.
    pub weight: Weight,
    /// The weight of a sample, if it is the same for all.
    pub period: Option<u64>,
    /// Time between samples of a CPU, if it is constant.
    pub interval: Option<Duration>,
}

/// The unit of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Time on a CPU, nanoseconds.
    CpuNs,
    /// Time that threads were blocked, nanoseconds.
    BlockedNs,
    /// Occurrences of the event.
    Occurrences,
}

/// A file that contains frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileModule {
    /// Its path when it was mapped.
    pub path: String,
    /// The base name of the path.
    pub name: String,
    /// GNU build ID.
    pub build_id: Option<BuildId>,
    /// Address of its first page (SVMA); 0 for a missing file.
    pub base: u64,
    /// Addresses of its code (SVMAs); empty for a missing file.
    pub code: Range<u64>,
    /// File offset of its code.
    pub file_offset: u64,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFrame {
    /// Index into [`Profile::modules`]; `None` for the kernel, JIT-compiled code, and unmapped addresses.
    pub module: Option<u32>,
    /// An address in the module (SVMA; in a missing module, a file offset), or else in the memory of the process or
    /// kernel. Return addresses are given as the byte before them.
    pub address: u64,
    /// How it was found.
    pub origin: Origin,
    /// Its function and those inlined into it there, outermost first; at least one.
    pub functions: Vec<Function>,
}

/// A function of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// See [`crate::folded::FrameLabel::name`]; without a line.
    pub name: String,
    /// See [`crate::folded::FrameLabel::module`].
    pub module: String,
    /// Its source line, if lines are asked for and known.
    pub line: Option<SourceLine>,
}

/// A distinct stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileStack {
    /// Indices into [`Profile::frames`], **leaf first**: kernel frames, then user frames.
    pub frames: Vec<u32>,
    /// Why the user stack ended.
    pub stop: StopReason,
}

/// A thread with one name, in one control group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileThread {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Name of the process.
    pub process: String,
    /// Name of the thread at the time of the samples.
    pub comm: String,
    /// Path of the process's control group at that time; empty if not known.
    pub cgroup: String,
    /// What is kept of the process's environment, as in
    /// [`Cgroup::environment`](fpprof_recording::model::Cgroup::environment); empty unless a recorder was told to keep
    /// something.
    pub environment: Vec<u8>,
    /// Names and values of the process's labels, sorted by name; none unless the caller adds them.
    pub labels: Vec<(String, String)>,
}

impl ProfileThread {
    /// Its thread ID; `None` of an idle CPU, of a thread that had none any more, and if a store does not have it.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        Some(self.tid).filter(|&tid| tid > 0 && tid != NO_PROCESS)
    }
}

/// A sample, or the sum of equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileSample {
    /// Time, nanoseconds since the start of the recording; 0 if merged.
    pub time_ns: u64,
    /// CPU; 0 if merged.
    pub cpu: u32,
    /// Index into [`Profile::events`].
    pub event: u32,
    /// Index into [`Profile::threads`].
    pub thread: u32,
    /// Index into [`Profile::stacks`].
    pub stack: u32,
    /// Samples.
    pub samples: u64,
    /// Sum of their weights, in units of their event.
    pub weight: u64,
}
