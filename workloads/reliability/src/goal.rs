//! A row of the table.

use crate::found::Found;
use crate::place::Place;
use crate::suite::Suite;

/// How to find out whether a goal is met.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Measured(fn(&Place) -> anyhow::Result<Found>),
    /// All of these tests pass.
    Tests(&'static [Suite]),
    /// Measured by another recipe of the justfile.
    By(&'static str),
    /// It concerns a feature that does not exist.
    NotBuilt,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) id: &'static str,
    /// The test procedure.
    pub(crate) what: &'static str,
    /// The expected result.
    pub(crate) goal: &'static str,
    pub(crate) how: How,
}
