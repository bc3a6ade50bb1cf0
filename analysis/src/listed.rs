//! Which processes are told apart: those with the most samples one by one, all others by name.
//!
//! A machine that starts thousands of processes a second would otherwise cost memory for each that is gone. So the samples
//! are counted by process before anything else is made of them.

use crate::Error;
use crate::address_space::{CommIx, Place, ProcessIx, Timeline};
use crate::fold::shown_comm;
use crate::replay::{Recorded, Seen};
use fpprof_recording::Recording;
use fpprof_recording::model::Sample;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::io::{Read, Seek};

/// Processes listed one by one; the others of a name are one. The same of names.
pub(crate) const MAX_LISTED: usize = 1000;

/// Name of all that no name tells apart.
pub(crate) const OTHERS: &str = "[others]";

/// A process, a pid that no event named, or all other processes that had this name last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    Process(ProcessIx),
    Unnamed(u32),
    Others(Option<CommIx>),
}

impl Who {
    /// Whose sample it is.
    pub(crate) fn of(seen: &Seen<'_>) -> Self {
        Self::at(&seen.place, seen.sample.pid)
    }

    fn at(place: &Place, pid: u32) -> Self {
        place.process.map_or(Self::Unnamed(pid), Self::Process)
    }
}

/// The processes that are listed one by one.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    timeline: &'a Timeline,
    /// `None` if these are all.
    one_by_one: Option<FxHashSet<Who>>,
}

impl<'a> Listed<'a> {
    /// Those with the most samples that `recorded` looks at, of whatever event.
    ///
    /// # Errors
    /// [`Error::Recording`] if the file cannot be read.
    pub(crate) fn read<R: Read + Seek>(recording: &mut Recording<R>, recorded: &'a Recorded) -> Result<Self, Error> {
        let Recorded { timeline, selection, .. } = recorded;
        let mut samples: FxHashMap<Who, u64> = FxHashMap::default();
        let mut sample = Sample::default();
        recording.sampled(|pid, tid, time_ns| {
            (sample.pid, sample.tid, sample.time_ns) = (pid, tid, time_ns);
            let place = timeline.place(pid, tid, time_ns);
            if selection.takes(&sample, &place, timeline) {
                let n = samples.entry(Who::at(&place, pid)).or_default();
                *n = n.saturating_add(1);
            }
        })?;
        Ok(Self::new(timeline, samples))
    }

    /// All processes, one by one.
    pub(crate) fn all(timeline: &'a Timeline) -> Self {
        Self { timeline, one_by_one: None }
    }

    /// Those with the most of these samples.
    pub(crate) fn new(timeline: &'a Timeline, samples: FxHashMap<Who, u64>) -> Self {
        if samples.len() <= MAX_LISTED {
            return Self::all(timeline);
        }
        let mut all: Vec<(Reverse<u64>, Who)> = samples.into_iter().map(|(who, n)| (Reverse(n), who)).collect();
        all.select_nth_unstable(MAX_LISTED);
        Self { timeline, one_by_one: Some(all.into_iter().take(MAX_LISTED).map(|(_, who)| who).collect()) }
    }

    /// Whose processes they are.
    pub(crate) fn timeline(&self) -> &'a Timeline {
        self.timeline
    }

    /// What the sample is counted under.
    pub(crate) fn who(&self, seen: &Seen<'_>) -> Who {
        let who = Who::of(seen);
        match &self.one_by_one {
            Some(listed) if !listed.contains(&who) => Who::Others(self.comm(who)),
            _ => who,
        }
    }

    /// The number that the sample's stack is counted under: 0 for all others of a name.
    pub(crate) fn pid(&self, seen: &Seen<'_>) -> u32 {
        match self.who(seen) {
            Who::Others(_) if seen.place.comm.is_some() => 0,
            _ => seen.sample.pid,
        }
    }

    /// Number and name as they are shown; all others of a name have the number 0.
    pub(crate) fn name(&self, who: Who) -> (u32, String) {
        let pid = match who {
            Who::Process(process) => self.timeline.pid(process),
            Who::Unnamed(pid) => pid,
            Who::Others(_) => 0,
        };
        let comm = self.comm(who).map_or(&[][..], |comm| self.timeline.comm(comm));
        match who {
            Who::Others(_) if comm.is_empty() => (pid, OTHERS.to_owned()),
            _ => (pid, shown_comm(comm, pid)),
        }
    }

    fn comm(&self, who: Who) -> Option<CommIx> {
        let comm = match who {
            Who::Process(process) => self.timeline.last_comm(process),
            Who::Unnamed(pid) => self.timeline.place(pid, pid, u64::MAX).comm,
            Who::Others(comm) => comm,
        };
        comm.filter(|&comm| !self.timeline.comm(comm).is_empty())
    }
}
