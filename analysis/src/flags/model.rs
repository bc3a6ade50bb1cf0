//! Measurements, and what follows from them.

use super::estimate::Effect;
use crate::audit::CodeTally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A compiler with flags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagSet {
    /// Its name.
    pub name: String,
    /// The compiler's command.
    pub compiler: String,
    /// The compiler's version, as it reports it.
    pub version: String,
    /// The flags.
    pub cflags: String,
    /// Name of the flag set it is compared with; its own name for a baseline.
    pub against: String,
}

/// A set of binaries of a program: those of a flag set, or the second set of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Arm {
    /// The flag set.
    pub flags: String,
    /// Whether this is the second set of binaries of a baseline, built with the same flags (A/A).
    pub again: bool,
}

/// CPU seconds of every binary of every arm in one round, in the order of [`RawProgram::arms`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The round.
    pub round: u32,
    /// User and system time, seconds: `[arm][binary]`.
    pub cpu_s: Vec<Vec<f64>>,
}

/// Sizes of a binary in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSizes {
    /// `.text`.
    pub text: u64,
    /// `.eh_frame` and `.eh_frame_hdr`.
    pub unwind: u64,
    /// `.sframe`.
    pub sframe: u64,
    /// The whole file after stripping.
    pub stripped: u64,
}

/// Results of recordings of a binary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlagsQuality {
    /// Samples of the frame-pointer recording.
    pub fp_samples: u64,
    /// File size of that recording per sample, bytes.
    pub fp_bytes_per_sample: f64,
    /// Samples of the recording with copied stacks.
    pub dwarf_samples: u64,
    /// File size of that recording per sample, bytes.
    pub dwarf_bytes_per_sample: f64,
    /// Share of samples lost in both recordings, per cent.
    pub lost_percent: f64,
    /// CPU time of the profiler in per cent of one CPU, with frame pointers.
    pub fp_profiler_percent: Option<f64>,
    /// The same with copied stacks.
    pub dwarf_profiler_percent: Option<f64>,
    /// By strategy (`fp`, `dwarf@4096`, …), on the same samples.
    pub strategies: BTreeMap<String, StrategyQuality>,
}

/// How stacks ended under one strategy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StrategyQuality {
    /// Samples.
    pub samples: u64,
    /// Stacks that reach a root, beyond `main`.
    pub complete: u64,
    /// Stacks that reach a root, `main`, or a thread's start function. If libc has no frame pointers, frame-pointer
    /// stacks end at the caller of these, which does no harm.
    pub reach_main: u64,
    /// Stacks that lack only the leaf's caller, compared with the largest chunk on the same samples; `None` if not
    /// compared.
    pub caller_dropped: Option<u64>,
    /// Stacks whose frames are those of the largest chunk from the leaf to the root, to `main` or a thread's start
    /// function, or to a caller of these; `None` if not compared.
    pub frame_exact: Option<u64>,
    /// Reasons why stacks did not reach a root, with counts.
    pub reasons: BTreeMap<String, u64>,
    /// Files after whose code stacks first differ from those of the largest chunk, with counts; not counting stacks
    /// that merely end at `main`'s caller. Empty if not compared.
    #[serde(default, rename = "broke_behind")]
    pub breaking_files: BTreeMap<String, u64>,
}

/// Properties of one arm of a program, other than its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Sizes of its first binary.
    pub sizes: FileSizes,
    /// The static audit of its first binary.
    pub tally: Option<TallySummary>,
    /// Instructions of a shorter run under a simulator; `None` without one.
    pub instructions: Option<u64>,
    /// Results of recordings; `None` if there are none.
    pub quality: Option<FlagsQuality>,
}

/// The figures of an audit that a comparison shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TallySummary {
    /// Functions that call.
    pub non_leaf: u64,
    /// Functions that call and set up a frame pointer.
    pub non_leaf_framed: u64,
    /// Bytes where a frame-pointer walk finds the caller.
    pub ok: u64,
    /// Bytes where the walk drops the caller.
    pub drops_caller: u64,
    /// Bytes where the walk breaks.
    pub breaks_chain: u64,
}

impl From<&CodeTally> for TallySummary {
    fn from(tally: &CodeTally) -> Self {
        Self {
            non_leaf: tally.functions.non_leaf,
            non_leaf_framed: tally.functions.non_leaf_framed,
            ok: tally.code.ok,
            drops_caller: tally.code.drops_caller,
            breaks_chain: tally.code.breaks_chain,
        }
    }
}

/// All measurements of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawProgram {
    /// Its name.
    pub name: String,
    /// Its arms, in the order of the times.
    pub arms: Vec<Arm>,
    /// The properties of each arm.
    pub results: Vec<ArmResult>,
    /// The layout of each binary of each arm, in the order of the times: binaries with the same number are the same bytes.
    pub layouts: Vec<Vec<u32>>,
    /// Rounds, in order.
    pub times: Vec<Times>,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// The machine.
    pub environment: FlagsEnvironment,
    /// The method.
    pub method: FlagsMethod,
    /// The flag sets, baselines first.
    pub flag_sets: Vec<FlagSet>,
    /// The programs.
    pub programs: Vec<RawProgram>,
    /// What was requested but is missing, and why.
    pub missing: Vec<String>,
}

/// The machine, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsEnvironment {
    /// CPU model and count.
    pub cpu: String,
    /// Kernel.
    pub kernel: String,
    /// Distribution.
    pub distribution: String,
    /// Linker and assembler.
    pub binutils: String,
    /// When the first run began.
    pub date: String,
    /// Load averages when the first run began.
    pub load: String,
}

/// The method.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsMethod {
    /// Seed for layouts and the order of runs.
    pub seed: u64,
    /// Rounds requested.
    pub rounds: u32,
    /// Link layouts per flag set; some of a program may be the same file.
    pub layouts: u32,
    /// Identical copies of each layout.
    pub copies: u32,
    /// How layouts were made.
    pub layout: String,
    /// The command to repeat everything.
    pub repeat: String,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The machine.
    pub environment: FlagsEnvironment,
    /// The method.
    pub method: FlagsMethod,
    /// The flag sets, baselines first.
    pub flag_sets: Vec<FlagSet>,
    /// One result for each flag set that is not a baseline, and one A/A result for each baseline.
    pub results: Vec<FlagSetResult>,
    /// What was requested but is missing, and why.
    pub missing: Vec<String>,
}

/// A flag set compared with its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagSetResult {
    /// The flag set, or a baseline's second set of binaries.
    pub arm: Arm,
    /// The baseline.
    pub against: String,
    /// By program.
    pub programs: Vec<ProgramResult>,
    /// The mean over programs; `None` for fewer than two.
    pub mean: Option<Effect>,
    /// The recommendation; `None` for A/A.
    pub verdict: Option<FlagsVerdict>,
}

/// A program under a flag set, compared with its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Its name.
    pub name: String,
    /// The change in CPU time, or the reason why there is none.
    pub effect: Result<Effect, String>,
    /// Holm-adjusted probability over the programs of this flag set.
    pub p_holm: Option<f64>,
    /// Number of rounds used.
    pub rounds: u32,
    /// The flag set's arm.
    pub treated: ArmResult,
    /// The baseline's arm.
    pub baseline: ArmResult,
}

/// A verdict with the figures it is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum FlagsVerdict {
    /// Low cost, good stacks.
    Adopt {
        /// Why.
        because: String,
    },
    /// The same, except for some programs.
    AdoptWithOptOuts {
        /// Why.
        because: String,
        /// The programs to exclude.
        programs: Vec<String>,
    },
    /// Too expensive, or bad stacks.
    Reject {
        /// Why.
        because: String,
    },
    /// More binaries or programs are needed.
    Inconclusive {
        /// Why.
        because: String,
    },
}
