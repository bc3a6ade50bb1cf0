//! Where two strategies disagree: which samples, which frame first, for which reason, and which strategy is right if
//! the code shows it.
//!
//! You provide a recording and two strategies, the first being the reference. In turn every sample with a user stack is
//! compared frame by frame ([`crate::accuracy::Comparison`]) and counted by relation and by how both stacks ended
//! ([`Reason`]). A difference is attributed to the last frame both have, whose caller they disagree on, with its row of
//! call frame information and examples.
//!
//! # Who is right
//!
//! A return address follows a call. Of two callers of the same frame, one that does not follow a call is wrong; and one
//! after a call of that very function is more likely than one after a call of another ([`Evidence`],
//! [`EvidenceVerdict`]). The result is the same on any number of threads.

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
