//! What is made of unwound samples.

use super::PlacedSpace;
use crate::address_space::Place;
use fpprof_recording::model::Sample;
use fpprof_unwind::StackRef;

/// One sample with all its stacks.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// Where it belongs.
    pub place: Place,
    /// What was mapped there.
    pub space: &'a PlacedSpace,
    /// Its stacks, one for each strategy, in the order they were asked for.
    pub stacks: &'a [StackRef<'a>],
}

/// Makes something of unwound samples.
///
/// The result must not depend on the order in which samples are added or collectors are merged.
pub trait Collect: Send {
    /// Takes a sample in.
    fn add(&mut self, seen: &Seen<'_>);

    /// Passes by a sample of an event that is not looked at, which is not unwound.
    fn pass(&mut self, _sample: &Sample) {}

    /// Passes by a sample that a filter leaves out, which is not unwound.
    fn leave(&mut self, sample: &Sample) {
        self.pass(sample);
    }

    /// Takes in what another collector has.
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
