//! What was run, where, and what every run gave.

use super::{Aggregate, Measured, Right, StackEnds};
use crate::overhead::Overhead;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the layout of `results.json`; raised when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// A whole experiment, as in `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where it ran and with which programs.
    pub environment: ExperimentEnvironment,
    /// Program and arguments, lossily as UTF-8.
    pub command: Vec<String>,
    /// Sampling rate in words, such as `999 Hz`.
    pub rate: String,
    /// Sampling event in words, such as `cpu-clock`.
    pub event: String,
    /// Rounds; every round runs every mode once, in an order of its own.
    pub repeats: u32,
    /// Mode of every run in the order they ran, round after round.
    pub order: Vec<String>,
    /// The workload's own metric; `None` when it was not asked for.
    pub metric: Option<Metric>,
    /// One row for each mode, in the order they are shown.
    pub rows: Vec<ExperimentRow>,
    /// What a reader must know: deviations, failed runs, modes left out. In words.
    pub notes: Vec<String>,
}

/// Where an experiment ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentEnvironment {
    /// When it began, such as `2026-03-01 12:00 UTC`.
    pub date: String,
    /// Host or machine type in words; empty when it is not to be told.
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
    /// Versions of the programs that took part: fpprof first, then perf, nbdkit, fio, …
    pub versions: Vec<Version>,
}

/// A program that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its name.
    pub program: String,
    /// Its version as it tells it.
    pub version: String,
}

/// The workload's own metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Name in words, such as `IOPS`.
    pub name: String,
    /// Unit, such as `1/s`; empty when the name says it all.
    pub unit: String,
    /// The regular expression that found it in the output.
    pub regex: String,
    /// Which way is good.
    pub better_when: BetterWhen,
}

/// Which way of a metric is good.
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
    /// Who records.
    pub tool: Tool,
    /// How stacks are taken.
    pub method: ExperimentMethod,
    /// Most bytes of stack copied for each sample; `None` when none are.
    pub stack_bytes: Option<u64>,
    /// Its runs, one for each round; a run that failed is left out and told in [`Experiment::notes`].
    pub runs: Vec<Run>,
    /// What the runs say together.
    pub aggregate: Aggregate,
}

/// Who records. Ratios of bytes compare a tool with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Nobody: the workload alone.
    Nobody,
    /// `fpprof record`.
    Fpprof,
    /// `perf record`.
    Perf,
}

/// How stacks are taken.
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
    /// Wall time of the command, seconds.
    pub wall_s: f64,
    /// The workload's own metric.
    pub metric: Measured<f64>,
    /// Size of the recording, bytes.
    pub bytes: Measured<u64>,
    /// Ticks of the sampling event.
    pub fired: Measured<u64>,
    /// Samples in the recording.
    pub recorded: Measured<u64>,
    /// Samples lost, by cause; the cause is `lost` where the tool does not tell any.
    pub lost: Measured<BTreeMap<String, u64>>,
    /// Ticks in something that was not to be profiled.
    pub skipped: Measured<u64>,
    /// Samples thrown away by policy or because they could not be written.
    pub dropped: Measured<u64>,
    /// Lost chunks in perf's sense: runs of lost samples, each told by one `PERF_RECORD_LOST`.
    pub lost_chunks: Measured<u64>,
    /// CPU of the collector from its start to its end, seconds.
    pub collector_cpu_s: Measured<f64>,
    /// Part of it after the last sample, seconds.
    pub collector_stop_cpu_s: Measured<f64>,
    /// Mean nanoseconds inside the BPF program for each tick.
    pub bpf_ns_per_sample: Measured<f64>,
    /// What the recording attributes to itself, in per cent of the target's CPU time.
    pub attributed: Measured<Attributed>,
    /// Largest resident set of the collector, bytes.
    pub max_rss_bytes: Measured<u64>,
    /// How the stacks of the target's processes ended, one entry for each strategy.
    pub stacks: Measured<Vec<Stacks>>,
    /// How many frame-pointer stacks are right, by the DWARF stacks of the same samples.
    pub frame_pointers: Measured<Right>,
}

impl Run {
    /// A run of the command alone, or one whose recording cannot be read: every figure of a recording is missing
    /// because of `reason`.
    #[must_use]
    pub fn unrecorded(repeat: u32, wall_s: f64, metric: Measured<f64>, reason: &str) -> Self {
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

/// What a recording attributes to itself, in per cent of the target's CPU time ([`crate::overhead::Overhead`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attributed {
    /// What hits the target itself: interrupts and BPF programs. A target that waits for its CPU is slower by this.
    pub on_target_percent: f64,
    /// With the collector's threads, which take from the target only where they share a CPU.
    pub all_percent: f64,
}

impl Attributed {
    /// What an overhead attributes; `None` where a part of it is not known.
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
    /// Who unwound, when not the row's tool.
    pub unwound_by: Option<String>,
    /// By process name; only processes of the target.
    pub processes: BTreeMap<String, StackEnds>,
    /// Name of the flame graph's file, beside the report.
    pub flame_graph: Measured<String>,
}
