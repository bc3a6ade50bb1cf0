//! The payload of blocks.
//!
//! A block of samples is a set of columns, one for each kind of value, and zstd compresses them one after the other.
//! Writer and reader start a block with the same empty state and update it in the same way, so that the columns hold
//! only what differs from the prediction of that state:
//!
//! ```text
//! sample ─┬─ thread, CPU, time, registers ─▶ state: the last sample of that thread, of that CPU ─▶ differences ─┐
//!         ├─ stack bytes ─▶ memory: an image of the pages, by process and address ─▶ words that differ ─▶ words  │
//!         │                                              (numbers of distinct words, the last ones first) ◀──┘   ├─▶ columns
//!         └─ chains ─▶ chains: the number of a known chain, or the frames it does not share with the last one ───┘
//! ```
//!
//! No state outlives a block, so each can be read without the others. `FORMAT.md` describes each column.

mod cfi;
mod chains;
mod columns;
mod decode;
mod encode;
mod gaps;
mod memory;
mod repeats;
mod sideband;
mod state;
pub(crate) mod varint;
mod words;

pub use cfi::MAX_CFI_FRAMES;
pub(crate) use decode::{decode_samples, decode_who, is_thread_column};
pub(crate) use encode::SampleEncoder;
pub(crate) use gaps::{GapEncoder, decode_gaps};
pub use sideband::{MAX_CGROUP_BYTES, MAX_ENVIRONMENT_BYTES, MAX_EVENT_BYTES};
pub(crate) use sideband::{SidebandEncoder, decode_sideband, variable_bytes};
pub use state::{MAX_CHAIN_FRAMES, MAX_HOLES, MAX_STACK_BYTES};
