//! Limit on the mappings reported for a process.
//!
//! A process that maps and unmaps endlessly must cost neither the recorder its time nor others their events.

use super::parse::Body;
use fpprof_recording::model::{FileIdentity, Mmap};
use rustc_hash::FxHashMap;

/// Mappings with code, and as many without, that are reported of a process per second: a library has five.
pub(crate) const MAPPINGS_A_SECOND: u64 = 1_000;
/// The most in a burst, as by a program with many libraries.
const BURST: u64 = 4_096;
/// The least available after an exec, whatever was used before.
const PROGRAM: u64 = 128;
/// Processes are forgotten once in this many reads of the rings.
const LOOKS: u64 = 16;
const NS_A_MAPPING: u64 = 1_000_000_000 / MAPPINGS_A_SECOND;

/// A token bucket for each process. Of mappings beyond it, the tracker learns where code was, and that some are
/// missing.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    processes: FxHashMap<u32, Used>,
    /// Time of the latest mapping.
    last_ns: u64,
    /// Number of this read of the rings.
    look: u64,
    n_not_in_full: u64,
}

/// When a process's token buckets will be full again.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    code_ns: u64,
    data_ns: u64,
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
            // A process that is only created to map has what its parent has left.
            Body::Fork(ref fork) if fork.pid != fork.parent_pid => {
                if let Some(&used) = self.processes.get(&fork.parent_pid) {
                    self.processes.insert(fork.pid, used);
                }
            }
            // What was missing before is irrelevant after an exec, and the new program needs its mappings.
            Body::Comm(ref comm) if comm.exec => {
                if let Some(used) = self.processes.get_mut(&comm.pid) {
                    let most_ns = comm.time_ns.saturating_add((BURST - PROGRAM) * NS_A_MAPPING);
                    let Used { code_ns, data_ns, .. } = *used;
                    *used =
                        Used { code_ns: code_ns.min(most_ns), data_ns: data_ns.min(most_ns), range_reported_in: None };
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
            used.range_reported_in == Some(self.look)
                && next_ns(used.data_ns, time_ns).saturating_sub(time_ns) > BURST * NS_A_MAPPING
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
        let full_then_ns = next_ns(*full_ns, mmap.time_ns);
        if full_then_ns.saturating_sub(mmap.time_ns) <= BURST * NS_A_MAPPING {
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

    /// Ends a read of the rings, when all available events were applied; occasionally forgets processes whose token
    /// buckets are full.
    pub(crate) fn forget(&mut self) {
        self.look += 1;
        if self.look.is_multiple_of(LOOKS) {
            self.processes.retain(|_, used| used.code_ns.max(used.data_ns) > self.last_ns);
        }
    }

    /// Mappings not reported in full.
    pub(crate) fn n_not_in_full(&self) -> u64 {
        self.n_not_in_full
    }
}

/// When the bucket will be full again, after a mapping at `time_ns`.
fn next_ns(full_ns: u64, time_ns: u64) -> u64 {
    full_ns.max(time_ns).saturating_add(NS_A_MAPPING)
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
        allowance.forget();
        assert_eq!([5, 5].map(|time_ns| one(&mut allowance, time_ns)), [Some(false), None]);
        allowance.apply(Body::Comm(Comm { time_ns: 5, pid: 7, tid: 7, comm: Vec::new(), exec: true, start_ticks: 0 }));
        let program = in_full(&mut allowance, (0..PROGRAM).map(|_| mapping(5, 7, DATA)));
        assert!(program.iter().all(|in_full| *in_full == Some(true)));
        assert_eq!([5, 5].map(|time_ns| one(&mut allowance, time_ns)), [Some(false), None]);
        let later_ns = 5 + NS_A_MAPPING;
        assert_eq!([later_ns, later_ns].map(|time_ns| one(&mut allowance, time_ns)), [Some(true), None]);
    }

    /// Check that a child has what its parent has left, and that only processes that have used something are kept.
    #[test]
    fn children_share_an_allowance() {
        let mut allowance = Allowance::default();
        in_full(&mut allowance, (0..BURST).map(|_| mapping(5, 7, CODE)));
        allowance.apply(Body::Fork(Fork { time_ns: 5, pid: 9, tid: 9, parent_pid: 7, parent_tid: 7 }));
        assert_eq!(in_full(&mut allowance, std::iter::once(mapping(5, 9, CODE))), [Some(false)]);
        in_full(&mut allowance, std::iter::once(mapping(5 + NS_A_MAPPING, 8, CODE)));
        (0..LOOKS).for_each(|_| allowance.forget());
        assert_eq!(allowance.processes.len(), 3);
        in_full(&mut allowance, std::iter::once(mapping(5 + (BURST + 1) * NS_A_MAPPING, 1, CODE)));
        (0..LOOKS).for_each(|_| allowance.forget());
        assert_eq!(allowance.processes.len(), 1);
    }
}
