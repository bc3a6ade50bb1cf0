//! What can be wrong with a file to import.

use fpprof_recording::LooksLike;

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is something else.
    #[error("not a perf.data file: {0}")]
    Foreign(LooksLike),
    /// The file is damaged where it cannot be skipped.
    #[error("the perf.data file is damaged: {0}")]
    Damaged(&'static str),
    /// The file cannot be read.
    #[error("reading the perf.data file")]
    Read(#[source] std::io::Error),
    /// The compressed records cannot be decompressed.
    #[error("the perf.data file's compressed records are damaged")]
    Compressed(#[source] std::io::Error),
    /// The compressed records would become larger than any profile.
    #[error("the perf.data file's compressed records become more than {0} times as large; that is no profile")]
    Bomb(u64),
    /// Samples of several events that cannot be told apart.
    #[error(
        "the perf.data file has several events of different layout and nothing tells their records apart; \
         record one event, or with --sample-identifier"
    )]
    Mixed,
    /// Samples of other machines cannot be unwound.
    #[error("the perf.data file is from {0}; only x86_64 and aarch64 can be imported")]
    Arch(String),
    /// The file is from a big-endian machine.
    #[error("the perf.data file is from a big-endian machine; only x86_64 and aarch64 can be imported")]
    BigEndian,
    /// Nothing in the file is a sample.
    #[error("the perf.data file holds no samples")]
    NoSamples,
    /// No sample in the file can be parsed.
    #[error("the perf.data file is damaged: none of its {0} samples can be read")]
    NoGoodSamples(u64),
    /// The recording could not be written.
    #[error("writing the recording")]
    Write(#[from] fpprof_recording::Error),
}
