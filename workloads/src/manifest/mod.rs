//! The programs, grouped by what makes their stacks hard to unwind.

mod frames;
mod linking;
mod running;
mod rust;
mod words;

use crate::Program;
use std::sync::LazyLock;

static PROGRAMS: LazyLock<Vec<Program>> =
    LazyLock::new(|| [frames::PROGRAMS, linking::PROGRAMS, running::PROGRAMS, rust::PROGRAMS].concat());

/// Every program.
#[must_use]
pub fn programs() -> &'static [Program] {
    &PROGRAMS
}
