//! What can be wrong with a file to import.

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is no perf.data, or is damaged where it cannot be skipped.
    #[error("not readable as perf.data: {0}")]
    Format(#[from] linux_perf_data::Error),
    /// A record inside the file is shorter than it says.
    #[error("a record of the perf.data file is damaged: {0}")]
    Record(std::io::Error),
    /// Only x86-64 recordings can be unwound today.
    #[error("the perf.data file is from {0}; only x86_64 can be imported")]
    Arch(String),
    /// The file is from a big-endian machine.
    #[error("the perf.data file is from a big-endian machine; only x86_64 can be imported")]
    BigEndian,
    /// Nothing in the file is a sample.
    #[error("the perf.data file holds no samples; if perf was killed, it never wrote the size of its data")]
    NoSamples,
    /// The recording could not be written.
    #[error("writing the recording")]
    Write(#[from] fpprof_recording::Error),
}
