//! Errors of an analysis as a whole. Problems of a single module or stack are data, not errors.

use crate::import::ImportError;
use crate::strategy::StrategyError;

/// Why an analysis could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error("cannot read the recording")]
    Recording(#[from] fpprof_recording::Error),
    /// The perf.data file cannot be read.
    #[error(transparent)]
    PerfData(#[from] ImportError),
    /// A strategy is unknown, or the recording lacks what it needs.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The recording has no such event.
    #[error("no event {asked} in the recording; it has {there}")]
    NoSuchEvent {
        /// What was asked for.
        asked: String,
        /// The names of its events.
        there: String,
    },
    /// A filter matches no sample.
    #[error("no sample matches {filter}; {there}")]
    NoneMatch {
        /// The filter, as it is typed.
        filter: String,
        /// What could be matched, as text.
        there: String,
    },
    /// Two strategies of the same name were asked for.
    #[error("strategy {0} is given twice")]
    StrategyTwice(String),
}
