//! What was asked for, and where it ran.

use super::machine::{Arch, Machine};
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
    /// Who collected.
    pub collector: Collector,
    /// What fired the samples; [`super::Sample::event`] indexes it.
    pub events: Vec<Event>,
    /// What every sample carries.
    pub mode: CaptureMode,
    /// Whether kernel stacks were asked for.
    pub kernel_stacks: bool,
    /// Whether words that point into no mapping were zeroed before they were written (`false`: `--keep-raw-stacks`).
    pub scrubbed: bool,
    /// What was profiled.
    pub target: Target,
    /// What of the balance nothing counts; empty when every tick is in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<NotCounted>,
}

/// Ticks that are in no place of the balance, `fired` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NotCounted {
    /// Ticks in the kernel: the event excludes them, as those of ordinary users must.
    KernelTicks,
    /// Samples lost after the last one that was read from a CPU's ring: the kernel is older than 6.0 and does not count.
    LastLosses,
    /// The first sampling period of every thread that began meanwhile: each has a clock of its own, and one that ends
    /// sooner is not seen.
    FirstPeriods,
}

/// The recorded machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -n`; empty when unknown, and in older recordings.
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
    /// Distribution (`PRETTY_NAME` of os-release), empty when unknown.
    pub distribution: String,
    /// Bits of a return address that are the address: the others may hold a signature (pointer authentication of
    /// aarch64) or a tag. All, where nothing is said.
    #[serde(default = "all_bits", skip_serializing_if = "is_all_bits")]
    pub return_address_mask: u64,
    /// Where a symbol of the kernel lay, if the recorder noted one: it tells where the kernel was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_symbol: Option<KernelSymbol>,
}

/// A symbol of the recorded kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSymbol {
    /// Such as `_text`.
    pub name: String,
    /// Its address.
    pub address: u64,
}

fn all_bits() -> u64 {
    u64::MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_all_bits(mask: &u64) -> bool {
    *mask == u64::MAX
}

/// A machine of which nothing is known.
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
    /// The architecture that samples have registers of. Those that earlier versions recorded all are x86-64's.
    #[must_use]
    pub fn processor(&self) -> Arch {
        Arch::by_name(&self.arch).unwrap_or_default()
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine { arch: self.processor(), return_address_mask: self.return_address_mask }
    }
}

/// Who took the samples.
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

/// What fires a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// perf's name, such as `cycles` or `cpu-clock`.
    pub name: String,
    /// How often it fires.
    pub sampling: Sampling,
    /// What shares of its samples are counted in.
    #[serde(default, skip_serializing_if = "Measure::is_samples")]
    pub measure: Measure,
}

/// What shares of samples are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Measure {
    /// One sample is as good as another.
    #[default]
    Samples,
    /// A sample stands for as many occurrences of the event as its weight says.
    Occurrences,
    /// A sample is a wait: a thread that was off its CPU, blocked, for as many nanoseconds as the weight says, up to the
    /// sample's time.
    Blocked {
        /// Waits shorter than this are no samples; [`super::CpuCounters::waits`] counts them.
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
    /// So many samples a second and CPU.
    FrequencyHz(u64),
    /// One sample every so many events.
    Period(u64),
}

/// What every sample carries of the user stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureMode {
    /// The frame-pointer chain only.
    Fp,
    /// Registers and at most so many bytes of stack.
    Dwarf {
        /// Most bytes copied from the stack pointer up.
        stack_bytes: u32,
    },
    /// Both, in the same sample.
    Both {
        /// Most bytes copied from the stack pointer up.
        stack_bytes: u32,
    },
    /// The frames of a walk by call frame information in the kernel. Where that walk cannot go on, registers and at most
    /// `stack_bytes` of stack instead; and both of one in `verify` samples (0: of none).
    Cfi {
        /// Most bytes copied from the stack pointer up.
        stack_bytes: u32,
        /// Of one walk in so many there are registers and stack besides the frames; 0: of none.
        verify: u32,
        /// The frame-pointer chain besides, in every sample.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        frame_pointers: bool,
    },
}

impl CaptureMode {
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
    /// A control group and those below it, by its directory or its name, lossily as UTF-8.
    Cgroup(String),
    /// Everything.
    System,
}
