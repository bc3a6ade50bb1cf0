//! The oracle: the true stack of a program at every instruction, and which strategies find it.
//!
//! You provide a program's instructions one by one, as seen when stepping it: what each did to the call stack
//! ([`flow`]), the registers and the stack bytes before it (as a sample), and what was mapped ([`History`]). In turn a
//! [`ShadowStack`] knows the true frames, a [`Checker`] compares every strategy's stack with them ([`verdict`]), a
//! [`Tally`] counts, and [`summarise`] names functions, files and compilers ([`Verification`]). Nothing here runs or
//! stops a process.

mod checker;
mod flow;
mod history;
mod model;
mod producers;
mod shadow;
mod summarise;
mod tally;
mod transfer;
mod verdict;
mod walk_rules;

pub use crate::shown_frame::ShownFrame;
pub use checker::{Checker, available_strategies, check_strategy};
pub use flow::{Flow, MAX_INSTRUCTION_BYTES, ends_in_call, flow};
pub use history::{History, LiveMapping};
pub use model::{Group, JudgedStack, LeafSkips, Mismatch, StrategyVerdicts, Verdicts, Verification, VerifiedRun};
pub use shadow::{FirstWord, Moved, SIGNAL_FRAME_SP, ShadowStack, TrueFrame, Unknown};
pub use summarise::summarise;
pub use tally::{Site, Tally, Wanted};
pub use transfer::{Successors, Transfer, predict_transfer, successors};
pub use verdict::{Flag, Match, Verdict, Wrong, is_caller_of_leaf_missing, verdict};
