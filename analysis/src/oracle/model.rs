//! The model behind `fpprof verify`. Field names are the keys of `verify --json`.

use crate::kernel_walks::KernelWalks;
use crate::shown_frame::ShownFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of stepping through a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// The run.
    pub run: VerifiedRun,
    /// Instructions at which every strategy was compared with the true stack.
    pub checked: u64,
    /// Those whose stacks were judged only up to where Go's run-time library ends a stack, since only that knows how
    /// its scheduler's stack and the goroutine's are connected.
    #[serde(default)]
    pub partly_judged: u64,
    /// Instructions that should have been checked, but whose true stack is not known, by reason.
    pub excluded: BTreeMap<String, u64>,
    /// Each strategy over all checked instructions, in the requested order.
    pub strategies: Vec<StrategyVerdicts>,
    /// Ends of the walks by the kernel's code, and their agreement with copied stacks; `None` without the strategy
    /// `cfi`.
    #[serde(default)]
    pub kernel_walks: Option<KernelWalks>,
    /// By function, most checked instructions first.
    pub functions: Vec<Group>,
    /// By file.
    pub files: Vec<Group>,
    /// By compiler, according to the files: `DW_AT_producer`, else `.comment`.
    pub compilers: Vec<Group>,
    /// The requested disagreements.
    pub disagreements: Vec<Mismatch>,
    /// What was left out or went wrong, as text.
    pub warnings: Vec<String>,
}

/// The run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifiedRun {
    /// Program and arguments, lossily as UTF-8.
    pub command: Vec<String>,
    /// How it ended, as text, such as `exited with status 0`.
    pub ended: String,
    /// Instructions stepped, over all threads. One that repeats (`rep`) counts once.
    pub instructions: u64,
    /// One in this many instructions was checked, chosen at random.
    pub every: u64,
    /// Instructions at the start that were not checked.
    pub skipped: u64,
    /// Mean length of the windows of instructions that were stepped; `None` if all were.
    pub window: Option<u64>,
    /// One in this many calls, returns and jumps began a window, chosen at random.
    pub leap: Option<u64>,
    /// The seed of the random choices; `None` if all instructions were checked.
    pub seed: Option<u64>,
    /// Events during the run, by name: calls, signals, threads, stack switches, processes not followed.
    pub events: BTreeMap<String, u64>,
}

/// The verdicts on a strategy. `checked = exact + Σ truncated + Σ flagged + Σ wrong`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyVerdicts {
    /// The strategy.
    pub name: String,
    /// Every frame and no other.
    pub exact: u64,
    /// Exact stacks that end as truncated or broken: the strategy did not recognise the root.
    pub roots_missed: u64,
    /// Right as far as they go, with a reason why they end: by stop reason.
    pub truncated: BTreeMap<String, u64>,
    /// Wrong but flagged: by flag, or by the reason why the stack is broken.
    pub flagged: BTreeMap<String, u64>,
    /// Wrong and not flagged: by what is wrong.
    pub wrong: BTreeMap<String, u64>,
    /// Stacks in which the frame above the leaf is not the leaf's caller.
    pub leaf_skips: LeafSkips,
}

/// Stacks in which the frame above the leaf is not the leaf's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeafSkips {
    /// According to the oracle.
    pub real: u64,
    /// Flagged by the strategy.
    pub flagged: u64,
    /// Flagged correctly.
    pub both: u64,
}

/// A function, a file, a compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Demangled name, `file+0xoffset`, path, or compiler.
    pub name: String,
    /// Base name of the file, for a function; empty otherwise.
    pub file: String,
    /// Its checked instructions.
    pub checked: u64,
    /// Stacks with the leaf in it, by strategy in the order of [`Verification::strategies`].
    pub leaf: Vec<Verdicts>,
    /// Stacks that went wrong or ended early at one of its frames, by strategy. `exact` is always 0.
    pub broke: Vec<Verdicts>,
}

/// Counts by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdicts {
    /// Every frame right.
    pub exact: u64,
    /// Right as far as they go.
    pub truncated: u64,
    /// Wrong but flagged.
    pub flagged: u64,
    /// Wrong and not flagged.
    pub wrong: u64,
}

/// A disagreement with the true stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Number of instructions executed before.
    pub instruction: u64,
    /// The strategy that disagrees.
    pub strategy: String,
    /// The current function and offset.
    pub place: String,
    /// The frame whose row was wrong, or at which the walk ended.
    pub culprit: String,
    /// Its address in the file, SVMA.
    pub culprit_svma: u64,
    /// Its file.
    pub culprit_file: String,
    /// Our unwinder's row there, as text.
    pub row: String,
    /// The true frames, leaf first.
    pub truth: Vec<ShownFrame>,
    /// The stack of every strategy.
    pub stacks: Vec<JudgedStack>,
}

/// A strategy's stack at a disagreement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedStack {
    /// The strategy.
    pub strategy: String,
    /// `exact`, `truncated`, `flagged` or `wrong`.
    pub class: String,
    /// The reason within the class; empty for an exact stack.
    pub reason: String,
    /// Leaf first.
    pub frames: Vec<ShownFrame>,
}
