//! What fires samples: timers, hardware and software counters, tracepoints, and uprobes.
//!
//! [`EventSpec`] is a request in perf's names; `Event` is what the kernel takes.

mod counters;
mod kind;
mod spec;
mod symbol;
mod tracefs;

pub(crate) use kind::{Event, Opened};
pub use spec::{BadEvent, EventSpec};
pub(crate) use symbol::code_offset;
