//! Where two strategies disagree: which samples, which frame first, for which reason, and who is right where the
//! instructions show it.
//!
//! You provide a recording and two strategies, the first taken for the reference. In turn every sample with a user
//! stack is compared frame by frame ([`crate::accuracy::Comparison`]) and counted by relation and by how both stacks
//! ended ([`Reason`]); what differs is laid at the door of the last frame both have, whose caller they disagree on,
//! with its row of call frame information and examples.
//!
//! # Who is right
//!
//! A return address stands behind a call. Of two callers of the same frame the one behind no call is wrong; and the one
//! behind a call of that very function is more likely than one behind a call of another ([`Evidence`], [`EvidenceVerdict`]).
//! The result is the same at any number of threads.

mod collector;
mod evidence;
mod model;
mod report;

pub use crate::shown_frame::ShownFrame;
pub use evidence::{Evidence, EvidenceVerdict};
pub use model::{Disagreement, Example, Reason, ShownStack};
pub use report::{AgreementOptions, disagreement};

#[cfg(test)]
mod tests;
