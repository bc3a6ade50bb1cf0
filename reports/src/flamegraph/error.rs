//! Why there is no flame graph.

use std::io;

/// Why there is no flame graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to draw.
    #[error("no samples to draw")]
    NoSamples,
    /// More samples than a graph can be exact for.
    #[error("more than 2^53 samples in one flame graph")]
    TooManySamples,
    /// inferno did not write something that is to be changed.
    #[error("the flame graph has no {0} where it should")]
    Layout(&'static str),
    /// The graph could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}
