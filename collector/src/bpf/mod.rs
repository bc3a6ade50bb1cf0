//! The BPF programs: sizes, configuration, loading.

mod layout;
mod log;
mod programs;
mod skeleton;
mod wait_programs;

pub(crate) use layout::{Layout, LayoutError, MAX_CHUNK_BYTES};
pub use log::print_libbpf_messages;
pub(crate) use log::{collect_messages, lacks_helpers, refusal};
pub(crate) use programs::{Filter, ProgramConfig, Programs, WaitSpec};
pub(crate) use skeleton::types;
