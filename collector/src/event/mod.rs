//! What fires samples: timers, the processor's counters, the kernel's own, tracepoints, and probes in programs.
//!
//! [`EventWish`] is what can be asked for, by perf's names; `Event` is what the kernel takes.

mod counters;
mod kind;
mod symbol;
mod tracefs;
mod wish;

pub(crate) use kind::{Event, Opened};
pub use wish::{BadEvent, EventWish};
