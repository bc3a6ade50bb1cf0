//! The verdict on one recording: sentences computed from its figures by a rule that is printed with them.
//!
//! ```text
//! complete(strategy) = all samples, and every process name with >= 1 % and 100 of them, have >= 99 % of their stacks
//!                      complete
//! right(fp)          = ... and >= 99 % of them with all the frames of the reference, and no wrong one
//! verdict            = frame pointers where right(fp); else the smallest chunk with complete(dwarf@chunk);
//!                      where there is none though no stack is cut short, the smallest chunk that completes 99 % of
//!                      those that any chunk completes
//! ```

mod case;
mod findings;
mod names;
mod rule;

pub(crate) use case::{Case, PERCENTS, chunk_words, per_minute, smallest, strategy_words};
pub(crate) use findings::{RULE, advice, findings, headline};
pub(crate) use names::{Named, names};
pub(crate) use rule::{MAX_LOST, is_good, is_judged, is_large};
