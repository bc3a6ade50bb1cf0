//! What was run, where, and the result of every run.

use super::{Aggregate, Measured, Right, StackEnds};
use crate::overhead::Overhead;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the layout of `results.json`; raised when a key changes its meaning.
pub const SCHEMA: u32 = 2;

/// A whole experiment, as in `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where it ran, and with which programs.
    pub environment: ExperimentEnvironment,
    /// Program and arguments, lossily as UTF-8.
    pub command: Vec<String>,
    /// Sampling rate as text, such as `999 Hz`.
    pub rate: String,
    /// Sampling event as text, such as `cpu-clock`.
    pub event: String,
    /// Number of rounds; each round runs every mode once, in its own order.
    pub repeats: u32,
    /// Mode of every run in the order they ran, round after round.
    pub order: Vec<String>,
    /// The workload's own metric; `None` if not asked for.
    pub metric: Option<Metric>,
    /// One row per mode, in display order.
    pub rows: Vec<ExperimentRow>,
    /// Notes for the reader: deviations, failed runs, modes left out.
    pub notes: Vec<String>,
}

/// Where an experiment ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentEnvironment {
    /// When it began, such as `2026-03-01 12:00 UTC`.
    pub date: String,
    /// Host or machine type as text; empty if withheld.
    pub machine: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// Distribution.
    pub distribution: String,
    /// Versions of the programs involved: fpprof first, then perf, nbdkit, fio, …
    pub versions: Vec<Version>,
}

/// A program involved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its name.
    pub program: String,
    /// Its version, as it reports it.
    pub version: String,
}

/// The workload's own metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name as text, such as `IOPS`.
    pub name: String,
    /// Unit, such as `1/s`; empty if the name is sufficient.
    pub unit: String,
    /// The regular expression that found it in the output.
    pub regex: String,
    /// Which direction is better.
    pub better_when: BetterWhen,
}

/// Which direction of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetterWhen {
    /// Throughput.
    Higher,
    /// Time, latency, size.
    Lower,
}

/// One mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRow {
    /// Its label, such as `none`, `fp`, `dwarf,4096`, `both,65536`, `perf fp`; unique.
    pub mode: String,
    /// The recording tool.
    pub tool: Tool,
    /// How stacks are captured.
    pub method: ExperimentMethod,
    /// The most bytes of stack copied per sample; `None` if none are.
    pub stack_bytes: Option<u64>,
    /// Its runs, one per round; failed runs are left out and mentioned in [`Experiment::notes`].
    pub runs: Vec<Run>,
    /// Aggregates of the runs.
    pub aggregate: Aggregate,
}

/// The recording tool. Ratios of bytes compare a tool with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// None: the workload alone.
    Nobody,
    /// `fpprof record`.
    Fpprof,
    /// `perf record`.
    Perf,
}

/// How stacks are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExperimentMethod {
    /// Not at all.
    None,
    /// The frame-pointer chain.
    Fp,
    /// Registers and a copied chunk of the stack.
    Dwarf,
    /// Both, in the same sample.
    Both,
    /// A walk by call frame information in the kernel.
    Cfi,
}

/// One run: raw values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round, from 0. Runs of one round are compared with each other.
    pub repeat: u32,
    /// Wall time of the command, seconds: from its exec to the end of its last thread, as recorded, or without a recorder to the
    /// end of its process, with the time to free its memory. Missing if the recorder lost its start or end.
    pub wall_s: Measured<f64>,
    /// The workload's own metric.
    pub metric: Measured<f64>,
    /// Size of the recording, bytes.
    pub bytes: Measured<u64>,
    /// Ticks of the sampling event.
    pub fired: Measured<u64>,
    /// Samples in the recording.
    pub recorded: Measured<u64>,
    /// Samples lost, by cause; the cause is `lost` if the tool does not have any.
    pub lost: Measured<BTreeMap<String, u64>>,
    /// Ticks in something that was not to be profiled.
    pub skipped: Measured<u64>,
    /// Samples discarded by policy or because they could not be written.
    pub dropped: Measured<u64>,
    /// Lost chunks as perf counts them: runs of lost samples, each reported by one `PERF_RECORD_LOST`.
    pub lost_chunks: Measured<u64>,
    /// CPU time of the collector from start to end, seconds.
    pub collector_cpu_s: Measured<f64>,
    /// CPU time of the collector after the last sample, seconds.
    pub collector_stop_cpu_s: Measured<f64>,
    /// Mean time inside the BPF program per tick, nanoseconds.
    pub bpf_ns_per_sample: Measured<f64>,
    /// The overhead that the recording attributes to itself.
    pub attributed: Measured<Attributed>,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: Measured<u64>,
    /// How the stacks of the target's processes ended, one entry for each strategy.
    pub stacks: Measured<Vec<Stacks>>,
    /// How many frame-pointer stacks are right according to the DWARF stacks of the same samples.
    pub frame_pointers: Measured<Right>,
}

impl Run {
    /// A run of the command alone, or one whose recording cannot be read: every figure of a recording is missing for
    /// `reason`.
    #[must_use]
    pub fn unrecorded(repeat: u32, wall_s: Measured<f64>, metric: Measured<f64>, reason: &str) -> Self {
        fn none<T>(reason: &str) -> Measured<T> {
            Measured::missing(reason)
        }
        Self {
            repeat,
            wall_s,
            metric,
            bytes: none(reason),
            fired: none(reason),
            recorded: none(reason),
            lost: none(reason),
            skipped: none(reason),
            dropped: none(reason),
            lost_chunks: none(reason),
            collector_cpu_s: none(reason),
            collector_stop_cpu_s: none(reason),
            bpf_ns_per_sample: none(reason),
            attributed: none(reason),
            max_rss_bytes: none(reason),
            stacks: none(reason),
            frame_pointers: none(reason),
        }
    }
}

/// The overhead that a recording attributes to itself, in per cent of the target's CPU time
/// ([`crate::overhead::Overhead`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attributed {
    /// Overhead on the target itself: interrupts and BPF programs. A CPU-bound target is slowed down by this much.
    pub on_target_percent: f64,
    /// The same plus the collector's threads, which slow down the target only where they share a CPU.
    pub all_percent: f64,
}

impl Attributed {
    /// Extracts the figures from an overhead; `None` if a part is not known.
    #[must_use]
    pub fn of(overhead: &Overhead) -> Option<Self> {
        Some(Self { on_target_percent: overhead.on_target_percent?, all_percent: overhead.percent_of_target? })
    }
}

/// How the stacks of one run ended under one strategy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// The strategy, such as `fp` or `dwarf`.
    pub strategy: String,
    /// The unwinding program, if not the row's tool.
    pub unwound_by: Option<String>,
    /// By process name; only processes of the target.
    pub processes: BTreeMap<String, StackEnds>,
    /// Name of the flame graph's file, next to the report.
    pub flame_graph: Measured<String>,
}
