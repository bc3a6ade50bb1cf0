//! What was measured, and what follows from it.

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
    /// What the compiler says its version is.
    pub version: String,
    /// The flags.
    pub cflags: String,
    /// Name of the flag set it is compared with; its own name for a baseline.
    pub against: String,
}

/// Which binaries of a program: those of a flag set, or the second set of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Arm {
    /// The flag set.
    pub flags: String,
    /// The second set of binaries of a baseline, built with the same flags (A/A).
    pub again: bool,
}

/// CPU seconds of every binary of every arm in one round, in the order of [`RawProgram::arms`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Which round.
    pub round: u32,
    /// User and system time, seconds: `[arm][binary]`.
    pub cpu_s: Vec<Vec<f64>>,
}

/// Bytes of a binary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSizes {
    /// `.text`.
    pub text: u64,
    /// `.eh_frame` and `.eh_frame_hdr`.
    pub unwind: u64,
    /// `.sframe`.
    pub sframe: u64,
    /// The whole file, stripped.
    pub stripped: u64,
}

/// What recordings of a binary showed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlagsQuality {
    /// Samples of the recording with frame pointers.
    pub fp_samples: u64,
    /// Bytes of that recording's file for each sample.
    pub fp_bytes_per_sample: f64,
    /// Samples of the recording with copied stacks.
    pub dwarf_samples: u64,
    /// Bytes of that recording's file for each sample.
    pub dwarf_bytes_per_sample: f64,
    /// Share of samples lost in both, per cent.
    pub lost_percent: f64,
    /// CPU seconds of the profiler for each second of the program, with frame pointers, per cent.
    pub fp_profiler_percent: Option<f64>,
    /// Likewise with copied stacks.
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
    /// Stacks that reach a root, `main`, or the function a thread began with. Where libc keeps no frame pointers, stacks
    /// by frame pointers end at the caller of these, and that costs nobody anything.
    pub reach_main: u64,
    /// Stacks in which the leaf's caller is missing and the rest is right, against the largest chunk on the same
    /// samples; `None` where nobody compared.
    pub caller_dropped: Option<u64>,
    /// Stacks whose frames are those of the largest chunk from the leaf to the root, `main` or the function a thread began
    /// with; `None` where nobody compared.
    pub frame_exact: Option<u64>,
    /// Reasons why stacks did not reach a root, with how many.
    pub reasons: BTreeMap<String, u64>,
    /// Files behind whose code stacks first differ from those of the largest chunk, with how many; stacks that only end
    /// at `main`'s caller are not among them. Empty where nobody compared.
    #[serde(default)]
    pub broke_behind: BTreeMap<String, u64>,
}

/// What one arm of a program is, beside its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Sizes of its first binary.
    pub sizes: FileSizes,
    /// The static audit of its first binary.
    pub tally: Option<TallySummary>,
    /// Instructions of a shorter run under a simulator; `None` without one.
    pub instructions: Option<u64>,
    /// What recordings showed; `None` if none were made.
    pub quality: Option<FlagsQuality>,
}

/// The figures of an audit that a comparison shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TallySummary {
    /// Functions that call.
    pub non_leaf: u64,
    /// Those of them with a frame pointer.
    pub non_leaf_framed: u64,
    /// Bytes where a walk is right.
    pub ok: u64,
    /// Bytes where it drops the caller.
    pub drops_caller: u64,
    /// Bytes where it breaks.
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

/// Everything measured on one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawProgram {
    /// Its name.
    pub name: String,
    /// Its arms, in the order of the times.
    pub arms: Vec<Arm>,
    /// What each arm is.
    pub results: Vec<ArmResult>,
    /// Rounds, in their order.
    pub times: Vec<Times>,
}

/// Everything measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// Where.
    pub environment: FlagsEnvironment,
    /// How.
    pub method: FlagsMethod,
    /// The flag sets, baselines first.
    pub flag_sets: Vec<FlagSet>,
    /// The programs.
    pub programs: Vec<RawProgram>,
    /// What was requested and is not here, and why.
    pub missing: Vec<String>,
}

/// The machine, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsEnvironment {
    /// CPU model and how many.
    pub cpu: String,
    /// Kernel.
    pub kernel: String,
    /// Distribution.
    pub distribution: String,
    /// Linker and assembler.
    pub binutils: String,
    /// When the first build began.
    pub date: String,
    /// Load average at the first round.
    pub load: String,
}

/// How it was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsMethod {
    /// Seed of layouts and of the order of runs.
    pub seed: u64,
    /// Rounds requested.
    pub rounds: u32,
    /// Link layouts for each flag set.
    pub layouts: u32,
    /// Copies of each layout, equal byte by byte.
    pub copies: u32,
    /// How layouts were made.
    pub layout: String,
    /// The command that repeats everything.
    pub repeat: String,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// What it follows from, without the times.
    pub environment: FlagsEnvironment,
    /// How.
    pub method: FlagsMethod,
    /// The flag sets, baselines first.
    pub flag_sets: Vec<FlagSet>,
    /// One result for each flag set that is no baseline, and one A/A result for each baseline.
    pub results: Vec<FlagSetResult>,
    /// What was requested and is not here, and why.
    pub missing: Vec<String>,
}

/// A flag set against its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagSetResult {
    /// Which.
    pub arm: Arm,
    /// The baseline.
    pub against: String,
    /// By program.
    pub programs: Vec<ProgramResult>,
    /// The mean over programs; `None` for fewer than two.
    pub mean: Option<Effect>,
    /// What to do; `None` for A/A.
    pub verdict: Option<FlagsVerdict>,
}

/// A program under a flag set, against its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Its name.
    pub name: String,
    /// The change in CPU time; the reason why there is none otherwise.
    pub effect: Result<Effect, String>,
    /// Holm-adjusted probability over the programs of this flag set.
    pub p_holm: Option<f64>,
    /// Rounds that count.
    pub rounds: u32,
    /// The flag set's arm.
    pub treated: ArmResult,
    /// The baseline's.
    pub baseline: ArmResult,
}

/// A verdict, with the figures that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum FlagsVerdict {
    /// It costs little and gives stacks.
    Adopt {
        /// Why.
        because: String,
    },
    /// Likewise, but for these programs.
    AdoptWithOptOuts {
        /// Why.
        because: String,
        /// The programs to leave out.
        programs: Vec<String>,
    },
    /// It costs too much, or gives no stacks.
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
