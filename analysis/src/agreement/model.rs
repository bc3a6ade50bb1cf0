//! The model behind `fpprof diff`. Field names are the keys of `diff --json`.

use super::{Evidence, EvidenceVerdict};
use crate::accuracy::{Agreement, Relation};
use crate::shown_frame::ShownFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How two strategies differ over the samples of a recording, in full.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disagreement {
    /// What `report` says of the two as well.
    #[serde(flatten)]
    pub agreement: Agreement,
    /// Who is right in the samples that differ.
    pub verdicts: BTreeMap<EvidenceVerdict, u64>,
    /// Samples by relation and by how both stacks ended, those that are the same included; most samples first.
    pub reasons: Vec<Reason>,
    /// What was left out or went wrong, in words.
    pub warnings: Vec<String>,
}

/// Samples of one relation whose stacks ended in the same ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What the other's stack is to the reference's.
    pub relation: Relation,
    /// How the reference's stack ended: class and name, such as `truncated no_cfi`.
    pub reference_end: String,
    /// How the other's stack ended.
    pub other_end: String,
    /// Samples.
    pub samples: u64,
    /// Who is right in them; empty where the frames are the same.
    pub verdicts: BTreeMap<EvidenceVerdict, u64>,
    /// The earliest sample of each of the first few places where they differ.
    pub examples: Vec<Example>,
}

/// One sample that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Index of the last frame both have before they differ first, leaf 0.
    pub frame: usize,
    /// That frame.
    pub place: String,
    /// Its address in the file, SVMA; in no module, AVMA.
    pub svma: u64,
    /// Our row there, in words; or why there is none.
    pub row: String,
    /// The rule the other strategy follows there, where it is not that row.
    pub other_row: Option<String>,
    /// Who is right.
    pub verdict: EvidenceVerdict,
    /// What stands before the return address the reference gives.
    pub reference_evidence: Evidence,
    /// What stands before the return address the other gives.
    pub other_evidence: Evidence,
    /// The reference's stack.
    pub reference: ShownStack,
    /// The other's.
    pub other: ShownStack,
}

/// A stack that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownStack {
    /// How it ended: class and name.
    pub end: String,
    /// Frames left out at the leaf side.
    pub n_before: usize,
    /// Leaf first, up to a few frames beyond the first difference.
    pub frames: Vec<ShownFrame>,
    /// Frames left out at the root side.
    pub n_more: usize,
}
