//! The sample model and the recording format.
//!
//! [`model`] says what a recording holds: what was asked for ([`model::Meta`]), what the processes did
//! ([`model::Sideband`]), what was sampled ([`model::Sample`]), and how it ended ([`model::End`]).
//! [`RecordingWriter`] puts it into a file, [`Recording`] takes it out again; `FORMAT.md` specifies the bytes.
//!
//! It knows nothing of eBPF, of files' names or of unwinding, so that a recording can be analysed on any machine.
//! It is no archive: the files that were mapped are named, not kept.

pub mod model;

mod balance;
mod block;
mod block_sink;
mod codec;
mod damage;
mod error;
mod pack;
mod reader;
mod scan;
mod scrub;
mod writer;

pub use balance::{CpuSeen, Tally, balance};
pub use block::{FORMAT_VERSION, MAX_RAW_BYTES};
pub use codec::{MAX_CHAIN_FRAMES, MAX_EVENT_BYTES, MAX_HOLES, MAX_STACK_BYTES};
pub use damage::Damage;
pub use error::{Error, LooksLike};
pub use reader::{Recording, SampleBlock};
pub use scrub::MappingRanges;
pub use writer::{BLOCK_BYTES, RecordingWriter, WriteTally};
