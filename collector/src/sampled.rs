//! What both collectors record about a process when it is sampled.

use crate::groups::Groups;
use crate::sideband::{Sharing, Tracker};
use crate::synthesis::{Due, Follows, Resync, describe_due};
use fpprof_recording::model::Sample;

/// What is needed to describe a sample's process.
pub(crate) struct AtSample<'a> {
    pub(crate) sample: &'a Sample,
    pub(crate) tracker: &'a Tracker,
    pub(crate) resync: &'a mut Resync,
    pub(crate) sharing: &'a mut Sharing,
    pub(crate) groups: &'a mut Groups,
}

/// A reader with a current sample, which is written next.
pub(crate) trait FollowsSamples: Follows {
    /// The current sample.
    fn at_sample(&mut self) -> AtSample<'_>;
}

/// Describes what is not yet known about the current sample's process: its mappings, those of processes that share its
/// memory, and its control group.
pub(crate) fn describe_sampled(reader: &mut impl FollowsSamples) {
    let AtSample { sample, tracker, resync, .. } = reader.at_sample();
    if let Some(due) = resync.due(sample, tracker.known_of(sample.pid), tracker.program_ns(sample.pid)) {
        describe_due(reader, due);
    }
    let AtSample { sample, sharing, resync, .. } = reader.at_sample();
    let found = sharing.found(sample.pid, || resync.has_credit(sample.pid));
    let sharers = found.map(|pids| pids.map(|pid| Due::sampled(pid, sample)));
    sharers.into_iter().flatten().for_each(|due| describe_due(reader, due));
    let AtSample { sample, groups, .. } = reader.at_sample();
    if let Some(group) = groups.due(sample) {
        reader.write_event(group);
    }
}
