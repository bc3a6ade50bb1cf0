//! The model of the HTML page beyond the summary: the stacks of two strategies side by side, by process and thread,
//! with common frames marked; and the recording over time, with its losses.
//!
//! Computed only if asked for ([`crate::Options::page`]), since it counts the samples of each thread separately.

mod model;
mod over_time;
mod pairs;
mod tree;

pub use model::{Details, Gap, Mark, Node, NodeKind, OverTime, PairRow, PairedStacks, Process, Slice, Thread};
pub(crate) use over_time::{Around, OverTimeCounter};
pub(crate) use pairs::{PairCounter, pair_of};
pub(crate) use tree::paired_stacks;
