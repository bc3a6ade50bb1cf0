//! The collector without BPF: the kernel's own samples, read from perf event ring buffers.
//!
//! Any user can record their own processes this way if `kernel.perf_event_paranoid` is at most 2. The kernel copies at
//! most 65,528 bytes of stack for a sample, all of them or up to the first page that is not present. It walks frame
//! pointers without reporting where the frames are or why it stopped; `decode` and `stack_ends` add what can be seen of
//! that in the copied bytes.
//!
//! There is one event for each CPU and profiled thread, inherited by its descendants, or one for each CPU alone. The
//! samples of a CPU share one ring and its process events another, so that samples never take the room of a mapping.
//!
//! **The balance.** Every tick that reaches the kernel's sampling code becomes a sample or is counted as lost, so fired
//! is the sum of read and lost. Ticks that the event excludes (in the kernel, for ordinary users) are not counted
//! anywhere, and the recording says so ([`fpprof_recording::model::Meta::not_counted`]). A thread that ran less than a
//! period has no ticks either: the clock of an inherited event starts with its thread.

mod decode;
mod dumpable;
mod events;
mod plan;
mod reader;
mod rights;
mod session;
mod stack_ends;

pub(crate) use plan::refused_target;
pub(crate) use rights::Rights;
pub(crate) use session::{record, rehearse};
