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

/// What one recording says.
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
    /// Samples thrown away by policy or because they could not be written.
    pub dropped: u64,
    /// `fired - recorded - Σ lost - skipped - dropped`; anything but 0 is a defect of the recording, and is shown.
    pub unaccounted: i64,
    /// Runs of lost samples without a recorded one between them: what perf counts as "lost chunks".
    pub lost_gaps: u64,
    /// Samples whose stack was copied in part only, because the collector's ring was filling up. They are recorded; where
    /// the missing part would have been needed, their stacks are `truncated` with `chunk_end`.
    #[serde(default)]
    pub shed: u64,
    /// Ticks that are in no balance, as the recorder estimates: they took no sample.
    pub ticks_missing: u64,
    /// Samples of processes that must not be dumped, whose stacks were not copied: by call frame information they are
    /// `truncated` with `chunk_empty`.
    #[serde(default)]
    pub withheld: u64,
    /// Process events the kernel lost.
    pub sideband_lost: u64,
    /// Size of the recording, bytes.
    pub file_bytes: u64,
    /// Length of the recording, seconds.
    pub duration_s: f64,
    /// How it ended, in words, such as `command exited with status 0`.
    pub ended: String,
    /// Whether it ended in order; a killed recorder or a cut file leaves `false`.
    pub ended_in_order: bool,
    /// Damage that was skipped while reading, in words; empty for an undamaged file.
    pub damage: Vec<String>,
    /// Environment and options: kernel, CPU, event, rate, mode, command.
    pub environment: Environment,
    /// What samples cost in bytes.
    pub volume: Volume,
    /// What recording cost in CPU.
    pub cost: Option<Cost>,
    /// Quality by strategy, over all samples.
    pub strategies: BTreeMap<String, Quality>,
    /// The same for each process, most samples first. Behind the first thousand those of a name are one.
    pub processes: Vec<ProcessSummary>,
    /// What chunks of other sizes would have given, by the `dwarf` strategy: all processes first, then each process
    /// name, most samples first. Empty when nothing was unwound from chunks of full size.
    pub chunk_sizes: Vec<ChunkNeeds>,
    /// How each pair of strategies compares, sample by sample and frame by frame. The reference of a pair is the one that
    /// can know more: call frame information before frame pointers, all bytes before some, ours before others'.
    pub agreements: Vec<Agreement>,
    /// Walks by call frame information in the kernel, of a recording that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_walks: Option<KernelWalks>,
    /// Samples with a return address that no call can have left, by strategy: a frame that was forged, or is left over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_call_before: BTreeMap<String, u64>,
    /// Of a recording of waits ([`Waits`]): how often threads were blocked and for how long, whatever events this summary
    /// is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Time of all samples together, nanoseconds, where they are waits; then shares are shares of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
    /// Which samples `strategies`, `processes`, `chunk_sizes`, `agreements` and `hottest` are of, where they are not of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<Filtered>,
    /// Hottest functions of the default strategy, by self samples; of waits by time.
    pub hottest: Vec<HotFunction>,
    /// What was left out or went wrong during the analysis, in words.
    pub warnings: Vec<String>,
}

/// The samples that a filter let through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filtered {
    /// The filter, as it is typed.
    pub filter: String,
    /// How many there are.
    pub samples: u64,
    /// Length of the part of the recording that they are of, seconds.
    #[serde(default)]
    pub duration_s: f64,
    /// Their time, nanoseconds, where they are waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
}

impl Summary {
    /// Samples that stacks and functions are counted in: all, or those that a filter let through.
    #[must_use]
    pub fn n_shown(&self) -> u64 {
        self.filtered.as_ref().map_or(self.recorded, |filtered| filtered.samples)
    }

    /// How long they were taken for, seconds.
    #[must_use]
    pub fn shown_duration_s(&self) -> f64 {
        self.filtered.as_ref().map_or(self.duration_s, |filtered| filtered.duration_s)
    }

    /// What shares of functions are shares of: samples, or of waits the time they took.
    #[must_use]
    pub fn shown_amount(&self) -> u64 {
        let blocked_ns = self.filtered.as_ref().map_or(self.blocked_ns, |filtered| filtered.blocked_ns);
        blocked_ns.unwrap_or_else(|| self.n_shown())
    }
}

/// How often profiled threads left their CPUs, and what became of that. `fired = recorded + Σ lost + skipped + dropped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Waits shorter than this are no samples, nanoseconds.
    pub threshold_ns: u64,
    /// Times that a profiled thread left its CPU and came back, or had not when the recording ended.
    pub fired: u64,
    /// Waits in the file.
    pub recorded: u64,
    /// What these took together, nanoseconds.
    pub blocked_ns: u64,
    /// Waits lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// All that were not to be sampled.
    pub skipped: u64,
    /// Waits thrown away because they could not be written.
    pub dropped: u64,
    /// What of `skipped` was too short, and for how long, and what no wait.
    #[serde(flatten)]
    pub not_sampled: SkippedWaits,
}

impl Waits {
    /// Those of a recording with these counters, `blocked_ns` long; `None` where none were to be sampled.
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

/// Samples lost on several CPUs, by the names of causes.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Sampling rate in words, such as `999 Hz`.
    pub rate: String,
    /// Capture mode in words, such as `both,65536`.
    pub mode: String,
    /// What was profiled, in words.
    pub target: String,
    /// Collector, such as `ebpf`.
    pub collector: String,
}

/// Bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// File bytes for each recorded sample of any event, everything included.
    pub bytes_per_sample: f64,
    /// Bytes the sampling program handed over for each recorded sample, before compression; `None` if the recording does not
    /// say.
    pub ring_bytes_per_sample: Option<f64>,
    /// Bytes of stack copied from the stack pointer up, over all samples.
    pub stack_bytes: u64,
    /// File bytes a minute at this rate.
    pub bytes_per_minute: f64,
}

/// What recording cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU seconds of the collector while samples were taken.
    pub collector_cpu_s: f64,
    /// The same in per cent of one CPU.
    pub collector_cpu_percent: f64,
    /// CPU seconds before sampling began: most of it is the kernel's check of our BPF programs.
    pub start_cpu_s: f64,
    /// CPU seconds after the last sample.
    pub stop_cpu_s: f64,
    /// Part of the three above of the processes that parse files for the recorder.
    pub parser_cpu_s: f64,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: u64,
    /// Memory of the maps of the BPF programs, bytes; `None` when the kernel would not say.
    pub map_bytes: Option<u64>,
    /// Mean nanoseconds in our BPF program for each tick; `None` when the kernel would not say.
    pub bpf_ns_per_tick: Option<f64>,
    /// Where all of it went, as shares of the machine and of the target.
    pub overhead: Overhead,
}

/// How the stacks of one strategy ended. `samples = complete + Σ truncated + Σ broken`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quality {
    /// Samples unwound; those of threads without a user stack are in `no_stack` alone.
    pub samples: u64,
    /// Stacks that reached their root.
    pub complete: u64,
    /// Stacks that end early, by reason.
    pub truncated: BTreeMap<String, u64>,
    /// Stacks that went wrong, by reason.
    pub broken: BTreeMap<String, u64>,
    /// Samples of threads of programs that had no user stack, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_stack: BTreeMap<String, u64>,
    /// Frames, over all samples (user frames; inline frames not counted).
    pub frames: u64,
    /// Complete stacks by root.
    pub roots: BTreeMap<String, u64>,
    /// Frame-pointer stacks whose leaf's caller is missing, whatever their end.
    pub leaf_skip_suspects: u64,
    /// Stacks with a frame that was found with the frame pointer of JIT-compiled code.
    #[serde(default)]
    pub fp_in_jit: u64,
    /// Stacks with a frame that was found with a frame pointer for want of call frame information elsewhere.
    #[serde(default)]
    pub fp_fallback: u64,
    /// The same frames by stack; `None` without samples.
    pub frames_per_stack: Option<Spread>,
    /// Bytes of stack from the stack pointer up that the complete stacks needed; `None` where there are none, or where
    /// the strategy does not know where in memory its frames are.
    pub needed_bytes: Option<Spread>,
}

/// One process, or all others of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Process id; 0 for several processes.
    pub pid: u32,
    /// Last name.
    pub comm: String,
    /// How many processes, where they are those of a name that are not listed themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Its samples.
    pub samples: u64,
    /// Quality by strategy.
    pub strategies: BTreeMap<String, Quality>,
}

impl ProcessSummary {
    /// How many processes it is of.
    #[must_use]
    pub fn n_processes(&self) -> u64 {
        self.processes.unwrap_or(1)
    }

    /// The same of several.
    #[must_use]
    pub fn total(all: &[Self]) -> u64 {
        all.iter().fold(0, |sum, one| one.n_processes().saturating_add(sum))
    }
}

/// What chunks of other sizes would have given, from the samples of one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkNeeds {
    /// Process name; empty for all processes.
    pub comm: String,
    /// Samples with a user stack.
    pub samples: u64,
    /// The smallest chunk that brings so many per cent of the stacks to their root, by the per cent; `None` where the
    /// recording does not show one, because too many of its stacks are incomplete.
    pub smallest_bytes: BTreeMap<u8, Option<u64>>,
    /// Completeness and cost by size.
    pub curve: Vec<ChunkPoint>,
    /// True depth of the stacks: bytes from the stack pointer to the end of the stack, whatever was copied; `None` where
    /// no end is known.
    pub depth_bytes: Option<Spread>,
    /// Samples whose stack's end is not known.
    pub without_depth: u64,
}

/// A chunk size and what it gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkPoint {
    /// Most bytes copied.
    pub chunk_bytes: u64,
    /// Stacks that reach their root.
    pub complete: u64,
    /// Bytes copied for each sample, up to the end of the stack where that comes first.
    pub mean_copied_bytes: f64,
    /// The same with all that a sample takes beside its chunk, as handed over by the sampling program: the file is
    /// smaller by its compression.
    pub bytes_per_sample: f64,
    /// The same for a minute at the rate of this recording.
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
    /// Time of those in which it was the leaf, nanoseconds, where the samples are waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_blocked_ns: Option<u64>,
    /// Time of those in which it was anywhere, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_blocked_ns: Option<u64>,
}
