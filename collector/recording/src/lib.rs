//! The sample model and the recording format.
//!
//! [`model`] says what a recording holds: what was asked for ([`model::Meta`]), what the processes did
//! ([`model::Sideband`]), what was sampled ([`model::Sample`]), and how it ended ([`model::End`]).
//! [`RecordingWriter`] puts it into a file, [`Recording`] takes it out again; `FORMAT.md` specifies the bytes.
//!
//! What you give: a sink (the file itself), the values, and the mappings that words of a stack may point into. In turn a
//! flush puts everything so far into the sink, a recording that was killed, cut or damaged gives all its intact blocks and
//! says what is missing ([`Damage`]), and a stack costs about as much as what changed in it.
//!
//! It knows nothing of eBPF, of files' names or of unwinding, so that a recording can be analysed on any machine.
//! It is no archive: the files that were mapped are named, not kept.
//!
//! ```
//! use fpprof_recording::model::{CaptureMode, Collector, Host, Meta, Sample, Target};
//! use fpprof_recording::{Recording, RecordingWriter, Tally, balance};
//!
//! # let host = Host { arch: "x86_64".into(), cpus_online: 1, ..Host::default() };
//! # let meta = Meta { tool_version: "0.1.0".into(), start_ns: 0, start_unix_ns: 0, host, collector: Collector::Ebpf,
//! #     events: Vec::new(), mode: CaptureMode::Fp, kernel_stacks: true, scrubbed: true, target: Target::System,
//! #     not_counted: Vec::new() };
//! let mut writer = RecordingWriter::new(Vec::new(), &meta)?;
//! for fired in 1..=3 {
//!     writer.sample(&Sample { cpu_fired: fired, kernel: vec![0xffff_ffff_8100_0000], ..Sample::default() }, None)?;
//! }
//! writer.flush()?;
//!
//! let file = std::io::Cursor::new(writer.into_inner());
//! let mut recording = Recording::open(file)?;
//! let mut tally = Tally::default();
//! recording.samples(|sample| tally.observe(sample))?;
//! assert!(recording.end().is_none() && recording.damage().is_none());
//! assert_eq!(balance(recording.end(), recording.checkpoint(), &tally)[0].recorded, 3);
//! # Ok::<(), fpprof_recording::Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod compiled;
pub mod model;

mod balance;
mod block;
mod block_sink;
mod codec;
mod damage;
mod error;
mod mapping_ranges;
mod pack;
mod packed_module;
mod reader;
mod scan;
mod scrub;
mod workers;
mod writer;

pub use balance::{CpuSeen, Tally, balance};
pub use block::{BLOCK_BYTES, FORMAT_VERSION, Kind as BlockKind, MAX_RAW_BYTES, block_kind};
pub use codec::{MAX_CFI_FRAMES, MAX_CHAIN_FRAMES, MAX_EVENT_BYTES, MAX_HOLES, MAX_STACK_BYTES};
pub use damage::Damage;
pub use error::{Error, LooksLike};
pub use mapping_ranges::MappingRanges;
pub use packed_module::PackedModule;
pub use reader::{Recording, SampleBlock};
pub use writer::{RecordingWriter, WriteTally};
