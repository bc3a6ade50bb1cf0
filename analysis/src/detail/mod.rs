//! What a page shows beyond the summary: the stacks of two strategies side by side, by process and thread, with what
//! both have marked; and the recording by time, with losses where they happened.
//!
//! Made only when it is asked for ([`crate::Options::page`]), since it keeps the samples of threads apart.

mod model;
mod over_time;
mod pairs;
mod tree;

pub use model::{Details, Gap, Mark, Node, NodeKind, OverTime, PairRow, PairedStacks, Process, Slice, Thread};
pub(crate) use over_time::{Around, OverTimeCounter};
pub(crate) use pairs::{PairCounter, pair_of};
pub(crate) use tree::paired_stacks;
