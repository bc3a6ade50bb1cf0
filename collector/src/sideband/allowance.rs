//! Limit on the mappings and names of threads reported for a process.
//!
//! A process that maps and unmaps endlessly, or renames its threads, must cost neither the recorder its time nor others their
//! events.

use super::parse::Body;
use fpprof_recording::model::{Comm, FileIdentity, Mmap};
use rustc_hash::FxHashMap;

/// Mappings with code, as many without, and as many names of threads that are reported of a process per second: a library has
/// five mappings.
pub(crate) const EVENTS_A_SECOND: u64 = 1_000;
/// The most in a burst, as by a program with many libraries.
const BURST: u64 = 4_096;
/// The least available after an exec, whatever was used before.
const PROGRAM: u64 = 128;
/// Processes are forgotten once in this many reads of the rings.
const LOOKS: u64 = 16;
const NS_AN_EVENT: u64 = 1_000_000_000 / EVENTS_A_SECOND;

/// Token buckets for each process. Of mappings beyond them, the tracker learns where code was, and that some are
/// missing; of names, the last of each thread.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    processes: FxHashMap<u32, Used>,
    /// Time of the latest mapping.
    last_ns: u64,
    /// Number of this read of the rings.
    look: u64,
    n_not_in_full: u64,
    /// By thread, the last name in this read of those beyond the limit.
    names: FxHashMap<u32, Comm>,
    n_names_left_out: u64,
}

/// When a process's token buckets will be full again.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    code_ns: u64,
    data_ns: u64,
    names_ns: u64,
    /// The last read in which the range of a mapping without code was reported.
    range_reported_in: Option<u64>,
}

/// Whether a mapping only says that something was mapped there: the kernel reports each mapping as shared or private.
pub(crate) fn is_range_only(mmap: &Mmap) -> bool {
    mmap.flags == 0
}

impl Allowance {
    /// Applies an event, in approximate order of time; returns it, or what is reported in its place.
    pub(crate) fn apply(&mut self, event: Body) -> Option<Body> {
        match event {
            Body::Mmap(mmap) => return self.mmap(mmap).map(Body::Mmap),
            Body::Comm(comm) if !comm.exec => return self.name(comm).map(Body::Comm),
            // A process that is only created to map has what its parent has left.
            Body::Fork(ref fork) if fork.pid != fork.parent_pid => {
                if let Some(&used) = self.processes.get(&fork.parent_pid) {
                    self.processes.insert(fork.pid, used);
                }
            }
            // What was missing before is irrelevant after an exec, and the new program needs its mappings.
            Body::Comm(ref comm) => {
                if let Some(used) = self.processes.get_mut(&comm.pid) {
                    let most_ns = comm.time_ns.saturating_add((BURST - PROGRAM) * NS_AN_EVENT);
                    let [code_ns, data_ns, names_ns] =
                        [used.code_ns, used.data_ns, used.names_ns].map(|full_ns| full_ns.min(most_ns));
                    *used = Used { code_ns, data_ns, names_ns, range_reported_in: None };
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Whether a mapping without code is beyond the limit, so that nothing is reported of it; if so, counts it. Call it
    /// before [`Self::apply`], so that such a mapping need not be parsed.
    pub(crate) fn leaves_out(&mut self, pid: u32, time_ns: u64) -> bool {
        let is_left_out = self.processes.get(&pid).is_some_and(|used| {
            used.range_reported_in == Some(self.look) && after_event(used.data_ns, time_ns).is_none()
        });
        if is_left_out {
            self.last_ns = self.last_ns.max(time_ns);
            self.n_not_in_full += 1;
        }
        is_left_out
    }

    /// Reports a mapping in full while the token bucket lasts. After that, only its range: always for code, so that
    /// code in its place is not taken to be there still, and once per read for data, so that the process is described
    /// again.
    fn mmap(&mut self, mmap: Mmap) -> Option<Mmap> {
        let used = self.processes.entry(mmap.pid).or_default();
        self.last_ns = self.last_ns.max(mmap.time_ns);
        let is_code = mmap.prot & libc::PROT_EXEC.cast_unsigned() != 0;
        let full_ns = if is_code { &mut used.code_ns } else { &mut used.data_ns };
        if let Some(full_then_ns) = after_event(*full_ns, mmap.time_ns) {
            *full_ns = full_then_ns;
            return Some(mmap);
        }
        self.n_not_in_full += 1;
        if !is_code && used.range_reported_in.replace(self.look) == Some(self.look) {
            return None;
        }
        let Mmap { time_ns, pid, tid, start, len, .. } = mmap;
        Some(Mmap {
            time_ns,
            pid,
            tid,
            start,
            len,
            file_offset: 0,
            prot: 0,
            flags: 0,
            path: Vec::new(),
            identity: FileIdentity::default(),
            synthesized: false,
        })
    }

    /// Reports the name of a thread while the token bucket lasts. After that, the last one of each read, when it ends.
    fn name(&mut self, comm: Comm) -> Option<Comm> {
        let used = self.processes.entry(comm.pid).or_default();
        self.last_ns = self.last_ns.max(comm.time_ns);
        if let Some(full_then_ns) = after_event(used.names_ns, comm.time_ns) {
            used.names_ns = full_then_ns;
            return Some(comm);
        }
        let known = self.names.get(&comm.tid);
        self.n_names_left_out += u64::from(known.is_some());
        // The thread may have run on several CPUs, whose events are not in order.
        if known.is_none_or(|known| known.time_ns <= comm.time_ns) {
            self.names.insert(comm.tid, comm);
        }
        None
    }

    /// Ends a read of the rings, when all available events were applied; returns the names that were held back. Occasionally
    /// forgets processes whose token buckets are full.
    pub(crate) fn end_read(&mut self) -> impl Iterator<Item = Body> + '_ {
        self.look += 1;
        if self.look.is_multiple_of(LOOKS) {
            let is_in_use = |used: &Used| used.code_ns.max(used.data_ns).max(used.names_ns) > self.last_ns;
            self.processes.retain(|_, used| is_in_use(used));
        }
        self.names.drain().map(|(_, comm)| Body::Comm(comm))
    }

    /// Mappings not reported in full.
    pub(crate) fn n_not_in_full(&self) -> u64 {
        self.n_not_in_full
    }

    /// Names not reported because the thread was renamed again in the same read.
    pub(crate) fn n_names_left_out(&self) -> u64 {
        self.n_names_left_out
    }
}

/// When a bucket that is full at `full_ns` will be full again after an event at `time_ns`; `None` if it is empty.
fn after_event(full_ns: u64, time_ns: u64) -> Option<u64> {
    let full_then_ns = full_ns.max(time_ns).saturating_add(NS_AN_EVENT);
    (full_then_ns.saturating_sub(time_ns) <= BURST * NS_AN_EVENT).then_some(full_then_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::{Comm, Fork};

    const CODE: u32 = 5;
    const DATA: u32 = 3;

    fn mapping(time_ns: u64, pid: u32, prot: u32) -> Body {
        let (path, identity) = (b"/lib".to_vec(), FileIdentity::default());
        let (start, len, file_offset, flags) = (0x1000, 0x2000, 0, 2);
        Body::Mmap(Mmap {
            time_ns,
            pid,
            tid: pid,
            start,
            len,
            file_offset,
            prot,
            flags,
            path,
            identity,
            synthesized: false,
        })
    }

    /// Applies a mapping as it is read.
    fn apply(allowance: &mut Allowance, mapping: Body) -> Option<Body> {
        match &mapping {
            Body::Mmap(mmap) if mmap.prot == DATA && allowance.leaves_out(mmap.pid, mmap.time_ns) => None,
            _ => allowance.apply(mapping),
        }
    }

    /// Whether each mapping is reported in full; `None` for those not reported at all.
    fn in_full(allowance: &mut Allowance, mappings: impl Iterator<Item = Body>) -> Vec<Option<bool>> {
        let is_in_full = |mapping: Body| match apply(allowance, mapping.clone())? {
            Body::Mmap(mmap) if is_range_only(&mmap) => {
                assert_eq!((mmap.start, mmap.len, mmap.prot, mmap.path.len()), (0x1000, 0x2000, 0, 0));
                Some(false)
            }
            reported => Some(reported == mapping),
        };
        mappings.map(is_in_full).collect()
    }

    /// Check that a flood of mappings is cut to the limit, but all places of code and the first place of data after
    /// each read and each exec are reported, and that other processes' mappings are all reported.
    #[test]
    fn a_flood_is_cut() {
        let mut allowance = Allowance::default();
        let burst = usize::try_from(BURST).unwrap();
        for (prot, expected) in [(CODE, [Some(false); 3]), (DATA, [Some(false), None, None])] {
            let all = in_full(&mut allowance, (0..BURST + 3).map(|_| mapping(5, 7, prot)));
            assert!(all[..burst].iter().all(|in_full| *in_full == Some(true)));
            assert_eq!(all[burst..], expected);
            assert_eq!(in_full(&mut allowance, std::iter::once(mapping(5, 8, prot))), [Some(true)], "another process");
        }
        assert_eq!(allowance.n_not_in_full(), 6);
        let one =
            |allowance: &mut Allowance, time_ns| in_full(allowance, std::iter::once(mapping(time_ns, 7, DATA)))[0];
        assert_eq!(allowance.end_read().count(), 0);
        assert_eq!([5, 5].map(|time_ns| one(&mut allowance, time_ns)), [Some(false), None]);
        allowance.apply(Body::Comm(Comm { time_ns: 5, pid: 7, tid: 7, comm: Vec::new(), exec: true, start_ticks: 0 }));
        let program = in_full(&mut allowance, (0..PROGRAM).map(|_| mapping(5, 7, DATA)));
        assert!(program.iter().all(|in_full| *in_full == Some(true)));
        assert_eq!([5, 5].map(|time_ns| one(&mut allowance, time_ns)), [Some(false), None]);
        let later_ns = 5 + NS_AN_EVENT;
        assert_eq!([later_ns, later_ns].map(|time_ns| one(&mut allowance, time_ns)), [Some(true), None]);
    }

    /// Check that a child has what its parent has left, and that only processes that have used something are kept.
    #[test]
    fn children_share_an_allowance() {
        let mut allowance = Allowance::default();
        in_full(&mut allowance, (0..BURST).map(|_| mapping(5, 7, CODE)));
        allowance.apply(Body::Fork(Fork { time_ns: 5, pid: 9, tid: 9, parent_pid: 7, parent_tid: 7 }));
        assert_eq!(in_full(&mut allowance, std::iter::once(mapping(5, 9, CODE))), [Some(false)]);
        in_full(&mut allowance, std::iter::once(mapping(5 + NS_AN_EVENT, 8, CODE)));
        (0..LOOKS).for_each(|_| drop(allowance.end_read()));
        assert_eq!(allowance.processes.len(), 3);
        in_full(&mut allowance, std::iter::once(mapping(5 + (BURST + 1) * NS_AN_EVENT, 1, CODE)));
        (0..LOOKS).for_each(|_| drop(allowance.end_read()));
        assert_eq!(allowance.processes.len(), 1);
    }

    /// Check that of names beyond the limit the last of each thread is reported when the read ends, also if it was not read
    /// last, that the others are counted, and that other processes' names are all reported.
    #[test]
    fn a_flood_of_names_is_cut() {
        let mut allowance = Allowance::default();
        let named = |time_ns, pid, tid| Comm { time_ns, pid, tid, comm: b"x".to_vec(), exec: false, start_ticks: 0 };
        let mut is_reported = |comm| allowance.apply(Body::Comm(comm)).is_some();
        assert!((0..BURST).all(|_| is_reported(named(5, 7, 7))));
        let names = [named(5, 7, 7), named(7, 7, 7), named(6, 7, 7), named(6, 7, 8)];
        assert!(names.clone().into_iter().all(|comm| !is_reported(comm)));
        assert!(is_reported(named(5, 9, 9)), "another process");
        let mut held: Vec<_> = allowance.end_read().collect();
        held.sort_by_key(|body| matches!(body, Body::Comm(comm) if comm.tid == 8));
        let [_, last, _, of_other] = names.map(Body::Comm);
        assert_eq!(held, [last, of_other]);
        assert_eq!((allowance.end_read().count(), allowance.n_names_left_out()), (0, 2));
        assert!(allowance.apply(Body::Comm(named(5 + NS_AN_EVENT, 7, 7))).is_some());
    }
}
