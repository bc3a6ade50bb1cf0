//! The model behind `fpprof report`: balance, volume, quality by strategy, cost, hottest functions.
//!
//! Field names are the keys of `report --json`.

use crate::accuracy::Agreement;
use crate::kernel_walks::KernelWalks;
use crate::overhead::Overhead;
use crate::spread::Spread;
use fpprof_recording::model::{CpuCounters, Event, Measure, SkippedWaits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The summary of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Ticks of the sampling event.
    pub fired: u64,
    /// Samples in the file.
    pub recorded: u64,
    /// Samples lost, by cause (the snake-case name of `fpprof_recording::model::LossCause`).
    pub lost: BTreeMap<String, u64>,
    /// Ticks in something that was not to be profiled.
    pub skipped: u64,
    /// Samples discarded by policy or because they could not be written.
    pub dropped: u64,
    /// `fired - recorded - Σ lost - skipped - dropped`; anything but 0 is a defect of the recording, and is displayed.
    pub unaccounted: i64,
    /// Runs of consecutive lost samples: what perf counts as "lost chunks".
    pub lost_gaps: u64,
    /// Samples whose stack was copied only in part, because the collector's ring buffer was filling up. They are
    /// recorded; where the missing part is needed, their stacks are `truncated` with `chunk_end`.
    #[serde(default)]
    pub shed: u64,
    /// Estimated number of ticks that are not in the balance because they took no sample.
    pub ticks_missing: u64,
    /// Samples of processes that must not be dumped, whose stacks were not copied: unwound by call frame information,
    /// they are `truncated` with `chunk_empty`.
    #[serde(default)]
    pub withheld: u64,
    /// Process events the kernel lost.
    pub sideband_lost: u64,
    /// Size of the recording, bytes.
    pub file_bytes: u64,
    /// Length of the recording, seconds.
    pub duration_s: f64,
    /// How it ended, as text, such as `command exited with status 0`.
    pub ended: String,
    /// Whether it ended in order; `false` for a killed recorder or a truncated file.
    pub ended_in_order: bool,
    /// Damage that was skipped while reading, as text; empty for an undamaged file.
    pub damage: Vec<String>,
    /// Environment and options: kernel, CPU, event, rate, mode, command.
    pub environment: Environment,
    /// Bytes per sample.
    pub volume: Volume,
    /// Cost of recording.
    pub cost: Option<Cost>,
    /// Quality by strategy, over all samples.
    pub strategies: BTreeMap<String, Quality>,
    /// The same for each process, most samples first. After the first thousand, processes are merged by name.
    pub processes: Vec<ProcessSummary>,
    /// What other chunk sizes would have given, by the `dwarf` strategy: all processes first, then each process name,
    /// most samples first. Empty if nothing was unwound from chunks of full size.
    pub chunk_sizes: Vec<ChunkNeeds>,
    /// Comparison of each pair of strategies, by sample and by frame. The reference of a pair is the one with more
    /// information: call frame information before frame pointers, all bytes before some, our unwinder before others.
    pub agreements: Vec<Agreement>,
    /// Walks by call frame information in the kernel, if the recording has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_walks: Option<KernelWalks>,
    /// Samples with a return address that does not follow a call, by strategy: a forged or stale frame.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_call_before: BTreeMap<String, u64>,
    /// For a recording of waits ([`Waits`]): how often and how long threads were blocked, whatever events this summary
    /// is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Total time of the samples, nanoseconds, if they are waits; then shares are shares of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
    /// The samples that `strategies`, `processes`, `chunk_sizes`, `agreements` and `hottest` cover, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<Filtered>,
    /// Hottest functions of one strategy, by self samples, or by time for waits.
    pub hottest: Vec<HotFunction>,
    /// The strategy of `hottest`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hottest_strategy: String,
    /// What was left out or went wrong during the analysis, as text.
    pub warnings: Vec<String>,
}

/// The samples that match a filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filtered {
    /// The filter, as typed.
    pub filter: String,
    /// Number of samples.
    pub samples: u64,
    /// Length of the selected part of the recording, seconds.
    #[serde(default)]
    pub duration_s: f64,
    /// Their time, nanoseconds, if they are waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
}

impl Summary {
    /// Number of samples that stacks and functions are counted in: all, or those that match the filter.
    #[must_use]
    pub fn n_shown(&self) -> u64 {
        self.filtered.as_ref().map_or(self.recorded, |filtered| filtered.samples)
    }

    /// Length of the time they cover, seconds.
    #[must_use]
    pub fn shown_duration_s(&self) -> f64 {
        self.filtered.as_ref().map_or(self.duration_s, |filtered| filtered.duration_s)
    }

    /// The denominator of functions' shares: samples, or for waits their time.
    #[must_use]
    pub fn shown_amount(&self) -> u64 {
        let blocked_ns = self.filtered.as_ref().map_or(self.blocked_ns, |filtered| filtered.blocked_ns);
        blocked_ns.unwrap_or_else(|| self.n_shown())
    }
}

/// How often profiled threads left their CPUs, and how these times were counted.
/// `fired = recorded + Σ lost + skipped + dropped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Shorter waits are not sampled, nanoseconds.
    pub threshold_ns: u64,
    /// Times that a profiled thread left its CPU and came back, or had not come back when the recording ended.
    pub fired: u64,
    /// Waits in the file.
    pub recorded: u64,
    /// Their total time, nanoseconds.
    pub blocked_ns: u64,
    /// Waits lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// All that were not to be sampled.
    pub skipped: u64,
    /// Waits discarded because they could not be written.
    pub dropped: u64,
    /// The parts of `skipped`: too short, with their time, and not a wait.
    #[serde(flatten)]
    pub not_sampled: SkippedWaits,
}

impl Waits {
    /// The waits of a recording with these counters and total time; `None` if none were to be sampled.
    #[must_use]
    pub fn new<'a>(events: &[Event], cpus: impl IntoIterator<Item = &'a CpuCounters>, blocked_ns: u64) -> Option<Self> {
        let (event, threshold_ns) = (0..).zip(events).find_map(|(number, event)| match event.measure {
            Measure::Blocked { threshold_ns } => Some((number, threshold_ns)),
            _ => None,
        })?;
        let cpus: Vec<_> = cpus.into_iter().filter(|cpu| cpu.event == event).collect();
        let sum = |of: fn(&CpuCounters) -> u64| cpus.iter().fold(0, |sum: u64, cpu| sum.saturating_add(of(cpu)));
        Some(Self {
            threshold_ns,
            fired: sum(|cpu| cpu.fired),
            recorded: sum(|cpu| cpu.recorded),
            blocked_ns,
            lost: lost_by_cause(cpus.iter().copied()),
            skipped: sum(|cpu| cpu.skipped),
            dropped: sum(|cpu| cpu.dropped),
            not_sampled: cpus.iter().filter_map(|cpu| cpu.waits).fold(SkippedWaits::default(), SkippedWaits::plus),
        })
    }
}

/// Samples lost on several CPUs, by name of the cause.
#[must_use]
pub fn lost_by_cause<'a>(cpus: impl IntoIterator<Item = &'a CpuCounters>) -> BTreeMap<String, u64> {
    let mut by_cause: BTreeMap<String, u64> = BTreeMap::new();
    for (cause, &n) in cpus.into_iter().flat_map(|cpu| &cpu.lost) {
        let total = by_cause.entry(cause.name().to_owned()).or_default();
        *total = total.saturating_add(n);
    }
    by_cause
}

/// Where and how the recording was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `uname -r`.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Distribution.
    pub distribution: String,
    /// Sampling event, such as `cpu-clock`.
    pub event: String,
    /// Sampling rate as text, such as `999 Hz`.
    pub rate: String,
    /// Capture mode as text, such as `both,65536`.
    pub mode: String,
    /// What was profiled, as text.
    pub target: String,
    /// Collector, such as `ebpf`.
    pub collector: String,
    /// If equal samples are recorded once: how much earlier than taken their times may be, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregated_s: Option<f64>,
}

impl Environment {
    /// How far the times of samples can be off, in words, if equal samples are recorded once.
    #[must_use]
    pub fn times(&self) -> Option<String> {
        let words = |s| format!("up to {s} s early: equal samples are recorded once, with the time of the first");
        self.aggregated_s.map(words)
    }
}

/// Amounts of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// File size per recorded sample of any event.
    pub bytes_per_sample: f64,
    /// Bytes the sampling program handed over per recorded sample, before compression; `None` if the recording lacks
    /// the figure.
    pub ring_bytes_per_sample: Option<f64>,
    /// Bytes of stack copied from the stack pointer up, over all samples.
    pub stack_bytes: u64,
    /// File size per minute at this rate.
    pub bytes_per_minute: f64,
}

/// Cost of recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the collector while samples were taken, seconds.
    pub collector_cpu_s: f64,
    /// The same in per cent of one CPU.
    pub collector_cpu_percent: f64,
    /// CPU time before sampling began, seconds: mostly the kernel's verification of our BPF programs.
    pub start_cpu_s: f64,
    /// CPU time after the last sample, seconds.
    pub stop_cpu_s: f64,
    /// The part of the three above that was used by the processes that parse files for the recorder.
    pub parser_cpu_s: f64,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: u64,
    /// Memory of the BPF maps, bytes; `None` if the kernel did not report it.
    pub map_bytes: Option<u64>,
    /// Mean time in our BPF program per tick, nanoseconds; `None` if the kernel did not report it.
    pub bpf_ns_per_tick: Option<f64>,
    /// All of the cost, as shares of the machine and of the target.
    pub overhead: Overhead,
}

/// How the stacks of one strategy ended. `samples = complete + Σ truncated + Σ broken`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Samples unwound; those of threads without a user stack count in `no_stack` only.
    pub samples: u64,
    /// Stacks that reached their root.
    pub complete: u64,
    /// Truncated stacks, by reason.
    pub truncated: BTreeMap<String, u64>,
    /// Broken stacks, by reason.
    pub broken: BTreeMap<String, u64>,
    /// Samples of threads of programs that had no user stack, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_stack: BTreeMap<String, u64>,
    /// User frames over all samples, without inlined functions.
    pub frames: u64,
    /// Complete stacks by root.
    pub roots: BTreeMap<String, u64>,
    /// Frame-pointer stacks whose leaf's caller is missing, whatever their end.
    pub leaf_skip_suspects: u64,
    /// Stacks with a frame found with the frame pointer of JIT-compiled code.
    #[serde(default)]
    pub fp_in_jit: u64,
    /// Stacks with a frame found with the frame pointer for lack of call frame information, other than JIT-compiled
    /// code.
    #[serde(default)]
    pub fp_fallback: u64,
    /// Frames per stack; `None` without samples.
    pub frames_per_stack: Option<Spread>,
    /// Bytes of stack from the stack pointer up that complete stacks needed; `None` if there are none, or if the
    /// strategy does not know the position of its frames in memory.
    pub needed_bytes: Option<Spread>,
}

/// One process, or all unlisted processes with a common name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Process ID; 0 for several processes.
    pub pid: u32,
    /// Last name.
    pub comm: String,
    /// Number of processes, if they are unlisted processes with a common name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Its samples.
    pub samples: u64,
    /// Quality by strategy.
    pub strategies: BTreeMap<String, Quality>,
}

impl ProcessSummary {
    /// Number of processes.
    #[must_use]
    pub fn n_processes(&self) -> u64 {
        self.processes.unwrap_or(1)
    }

    /// Total number of processes.
    #[must_use]
    pub fn total(all: &[Self]) -> u64 {
        all.iter().fold(0, |sum, one| one.n_processes().saturating_add(sum))
    }
}

/// What other chunk sizes would have given, from the samples of one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkNeeds {
    /// Process name; empty for all processes.
    pub comm: String,
    /// Samples with a user stack.
    pub samples: u64,
    /// The smallest chunk that completes a percentage of the stacks, by percentage; `None` if the recording does not
    /// show it because too many of its stacks are incomplete.
    pub smallest_bytes: BTreeMap<u8, Option<u64>>,
    /// Completeness and cost by size.
    pub curve: Vec<ChunkPoint>,
    /// True depth of the stacks: bytes from the stack pointer to the end of the stack, whatever was copied; `None` if
    /// no end is known.
    pub depth_bytes: Option<Spread>,
    /// Samples whose stack end is not known.
    pub without_depth: u64,
}

/// The result of a chunk size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkPoint {
    /// The chunk size: the most bytes copied.
    pub chunk_bytes: u64,
    /// Stacks that reach their root.
    pub complete: u64,
    /// Mean bytes copied per sample, at most up to the end of the stack.
    pub mean_copied_bytes: f64,
    /// The same plus everything else in a sample, as handed over by the sampling program. The file is smaller because
    /// it is compressed.
    pub bytes_per_sample: f64,
    /// The same per minute at the rate of this recording.
    pub bytes_per_minute: f64,
}

/// A function and its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotFunction {
    /// Demangled name, or `module+0xoffset`.
    pub name: String,
    /// Base name of its module.
    pub module: String,
    /// Samples in which it was the leaf.
    pub self_samples: u64,
    /// Samples in which it was anywhere on the stack.
    pub total_samples: u64,
    /// Time in which it was the leaf, nanoseconds, if the samples are waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_blocked_ns: Option<u64>,
    /// Time in which it was anywhere on the stack, if the samples are waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_blocked_ns: Option<u64>,
}
