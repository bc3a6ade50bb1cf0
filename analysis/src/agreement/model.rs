//! The model behind `fpprof diff`. Field names are the keys of `diff --json`.

use super::{Evidence, EvidenceVerdict};
use crate::accuracy::{Agreement, Relation};
use crate::shown_frame::ShownFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How two strategies differ over the samples of a recording, in full.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disagreement {
    /// The figures that `report` has as well.
    #[serde(flatten)]
    pub agreement: Agreement,
    /// Which strategy is right in the samples that differ.
    pub verdicts: BTreeMap<EvidenceVerdict, u64>,
    /// Samples by relation and by how both stacks ended, including equal ones; most samples first.
    pub reasons: Vec<Reason>,
    /// What was left out or went wrong, as text.
    pub warnings: Vec<String>,
}

/// Samples with one relation whose stacks ended in the same ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// How the other stack relates to the reference's.
    pub relation: Relation,
    /// How the reference's stack ended: class and name, such as `truncated no_cfi`.
    pub reference_end: String,
    /// How the other's stack ended.
    pub other_end: String,
    /// Samples.
    pub samples: u64,
    /// Which strategy is right in them; empty if the frames are the same.
    pub verdicts: BTreeMap<EvidenceVerdict, u64>,
    /// The earliest sample at each of the first few places where they differ.
    pub examples: Vec<Example>,
}

/// A sample whose stacks differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// Its time, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Index of the last frame both have before the first difference; the leaf is 0.
    pub frame: usize,
    /// That frame.
    pub place: String,
    /// Its address in the file, SVMA; if it is in no module, AVMA.
    pub svma: u64,
    /// Our row there, as text; or why there is none.
    pub row: String,
    /// The rule the other strategy follows there, if it is not that row.
    pub other_row: Option<String>,
    /// Which strategy is right.
    pub verdict: EvidenceVerdict,
    /// What precedes the reference's return address.
    pub reference_evidence: Evidence,
    /// What precedes the other's return address.
    pub other_evidence: Evidence,
    /// The reference's stack.
    pub reference: ShownStack,
    /// The other strategy's stack.
    pub other: ShownStack,
}

/// A stack to be displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownStack {
    /// How it ended: class and name.
    pub end: String,
    /// Frames left out at the leaf end.
    pub n_before: usize,
    /// Leaf first, up to a few frames beyond the first difference.
    pub frames: Vec<ShownFrame>,
    /// Frames left out at the root end.
    pub n_more: usize,
}
