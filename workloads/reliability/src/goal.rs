//! A row of the table.

use crate::found::Found;
use crate::place::Place;
use crate::suite::Suite;

/// How it is seen whether a goal is met.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Measured(fn(&Place) -> anyhow::Result<Found>),
    /// All of these tests pass.
    Tests(&'static [Suite]),
    /// Another recipe measures it.
    By(&'static str),
    /// It is about something that there is not.
    NotBuilt,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) id: &'static str,
    /// What is done.
    pub(crate) what: &'static str,
    /// What should come out.
    pub(crate) goal: &'static str,
    pub(crate) how: How,
}
