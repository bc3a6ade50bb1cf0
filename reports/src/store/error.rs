//! Errors of reading tables.

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

/// An error of reading or adding up a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is not a Parquet file, or is damaged.
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// The file is damaged, found while decoding its columns.
    #[error("{0}")]
    Arrow(#[from] ArrowError),
    /// A column is missing, or has another type or invalid values.
    #[error("column `{0}` is missing or of another type")]
    Column(&'static str),
    /// The file has no schema version, or that of another version of fpprof.
    #[error("columns of version `{0}`, which this version of fpprof does not know")]
    Version(String),
    /// The caller wants no more rows, see [`GoesOn`](super::GoesOn).
    #[error("stopped")]
    Stopped,
    /// The answer would take too much memory: more than this many names or times.
    #[error("more than {0} names or times: choose a shorter range of time, or one service")]
    TooMany(usize),
}

impl StoreError {
    /// Whether the error concerns only this file, so that others can still be read.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        !matches!(self, Self::TooMany(_) | Self::Stopped)
    }
}
