//! The interface for processing unwound samples.

use super::PlacedSpace;
use crate::address_space::Place;
use crate::modules::ModuleTable;
use fpprof_recording::model::Sample;
use fpprof_unwind::StackRef;

/// A sample with all its stacks.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// Its process and address space.
    pub place: Place,
    /// The mappings of that address space.
    pub space: &'a PlacedSpace,
    /// The modules of the recording.
    pub modules: &'a ModuleTable<'a>,
    /// Its stacks, one for each strategy, in the requested order; `None` where the strategy needs a copy of the stack, and
    /// none was to be made.
    pub stacks: &'a [Option<StackRef<'a>>],
}

impl<'a> Seen<'a> {
    /// The stack under the strategy with this index, if it has one.
    #[must_use]
    pub fn stack(&self, strategy: usize) -> Option<StackRef<'a>> {
        self.stacks.get(strategy).copied().flatten()
    }
}

/// Processes unwound samples.
///
/// The result must not depend on the order in which samples are added or collectors are merged.
pub trait Collect: Send {
    /// Adds a sample.
    fn add(&mut self, seen: &Seen<'_>);

    /// Called for a sample of an event that is not selected, which is not unwound.
    fn pass(&mut self, _sample: &Sample) {}

    /// Called for a sample that the filter excludes, which is not unwound.
    fn leave(&mut self, sample: &Sample) {
        self.pass(sample);
    }

    /// Merges another collector.
    fn merge(&mut self, other: Self);
}

impl<A: Collect> Collect for Option<A> {
    fn add(&mut self, seen: &Seen<'_>) {
        if let Some(own) = self {
            own.add(seen);
        }
    }

    fn pass(&mut self, sample: &Sample) {
        if let Some(own) = self {
            own.pass(sample);
        }
    }

    fn leave(&mut self, sample: &Sample) {
        if let Some(own) = self {
            own.leave(sample);
        }
    }

    fn merge(&mut self, other: Self) {
        match (self.as_mut(), other) {
            (Some(own), Some(other)) => own.merge(other),
            (None, other) => *self = other,
            (Some(_), None) => {}
        }
    }
}
