//! What fires samples: timers, the processor's counters, the kernel's own, tracepoints, and probes in programs.
//!
//! [`EventSpec`] is what can be asked for, by perf's names; `Event` is what the kernel takes.

mod counters;
mod kind;
mod spec;
mod symbol;
mod tracefs;

pub(crate) use kind::{Event, Opened};
pub use spec::{BadEvent, EventSpec};
pub(crate) use symbol::code_offset;
