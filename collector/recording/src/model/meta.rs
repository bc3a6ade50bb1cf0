//! Options and environment of a recording.

use super::machine::{Arch, Machine};
use super::sideband::BuildId;
use serde::{Deserialize, Serialize};

/// The first block of every recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the program that wrote the recording, such as `0.2.0`.
    pub tool_version: String,
    /// `CLOCK_MONOTONIC` at the start of the recording, nanoseconds.
    pub start_ns: u64,
    /// `CLOCK_REALTIME` at the same moment, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// The machine.
    pub host: Host,
    /// The collector.
    pub collector: Collector,
    /// The sampling events; [`super::Sample::event`] is an index.
    pub events: Vec<Event>,
    /// The contents of every sample.
    pub mode: CaptureMode,
    /// Whether kernel stacks were requested.
    pub kernel_stacks: bool,
    /// Whether words that point into no mapping were zeroed before they were written (`false`: `--keep-raw-stacks`).
    pub scrubbed: bool,
    /// What was profiled.
    pub target: Target,
    /// Ticks that are not counted in the balance; empty if every tick is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<NotCounted>,
    /// If equal samples are written once with their number: how far their times may be apart, nanoseconds. All of them
    /// have the time of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregated_ns: Option<u64>,
}

/// Ticks that are in no part of the balance, not even `fired`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NotCounted {
    /// Ticks in the kernel: the event excludes them, as required for unprivileged users.
    KernelTicks,
    /// Samples lost after the last one read from a CPU's ring buffer: kernels before 6.0 do not count them.
    LastLosses,
    /// The first sampling period of every thread that began during the recording: each thread has its own counter, and
    /// one that ends before its first period is not seen.
    FirstPeriods,
}

/// The recorded machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -n`; empty if unknown, and in older recordings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `uname -m`, such as `x86_64`.
    pub arch: String,
    /// `uname -r`.
    pub kernel: String,
    /// `model name` of `/proc/cpuinfo`.
    pub cpu_model: String,
    /// CPUs online when the recording started.
    pub cpus_online: u32,
    /// Memory in bytes (`MemTotal`).
    pub memory_bytes: u64,
    /// Distribution (`PRETTY_NAME` of os-release), empty if unknown.
    pub distribution: String,
    /// Mask of the address bits of a return address: the others may hold a signature (pointer authentication of
    /// aarch64) or a tag. All bits by default.
    #[serde(default = "all_bits", skip_serializing_if = "is_all_bits")]
    pub return_address_mask: u64,
    /// Address of a kernel symbol, if recorded: it shows where the kernel was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_symbol: Option<KernelSymbol>,
}

/// A symbol of the recorded kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSymbol {
    /// Its name, such as `_text`.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Build id of the kernel, if recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<BuildId>,
}

fn all_bits() -> u64 {
    u64::MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_all_bits(mask: &u64) -> bool {
    *mask == u64::MAX
}

/// A machine about which nothing is known.
impl Default for Host {
    fn default() -> Self {
        Self {
            name: String::new(),
            arch: String::new(),
            kernel: String::new(),
            cpu_model: String::new(),
            cpus_online: 0,
            memory_bytes: 0,
            distribution: String::new(),
            return_address_mask: all_bits(),
            kernel_symbol: None,
        }
    }
}

impl Host {
    /// The architecture of the samples' registers. Recordings of earlier versions are all of x86-64.
    #[must_use]
    pub fn processor(&self) -> Arch {
        Arch::by_name(&self.arch).unwrap_or_default()
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine { arch: self.processor(), return_address_mask: self.return_address_mask }
    }
}

/// The source of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collector {
    /// Our BPF program.
    Ebpf,
    /// The kernel's `perf_event` ring buffer, without BPF.
    PerfEvent,
    /// Converted from another profiler's file.
    Imported,
}

/// A sampling event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// perf's name, such as `cycles` or `cpu-clock`.
    pub name: String,
    /// How often it fires.
    pub sampling: Sampling,
    /// The unit of its samples.
    #[serde(default, skip_serializing_if = "Measure::is_samples")]
    pub measure: Measure,
}

/// The unit in which samples are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Measure {
    /// Number of samples.
    #[default]
    Samples,
    /// Number of occurrences of the event; a sample stands for as many as its weight.
    Occurrences,
    /// A sample is a wait: a thread was blocked, off its CPU, for the nanoseconds in its weight, until the sample's
    /// time.
    Blocked {
        /// Shorter waits are not sampled; [`super::CpuCounters::waits`] counts them.
        threshold_ns: u64,
    },
}

impl Measure {
    fn is_samples(&self) -> bool {
        *self == Self::Samples
    }
}

/// How often an event fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Samples per second and CPU.
    FrequencyHz(u64),
    /// One sample per this many events.
    Period(u64),
}

/// The contents of every sample about the user stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureMode {
    /// The frame-pointer chain only.
    Fp,
    /// Registers and a limited number of bytes of stack.
    Dwarf {
        /// The most bytes copied from the stack pointer up.
        stack_bytes: u32,
    },
    /// Both, in the same sample.
    Both {
        /// The most bytes copied from the stack pointer up.
        stack_bytes: u32,
        /// One in this many samples of each CPU has registers and stack; the others have the frame-pointer chain only.
        #[serde(default = "each", skip_serializing_if = "is_each")]
        every: u32,
    },
    /// The frames of a walk by call frame information in the kernel. If that walk is given up, registers and at most
    /// `stack_bytes` of stack instead; in one of `verify` samples, both.
    Cfi {
        /// The most bytes copied from the stack pointer up.
        stack_bytes: u32,
        /// One in this many walks also has registers and stack; 0: none.
        verify: u32,
        /// Whether every sample also has the frame-pointer chain.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        frame_pointers: bool,
    },
}

impl CaptureMode {
    /// Whether stacks of some samples only are copied, although none was walked by call frame information.
    #[must_use]
    pub fn copies_some(self) -> bool {
        matches!(self, Self::Both { every, .. } if every > 1)
    }

    /// Whether the stack of each sample is copied.
    #[must_use]
    pub fn copies_each(self) -> bool {
        matches!(self, Self::Dwarf { .. } | Self::Both { .. }) && !self.copies_some()
    }

    /// The most bytes of stack copied for a sample; 0 if none are.
    #[must_use]
    pub fn stack_bytes(self) -> u32 {
        match self {
            Self::Fp => 0,
            Self::Dwarf { stack_bytes } | Self::Both { stack_bytes, .. } | Self::Cfi { stack_bytes, .. } => stack_bytes,
        }
    }

    /// Whether samples have the frame-pointer chain.
    #[must_use]
    pub fn has_frame_pointers(self) -> bool {
        match self {
            Self::Fp | Self::Both { .. } => true,
            Self::Dwarf { .. } => false,
            Self::Cfi { frame_pointers, .. } => frame_pointers,
        }
    }
}

fn each() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_each(every: &u32) -> bool {
    *every == 1
}

/// What was profiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A command and all its descendants.
    Command {
        /// Program and arguments, lossily as UTF-8.
        argv: Vec<String>,
        /// Its process.
        pid: u32,
    },
    /// Running processes and their descendants.
    Pids(Vec<u32>),
    /// Running threads, and no others of their processes.
    Threads(Vec<u32>),
    /// A control group and those below it, given by its directory or name, lossily as UTF-8.
    Cgroup(String),
    /// Everything.
    System,
}
