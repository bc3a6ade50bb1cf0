//! How a recording ended, with the final balance.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last block of a recording that ended in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Time, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// The reason.
    pub reason: EndReason,
    /// The balance, one entry for each CPU and event.
    pub cpus: Vec<CpuCounters>,
    /// Process events the kernel could not deliver.
    pub sideband_lost: SidebandLoss,
    /// Cost of recording.
    pub own_cost: OwnCost,
    /// Ticks that are in no balance.
    #[serde(default, skip_serializing_if = "Uncounted::is_nothing")]
    pub uncounted: Uncounted,
    /// What else the recorder reported about the recording, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Ticks known to be missing from the balance, since they took no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Uncounted {
    /// Number of ticks, estimated from the kernel's count of the event, or from the elapsed time.
    #[serde(default)]
    pub ticks: u64,
    /// Per cent of the time in which the hardware counter was active, if not all of it: the kernel multiplexes
    /// counters.
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
    /// `--duration` has elapsed.
    Duration,
    /// The profiler received this signal.
    Signal(i32),
    /// The recording could not be written any further (errno); all later samples are counted as dropped.
    WriteFailed(i32),
    /// The recording reached its maximum size.
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
    /// Samples the kernel side could not deliver.
    pub lost: BTreeMap<LossCause, u64>,
    /// Ticks in something that was not to be profiled.
    pub skipped: u64,
    /// Samples discarded by policy or because they could not be written.
    pub dropped: u64,
    /// The parts of `skipped`, for an event that is measured by its time ([`super::Measure::Blocked`]).
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
    /// Total time of these waits, nanoseconds.
    pub short_ns: u64,
    /// It was runnable, but was preempted by another thread.
    pub preempted: u64,
}

impl SkippedWaits {
    /// The sum of both.
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
    /// The user registers did not belong to the address space (inside `execve`). Recordings before format version 3
    /// lost such ticks; now they are samples, see [`super::Sample::in_exec`].
    ExecWindow,
    /// A thread was blocked, but the table of blocked threads was full, so that its time is not known.
    TableFull,
    /// A thread was blocked when the recording ended, but was woken before its stacks could be read.
    Woken,
    /// A probe was hit on the CPU while the sample of another hit was being taken.
    Nested,
    /// The CPU came online during the recording, with a higher number than any CPU had when the ring buffers were
    /// created.
    NoRing,
    /// The sample was taken but is not in the file: the recording broke off before it was written, or a block is
    /// damaged. Only readers use this cause.
    Unwritten,
    /// Lost on the kernel's side, but the recording broke off before the cause was written. Only readers use this
    /// cause.
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
    /// Events those records stand for, and events lost after the last record.
    pub events: u64,
}

/// The measured cost of recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnCost {
    /// User CPU time of the collector process, nanoseconds.
    pub user_ns: u64,
    /// System CPU time of the collector process, nanoseconds.
    pub system_ns: u64,
    /// CPU time of the processes that parse files for it, nanoseconds; 0 in older recordings.
    #[serde(default)]
    pub parser_ns: u64,
    /// Part of the three above that was spent before sampling began; 0 in older recordings.
    #[serde(default)]
    pub before_start_ns: u64,
    /// Part of the first two that was spent after the last sample was taken.
    pub after_stop_ns: u64,
    /// Largest resident set of the collector process, bytes.
    pub max_rss_bytes: u64,
    /// Memory of our BPF maps at the end, including the ring buffers, bytes; `None` if the kernel did not report it,
    /// and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_bytes: Option<u64>,
    /// Time inside our BPF programs, nanoseconds; `None` if not measured.
    pub bpf_run_ns: Option<u64>,
    /// Runs of the sampling program; `None` if not measured.
    pub bpf_runs: Option<u64>,
    /// Time inside the programs that sample waits, nanoseconds; not part of [`Self::bpf_run_ns`]. `None` if no waits
    /// were sampled or it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_run_ns: Option<u64>,
    /// Context switches that these programs saw; `None` under the same conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Bytes handed over by the sampling program, before any compression; without those of waits.
    pub ring_bytes: u64,
    /// Cost of one interrupt of the sampling event, without our program, nanoseconds: the median of up to 100 on the
    /// recorded machine just before the recording; `None` if not measurable, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_ns: Option<u64>,
    /// Bytes the collector's writing thread wrote, without this block; `None` if the kernel did not report it, and in
    /// older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// The part of them that the kernel writes to a disk, in whole pages; `None` under the same conditions. 0 for a
    /// file in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_disk_bytes: Option<u64>,
}

impl OwnCost {
    /// CPU time of all processes of the collector, nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns).saturating_add(self.parser_ns)
    }
}

/// The balance so far, written regularly, so that a recording without an [`End`] can be balanced by cause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Time, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// The counters, one entry for each CPU and event.
    pub cpus: Vec<CpuCounters>,
    /// Process events the kernel could not deliver so far.
    pub sideband_lost: SidebandLoss,
}
