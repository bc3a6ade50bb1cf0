//! Finds the mappings that later ones of the same process have replaced.

use fpprof_recording::model::{Mmap, Sideband};
use std::collections::{BTreeMap, BTreeSet};

/// The most parts of mappings noted at a time, of some 50 bytes each. Mappings beyond it are not found to be replaced.
const MAX_PARTS: usize = 1 << 20;

/// What each process has mapped, by its events so far. The kernel does not report what is unmapped, so a program that loads
/// and unloads a library would otherwise have ever more events.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    processes: BTreeMap<u32, Process>,
    n_parts: usize,
    /// For mappings of which other parts than the first are left, the number of these.
    other_parts: BTreeMap<u64, u32>,
    replaced: BTreeSet<u64>,
    /// Mappings that stay, since an event was recorded after them that happened before.
    stay: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Process {
    /// Parts of mappings that are left, by start.
    parts: BTreeMap<u64, Part>,
    /// The number of the last fork: a child has inherited the mappings before it.
    forked: u64,
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy)]
struct Part {
    end: u64,
    /// Number and time of the event.
    n: u64,
    time_ns: u64,
}

impl Mappings {
    /// Notes event number `n`.
    pub(super) fn note(&mut self, event: &Sideband, n: u64) {
        match event {
            Sideband::Mmap(mmap) => self.map(mmap, n),
            // Events from before are not needed in any case.
            Sideband::Comm(comm) if comm.exec => self.forget(comm.pid),
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.forget(fork.pid);
                self.processes.entry(fork.parent_pid).or_default().forked = n;
            }
            // If other threads go on, nothing of it is found here: fewer events are removed.
            Sideband::Exit(exit) if exit.pid == exit.tid => self.forget(exit.pid),
            _ => {}
        }
    }

    /// The numbers of the events whose mappings have no part left and were not inherited.
    pub(super) fn into_replaced(self) -> BTreeSet<u64> {
        let Self { mut replaced, stay, .. } = self;
        replaced.retain(|n| !stay.contains(n));
        replaced
    }

    fn forget(&mut self, pid: u32) {
        let process = self.processes.remove(&pid);
        self.n_parts = self.n_parts.saturating_sub(process.map_or(0, |process| process.parts.len()));
    }

    fn map(&mut self, mmap: &Mmap, n: u64) {
        let (start, end) = (mmap.start, mmap.start.saturating_add(mmap.len));
        if start >= end {
            return;
        }
        let Self { processes, n_parts, other_parts, replaced, stay } = self;
        let Process { parts, forked } = processes.entry(mmap.pid).or_default();
        let n_before = parts.len();
        while let Some((hit_start, hit)) =
            parts.range(..end).next_back().map(|(&start, &hit)| (start, hit)).filter(|(_, hit)| hit.end > start)
        {
            parts.remove(&hit_start);
            let (above, below) = (hit.end > end, hit_start < start);
            if above {
                parts.insert(end, hit);
            }
            if below {
                parts.insert(hit_start, Part { end: start, ..hit });
            }
            // What is read from /proc may be recorded before events that happened earlier.
            if mmap.time_ns < hit.time_ns {
                stay.insert(hit.n);
            }
            match (above, below, other_parts.get_mut(&hit.n)) {
                (true, true, _) => *other_parts.entry(hit.n).or_default() += 1,
                (false, false, Some(others)) if *others > 0 => *others -= 1,
                (false, false, _) if hit.n >= *forked => _ = replaced.insert(hit.n),
                _ => {}
            }
        }
        *n_parts = (*n_parts + parts.len()).saturating_sub(n_before);
        if *n_parts < MAX_PARTS {
            parts.insert(start, Part { end, n, time_ns: mmap.time_ns });
            *n_parts += 1;
        }
    }
}
