//! What can be wrong with an imported file.

use fpprof_recording::LooksLike;

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file has another format.
    #[error("not a perf.data file: {0}")]
    Foreign(LooksLike),
    /// The file is damaged where it cannot be skipped.
    #[error("the perf.data file is corrupt: {0}")]
    Damaged(&'static str),
    /// The file cannot be read.
    #[error("cannot read the perf.data file")]
    Read(#[source] std::io::Error),
    /// The compressed records cannot be decompressed.
    #[error("the perf.data file's compressed records are corrupt")]
    Compressed(#[source] std::io::Error),
    /// The compressed records would grow larger than any profile.
    #[error("the perf.data file's compressed records grow by more than {0} times; it is probably not a profile")]
    Bomb(u64),
    /// Samples of several events that cannot be distinguished.
    #[error(
        "the perf.data file has several events of different layout without identifiers; record one event, or use \
         `perf record --sample-identifier`"
    )]
    Mixed,
    /// Without times, samples cannot be matched to mappings.
    #[error("the samples in the perf.data file have no time or no thread; record with `perf record --timestamp`")]
    Untimed,
    /// There is nothing to unwind.
    #[error(
        "the perf.data file was recorded without stacks; use `perf record -g` for those of frame pointers, or `perf record \
         --call-graph dwarf`"
    )]
    NoStacks,
    /// Samples of other machines cannot be unwound.
    #[error("the perf.data file is from {0}; supported: x86_64, aarch64")]
    Arch(String),
    /// The file is from a big-endian machine.
    #[error("the perf.data file is from a big-endian machine; supported: x86_64, aarch64")]
    BigEndian,
    /// Nothing in the file is a sample.
    #[error("the perf.data file has no samples")]
    NoSamples,
    /// No sample in the file can be parsed.
    #[error("the perf.data file is corrupt: cannot read any of its {0} samples")]
    NoGoodSamples(u64),
    /// The recording could not be written.
    #[error("cannot write the recording")]
    Write(#[from] fpprof_recording::Error),
}
