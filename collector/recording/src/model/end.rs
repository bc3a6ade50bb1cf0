//! How a recording ended, and the balance it closes with.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last block of a recording that ended in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Why.
    pub reason: EndReason,
    /// The balance, one entry for each CPU.
    pub cpus: Vec<CpuCounters>,
    /// Process events the kernel could not deliver.
    pub sideband_lost: SidebandLoss,
    /// What recording cost.
    pub own_cost: OwnCost,
    /// What is in no balance.
    #[serde(default, skip_serializing_if = "Uncounted::is_nothing")]
    pub uncounted: Uncounted,
}

/// What a recorder knows to be missing in the balance, since it took no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Uncounted {
    /// Ticks, estimated from what the kernel counted of the event, or from the time that passed.
    #[serde(default)]
    pub ticks: u64,
    /// Per cent of the time in which the processor's counter counted, if that is not all of it: the kernel lets those who
    /// want one take turns.
    #[serde(default)]
    pub counter_share_percent: Option<u64>,
}

impl Uncounted {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The command exited with this status.
    Exited(i32),
    /// The command was ended by this signal.
    Killed(i32),
    /// All attached processes ended.
    TargetsGone,
    /// `--duration` was over.
    Duration,
    /// The profiler was told to stop by this signal.
    Signal(i32),
    /// The recording could not be written any further (errno); all samples since are counted as dropped.
    WriteFailed(i32),
    /// The recording had as many bytes as it may have.
    MaxSize,
}

/// The balance of one CPU and event: `fired = recorded + Σ lost + skipped + dropped`, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuCounters {
    /// The CPU.
    pub cpu: u32,
    /// Index into [`super::Meta::events`].
    #[serde(default, skip_serializing_if = "is_first")]
    pub event: u16,
    /// Ticks.
    pub fired: u64,
    /// Samples in this file.
    pub recorded: u64,
    /// Samples the kernel side could not hand over.
    pub lost: BTreeMap<LossCause, u64>,
    /// Ticks in something that was not to be profiled.
    pub skipped: u64,
    /// Samples we threw away, by policy or because they could not be written.
    pub dropped: u64,
    /// What was skipped of an event that is measured by the time it takes ([`super::Measure::Blocked`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<SkippedWaits>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_first(event: &u16) -> bool {
    *event == 0
}

/// How often a profiled thread left its CPU without being sampled when it came back. Part of [`CpuCounters::skipped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SkippedWaits {
    /// It was blocked for less than the threshold.
    pub short: u64,
    /// Time that these took together, nanoseconds.
    pub short_ns: u64,
    /// It could have gone on, and had to make way for another.
    pub preempted: u64,
}

impl SkippedWaits {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            short: self.short.saturating_add(other.short),
            short_ns: self.short_ns.saturating_add(other.short_ns),
            preempted: self.preempted.saturating_add(other.preempted),
        }
    }
}

/// Why a sample was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossCause {
    /// The ring buffer was full.
    RingFull,
    /// The kernel throttled the event.
    Throttled,
    /// The user registers did not belong to the address space (inside `execve`). Recordings of before format version 3
    /// lost such ticks; now they are samples, see [`super::Sample::in_exec`].
    ExecWindow,
    /// A thread was blocked, and the table of blocked threads was full: for how long is not known.
    TableFull,
    /// A thread was blocked when the recording ended, but went on before its stacks could be read.
    Woken,
    /// A probe was hit while the sample of another hit was being taken, on the same CPU.
    Nested,
    /// On a CPU that came online during the recording, with a number higher than any CPU had when the ring buffers were
    /// made.
    NoRing,
    /// The sample was taken but is not in the file: the recording broke off before it was written, or a block is
    /// damaged. No recording says so of itself; its reader does.
    Unwritten,
    /// Lost on the kernel's side, but the recording broke off before it said why. Likewise the reader's finding.
    Unattributed,
}

impl LossCause {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::Throttled => "throttled",
            Self::ExecWindow => "exec_window",
            Self::TableFull => "table_full",
            Self::Woken => "woken",
            Self::Nested => "nested",
            Self::NoRing => "no_ring",
            Self::Unwritten => "unwritten",
            Self::Unattributed => "unattributed",
        }
    }
}

/// Process events that were lost, so that some mappings may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SidebandLoss {
    /// `PERF_RECORD_LOST` records.
    pub records: u64,
    /// Events those records stand for, and those that were lost behind the last record.
    pub events: u64,
}

/// What recording cost, measured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnCost {
    /// User CPU of the collector process, nanoseconds.
    pub user_ns: u64,
    /// System CPU of the collector process, nanoseconds.
    pub system_ns: u64,
    /// CPU of the processes that parse files for it, nanoseconds; 0 in older recordings.
    #[serde(default)]
    pub parser_ns: u64,
    /// Part of the three above that was spent before sampling began; 0 in older recordings.
    #[serde(default)]
    pub before_start_ns: u64,
    /// Part of the first two that was spent after the last sample was taken.
    pub after_stop_ns: u64,
    /// Largest resident set of the collector process, bytes.
    pub max_rss_bytes: u64,
    /// Memory of the maps of our BPF programs at the end, the rings among them, bytes; `None` when the kernel does not say,
    /// and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_bytes: Option<u64>,
    /// Time inside our BPF programs, nanoseconds; `None` when it was not measured.
    pub bpf_run_ns: Option<u64>,
    /// Runs of the sampling program; `None` likewise.
    pub bpf_runs: Option<u64>,
    /// Time inside the programs that sample waits, nanoseconds; not in [`Self::bpf_run_ns`]. `None` where none were sampled,
    /// and as for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_run_ns: Option<u64>,
    /// Switches from one thread to another that these saw; `None` likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Bytes handed over by the sampling program, before any compression; those of waits are not among them.
    pub ring_bytes: u64,
    /// What one interrupt of the sampling event takes from whom it hits, without our program, nanoseconds: the median of
    /// up to 100 on the recorded machine right before; `None` when it could not be seen, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_ns: Option<u64>,
    /// Bytes the collector's writing thread wrote, this block not counted; `None` when the kernel does not say, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Part of them that the kernel brings to a disk, by whole pages; `None` likewise. 0 for a file in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_disk_bytes: Option<u64>,
}

impl OwnCost {
    /// CPU of all processes of the collector, nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns).saturating_add(self.parser_ns)
    }
}

/// The balance so far, written now and then, so that a recording without an [`End`] can be balanced by cause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// The counters, one entry for each CPU.
    pub cpus: Vec<CpuCounters>,
    /// Process events the kernel could not deliver so far.
    pub sideband_lost: SidebandLoss,
}
