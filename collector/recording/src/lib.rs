//! The sample model and the recording format.
//!
//! [`model`] has the contents of a recording: how it was made ([`model::Meta`]), process events ([`model::Sideband`]),
//! samples ([`model::Sample`]), and how it ended ([`model::End`]). [`RecordingWriter`] writes it, [`Recording`] reads it;
//! `FORMAT.md` specifies the bytes.
//!
//! You provide a sink (the file itself), the values, and the mappings that words of a stack may point into. A flush
//! writes everything so far. From a recording that was killed, truncated or damaged you get all intact blocks, and what
//! is missing ([`Damage`]). A stack takes about as many bytes as have changed in it.
//!
//! The crate knows nothing of eBPF, file names or unwinding, so a recording can be analysed on any machine. It is not an
//! archive: mapped files are named, not contained.
//!
//! ```
//! use fpprof_recording::model::{CaptureMode, Collector, Host, Meta, Sample, Target};
//! use fpprof_recording::{Recording, RecordingWriter, Tally, balance};
//!
//! # let host = Host { arch: "x86_64".into(), cpus_online: 1, ..Host::default() };
//! # let meta = Meta { tool_version: "0.2.0".into(), start_ns: 0, start_unix_ns: 0, host, collector: Collector::Ebpf,
//! #     events: Vec::new(), mode: CaptureMode::Fp, kernel_stacks: true, scrubbed: true, target: Target::System,
//! #     not_counted: Vec::new(), aggregated_ns: None };
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
mod changes;
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
pub use block::{BLOCK_BYTES, FORMAT_VERSION, Kind as BlockKind, MAX_RAW_BYTES, block_items, block_kind};
pub use codec::{
    MAX_CFI_FRAMES, MAX_CGROUP_BYTES, MAX_CHAIN_FRAMES, MAX_ENVIRONMENT_BYTES, MAX_EVENT_BYTES, MAX_HOLES,
    MAX_STACK_BYTES,
};
pub use damage::Damage;
pub use error::{Error, LooksLike};
pub use mapping_ranges::MappingRanges;
pub use packed_module::PackedModule;
pub use reader::{Recording, SampleBlock};
pub use writer::{RecordingWriter, WriteTally};
