//! Errors of flame graphs.

use std::io;

/// The reason why a flame graph could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to draw.
    #[error("no samples to draw")]
    NoSamples,
    /// More samples than `f64` can count exactly.
    #[error("more than 2^53 samples in one flame graph")]
    TooManySamples,
    /// inferno's output lacks something that is to be replaced.
    #[error("the flame graph has no {0} where it should")]
    Layout(&'static str),
    /// The graph could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Write(error) => error,
            other => Self::other(other),
        }
    }
}
