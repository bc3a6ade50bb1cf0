//! The eBPF collector, its loader, and the process events beside the samples.
mod bpf;
mod decode;
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
pub use request::{Note, Outcome, Progress, Request, Target, TargetStatus};
pub use session::record;
pub use sys::StopFlag;
