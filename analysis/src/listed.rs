//! Decides which processes are listed: individually those with the most samples, all others by name.
//!
//! A machine that starts thousands of processes a second would otherwise cost memory for each one that has exited. So
//! the samples are first counted by process.

use crate::Error;
use crate::address_space::{CommIx, Place, ProcessIx, Timeline};
use crate::fold::shown_comm;
use crate::replay::{Input, Recorded, Seen};
use fpprof_recording::Recording;
use fpprof_recording::model::Sample;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;

/// The most processes listed individually; others are merged by name. The same limit holds for names.
pub(crate) const MAX_LISTED: usize = 1000;

/// Name of all processes beyond both limits.
pub(crate) const OTHERS: &str = "[others]";

/// A process, a pid without events, or all unlisted processes with a common last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    Process(ProcessIx),
    Unnamed(u32),
    Others(Option<CommIx>),
}

impl Who {
    /// The process of a sample.
    pub(crate) fn of(seen: &Seen<'_>) -> Self {
        Self::at(&seen.place, seen.sample.pid)
    }

    fn at(place: &Place, pid: u32) -> Self {
        place.process.map_or(Self::Unnamed(pid), Self::Process)
    }
}

/// The processes that are listed individually.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    timeline: &'a Timeline,
    /// `None` if all are.
    one_by_one: Option<FxHashSet<Who>>,
}

impl<'a> Listed<'a> {
    /// Reads which processes have the most of the samples selected by `recorded`, whatever their event.
    ///
    /// # Errors
    /// [`Error::Recording`] if the file cannot be read.
    pub(crate) fn read(recording: &mut Recording<dyn Input + '_>, recorded: &'a Recorded) -> Result<Self, Error> {
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

    /// Lists all processes individually.
    pub(crate) fn all(timeline: &'a Timeline) -> Self {
        Self { timeline, one_by_one: None }
    }

    /// Lists those with the most of these samples.
    pub(crate) fn new(timeline: &'a Timeline, samples: FxHashMap<Who, u64>) -> Self {
        if samples.len() <= MAX_LISTED {
            return Self::all(timeline);
        }
        let mut all: Vec<(Reverse<u64>, Who)> = samples.into_iter().map(|(who, n)| (Reverse(n), who)).collect();
        all.select_nth_unstable(MAX_LISTED);
        Self { timeline, one_by_one: Some(all.into_iter().take(MAX_LISTED).map(|(_, who)| who).collect()) }
    }

    /// The timeline of the processes.
    pub(crate) fn timeline(&self) -> &'a Timeline {
        self.timeline
    }

    /// The process or group that the sample counts for.
    pub(crate) fn who(&self, seen: &Seen<'_>) -> Who {
        let who = Who::of(seen);
        match &self.one_by_one {
            Some(listed) if !listed.contains(&who) => Who::Others(self.comm(who)),
            _ => who,
        }
    }

    /// The pid that the sample's stack counts for: 0 for unlisted processes.
    pub(crate) fn pid(&self, seen: &Seen<'_>) -> u32 {
        match self.who(seen) {
            Who::Others(_) if seen.place.comm.is_some() => 0,
            _ => seen.sample.pid,
        }
    }

    /// Pid and name for display; the pid of unlisted processes is 0.
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
