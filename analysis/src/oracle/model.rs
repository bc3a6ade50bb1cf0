//! The model behind `fpprof verify`. Field names are the keys of `verify --json`.

use crate::kernel_walks::KernelWalks;
use crate::shown_frame::ShownFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What stepping one program through gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// What ran, and how.
    pub run: VerifiedRun,
    /// Instructions at which every strategy was compared with the true stack.
    pub checked: u64,
    /// Those of them whose stacks were judged only up to where Go's run-time library ends a stack: how its scheduler's stack
    /// and the goroutine's belong together, it alone knows.
    #[serde(default)]
    pub partly_judged: u64,
    /// Instructions that were to be checked, whose true stack is not known, by reason.
    pub excluded: BTreeMap<String, u64>,
    /// Each strategy over all checked instructions, in the order they were asked for.
    pub strategies: Vec<StrategyVerdicts>,
    /// How the walks by the kernel's code ended, and whether the copied stacks say the same; `None` without the strategy `cfi`.
    #[serde(default)]
    pub kernel_walks: Option<KernelWalks>,
    /// By function: most checked instructions first.
    pub functions: Vec<Group>,
    /// By file.
    pub files: Vec<Group>,
    /// By compiler, as the files say: `DW_AT_producer`, else `.comment`.
    pub compilers: Vec<Group>,
    /// Disagreements that were asked for.
    pub disagreements: Vec<Mismatch>,
    /// What was left out or went wrong, in words.
    pub warnings: Vec<String>,
}

/// What ran, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifiedRun {
    /// Program and arguments, lossily as UTF-8.
    pub command: Vec<String>,
    /// How it ended, in words, such as `exited with status 0`.
    pub ended: String,
    /// Instructions stepped, over all threads. One that repeats (`rep`) counts once.
    pub instructions: u64,
    /// One in so many was checked, chosen at random.
    pub every: u64,
    /// So many were not checked at the start.
    pub skipped: u64,
    /// Only windows of so many instructions, on average, were stepped; `None` if all were.
    pub window: Option<u64>,
    /// One in so many calls, returns and jumps began a window, chosen at random.
    pub leap: Option<u64>,
    /// The seed of what was chosen at random; `None` if all instructions were checked.
    pub seed: Option<u64>,
    /// What happened meanwhile, by name: calls, signals, threads, stack switches, processes not followed.
    pub events: BTreeMap<String, u64>,
}

/// The verdicts on a strategy. `checked = exact + Σ truncated + Σ flagged + Σ wrong`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyVerdicts {
    /// The strategy.
    pub name: String,
    /// Every frame and nothing else.
    pub exact: u64,
    /// Exact stacks that end as truncated or broken: the strategy did not recognise the root.
    pub roots_missed: u64,
    /// Right as far as they go, and they say why they go no further: by stop reason.
    pub truncated: BTreeMap<String, u64>,
    /// Not right, and they say so: by flag, or by what the stack is broken for.
    pub flagged: BTreeMap<String, u64>,
    /// Not right, and nothing says so: by what is wrong.
    pub wrong: BTreeMap<String, u64>,
    /// Stacks in which the frame above the leaf is not the leaf's caller.
    pub leaf_skips: LeafSkips,
}

/// Stacks in which the frame above the leaf is not the leaf's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeafSkips {
    /// As the oracle knows.
    pub real: u64,
    /// As the strategy flags.
    pub flagged: u64,
    /// Flagged, and rightly.
    pub both: u64,
}

/// A function, a file, a compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Demangled name, `file+0xoffset`, path, or compiler.
    pub name: String,
    /// Base name of the file, for a function; empty otherwise.
    pub file: String,
    /// Its instructions that were checked.
    pub checked: u64,
    /// Stacks with the leaf in it, by strategy in the order of [`Verification::strategies`].
    pub leaf: Vec<Verdicts>,
    /// Stacks that went wrong, or ended early, at a frame in it, by strategy. `exact` is 0 here.
    pub broke: Vec<Verdicts>,
}

/// Counts by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdicts {
    /// Every frame right.
    pub exact: u64,
    /// Right as far as they go.
    pub truncated: u64,
    /// Not right, and said so.
    pub flagged: u64,
    /// Not right, and nothing said so.
    pub wrong: u64,
}

/// One disagreement with the true stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Instructions that ran before.
    pub instruction: u64,
    /// Whose.
    pub strategy: String,
    /// Where the program was: function and offset.
    pub place: String,
    /// The frame whose row led astray, or at which the walk ended.
    pub culprit: String,
    /// Its address in the file, SVMA.
    pub culprit_svma: u64,
    /// Its file.
    pub culprit_file: String,
    /// Our unwinder's row there, in words.
    pub row: String,
    /// The true frames, leaf first.
    pub truth: Vec<ShownFrame>,
    /// What every strategy saw.
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
