//! The model.

use crate::folded::{Origin, Unit};
use crate::symbols::SourceLine;
use fpprof_recording::model::BuildId;
use fpprof_unwind::StopReason;
use std::ops::Range;
use std::time::Duration;

/// Whether samples keep their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Each sample stands alone, with its time and its CPU.
    Each,
    /// Equal stacks of a thread are one.
    Summed,
}

/// Which profiles to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profiles {
    /// None.
    #[default]
    None,
    /// That of the default strategy.
    OfDefault(Grouping),
    /// One for each strategy.
    OfEach(Grouping),
}

/// All samples of a recording under one strategy. The same recording gives the same profile at any number of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Where and when it was recorded, and by what.
    pub recorded: ProfileOrigin,
    /// The strategy that its stacks are unwound with.
    pub strategy: String,
    /// The events that its samples are of.
    pub events: Vec<ProfileEvent>,
    /// What its samples are counted in.
    pub unit: Unit,
    /// Whether its samples have their times.
    pub grouping: Grouping,
    /// From the start of the recording to its end, or to the last sample that was asked for.
    pub duration: Duration,
    /// The files that frames lie in.
    pub modules: Vec<ProfileModule>,
    /// Every distinct frame, in order of first use.
    pub frames: Vec<ProfileFrame>,
    /// Every distinct stack, in order of first use.
    pub stacks: Vec<ProfileStack>,
    /// Every thread, in order of first use.
    pub threads: Vec<ProfileThread>,
    /// By time; summed ones by thread.
    pub samples: Vec<ProfileSample>,
}

/// Where and when a profile was recorded, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOrigin {
    /// Program and version, such as `fpprof 0.2.0`; perf's where the file is perf's.
    pub recorder: String,
    /// `CLOCK_MONOTONIC` at the start, nanoseconds; of perf's files, which do not tell it, at the first sample.
    pub start_ns: u64,
    /// Nanoseconds since 1970 at the same moment; 0 if not known.
    pub start_unix_ns: u64,
    /// Name of the machine; empty if not known.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// Distribution.
    pub distribution: String,
}

/// An event that was sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEvent {
    /// perf's name, such as `cycles` or `cpu-clock`.
    pub name: String,
    /// What the weights of its samples count.
    pub weight: Weight,
    /// What each sample stands for, if that is the same for all.
    pub period: Option<u64>,
    /// Time from one sample of a CPU to the next, if that is the same for all.
    pub interval: Option<Duration>,
}

/// What weights of samples count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Time on a CPU, nanoseconds.
    CpuNs,
    /// Time that threads were blocked, nanoseconds.
    BlockedNs,
    /// Occurrences of the event.
    Occurrences,
}

/// A file that frames lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileModule {
    /// Path, as it was mapped.
    pub path: String,
    /// The last part of it.
    pub name: String,
    /// GNU build id.
    pub build_id: Option<BuildId>,
    /// Address of its first page by the file itself (SVMA); 0 for a file that is missing.
    pub base: u64,
    /// Addresses of its code, likewise; empty for a file that is missing.
    pub code: Range<u64>,
    /// Where in the file its code begins.
    pub file_offset: u64,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFrame {
    /// Index into [`Profile::modules`]; `None` for the kernel, compiled code, and where nothing is mapped.
    pub module: Option<u32>,
    /// An address of the module by the file itself (SVMA; of a missing module an offset in the file), or else in the
    /// process's or the kernel's memory. Of a return address, that of the byte before it.
    pub address: u64,
    /// How it was found.
    pub origin: Origin,
    /// Its function, and then what is inlined there, outermost first; at least one.
    pub functions: Vec<Function>,
}

/// A function at a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// See [`crate::folded::FrameLabel::name`]; without a line.
    pub name: String,
    /// See [`crate::folded::FrameLabel::module`].
    pub module: String,
    /// The line it is at, if lines are asked for and known.
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

/// A thread under one name, in one control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileThread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the process.
    pub process: String,
    /// Name of the thread when it was sampled.
    pub comm: String,
    /// Path of the process's control group then; empty if not known.
    pub cgroup: String,
}

/// A sample, or the sum of equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileSample {
    /// When, nanoseconds after the start of the recording; 0 if summed.
    pub time_ns: u64,
    /// Which CPU; 0 if summed.
    pub cpu: u32,
    /// Index into [`Profile::events`].
    pub event: u32,
    /// Index into [`Profile::threads`].
    pub thread: u32,
    /// Index into [`Profile::stacks`].
    pub stack: u32,
    /// Samples.
    pub samples: u64,
    /// What they stand for, in units of their event.
    pub weight: u64,
}
