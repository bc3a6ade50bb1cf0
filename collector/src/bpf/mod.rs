//! The BPF programs: sizes, configuration, loading.

mod layout;
mod programs;
mod skeleton;
mod wait_programs;

pub(crate) use layout::{Layout, LayoutError, MAX_CHUNK_BYTES};
pub(crate) use programs::{Filter, Programs, Wish};
pub(crate) use skeleton::types;
