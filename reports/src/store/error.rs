//! Why a table gives no answer.

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

/// Why a table gives no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is no Parquet file, or damaged.
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// The same, found while its columns were decoded.
    #[error("{0}")]
    Arrow(#[from] ArrowError),
    /// A column is missing, or not what it should be.
    #[error("column `{0}` is missing or of another type")]
    Column(&'static str),
    /// A later version of fpprof has written it.
    #[error("columns of version `{0}`, which this version of fpprof does not know")]
    Version(String),
    /// An answer would take too much memory.
    #[error("more than {0} names or times: choose a shorter range of time, or one service")]
    TooMany(usize),
}

impl StoreError {
    /// Whether only this file is the reason: others can be read.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        !matches!(self, Self::TooMany(_))
    }
}
