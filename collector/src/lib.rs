//! The eBPF collector, its loader, and the process events beside the samples.
mod bpf;
mod decode;
pub mod doctor;
mod error;
mod host;
mod modules;
mod plan;
mod proc;
mod request;
mod ring;
mod session;
mod sideband;
mod synthesis;
mod sys;

pub use error::Error;
pub use plan::sampling_event;
pub use request::{Note, Outcome, Progress, Request, Target, TargetStatus};
pub use session::record;
pub use sys::StopFlag;

/// Most bytes of stack that can be copied for one sample.
pub const MAX_STACK_BYTES: u64 = bpf::MAX_CHUNK_BYTES;
