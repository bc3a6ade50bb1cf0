//! What is inside a block's payload.

mod cfi;
mod chains;
mod columns;
mod decode;
mod encode;
mod gaps;
mod memory;
mod sideband;
mod state;
pub(crate) mod varint;
mod words;

pub use cfi::MAX_CFI_FRAMES;
pub(crate) use decode::{decode_samples, decode_who, tells_who};
pub(crate) use encode::SampleEncoder;
pub(crate) use gaps::{GapEncoder, decode_gaps};
pub use sideband::MAX_EVENT_BYTES;
pub(crate) use sideband::{SidebandEncoder, decode_sideband, variable_bytes};
pub use state::{MAX_CHAIN_FRAMES, MAX_HOLES, MAX_STACK_BYTES};
