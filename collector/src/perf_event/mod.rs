//! The collector without BPF: the kernel's own samples, read from the rings of perf events.
//!
//! What any user may do for processes of theirs, where `kernel.perf_event_paranoid` is at most 2. The kernel copies at
//! most 65,528 bytes of stack for a sample, all of them or up to the first page that is not there, and walks frame
//! pointers without saying where the frames lie or why it stopped; what of that can be seen in the copied bytes is
//! added (`decode`, `stack_ends`).
//!
//! One event for each CPU and profiled thread, inherited by what descends from it, or one for each CPU alone. The samples
//! of a CPU share one ring, its process events another, so that samples never take the room of a mapping.
//!
//! **The balance.** Every tick that reaches the kernel's sampling code becomes a sample or is counted as lost, so what
//! fired is what was read and what was lost. Ticks the event excludes (in the kernel, for ordinary users) are nowhere
//! counted, and the recording says so ([`fpprof_recording::model::Meta::not_counted`]). Nor are there any of a thread that
//! ran less than a period: the clock of an inherited event starts with its thread.

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
pub(crate) use session::record;
