//! The verdict on one recording: sentences computed from its figures by a rule that is printed with them.
//!
//! ```text
//! complete(strategy) = all samples, and every process name with >= 1 % and 100 of them, have >= 99 % of their stacks
//!                      complete
//! right(fp)          = ... and >= 99 % of them with all the frames of the reference, and no wrong one
//! doubtful(dwarf)    = not complete(dwarf), or > 1 % with a return address without a call before it, or > 1 % in which
//!                      another unwinder has other frames
//! verdict            = none where doubtful(dwarf); frame pointers where right(fp); else the smallest chunk with
//!                      complete(dwarf@chunk)
//! ```

mod case;
mod findings;
mod names;
mod rule;

pub(crate) use case::{Case, PERCENTS, per_minute, remedy, smallest, strategy_words};
pub(crate) use findings::{RULE, advice, findings, headline};
pub(crate) use names::{Named, names};
pub(crate) use rule::{MAX_LOST, MIN_SAMPLES, is_good, is_judged, is_large};
