//! What can go wrong with an analysis as a whole. What goes wrong with one module or stack is data, not an error.

use crate::import::ImportError;
use crate::strategy::StrategyError;

/// Why an analysis could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error("cannot read the recording")]
    Recording(#[from] fpprof_recording::Error),
    /// The file of perf cannot be read.
    #[error(transparent)]
    PerfData(#[from] ImportError),
    /// A strategy is unknown, or the recording does not hold what it needs.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The recording has no such event.
    #[error("no event {asked} in the recording; it has {there}")]
    NoSuchEvent {
        /// What was asked for.
        asked: String,
        /// The names of those there are.
        there: String,
    },
    /// A filter left nothing.
    #[error("no sample matches {filter}; {there}")]
    NoneMatch {
        /// The filter, as it is typed.
        filter: String,
        /// What is there, in words.
        there: String,
    },
    /// Two strategies of the same name were asked for.
    #[error("strategy {0} is given twice")]
    StrategyTwice(String),
}
