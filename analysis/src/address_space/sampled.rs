//! When threads and processes were sampled. Stacks need no mappings of the time in between.

use rustc_hash::FxHashMap;

/// Times are stored in units of 2^this nanoseconds, about 17 milliseconds: no pid is reused that fast.
const SHIFT: u32 = 24;

/// The most times stored, 4 bytes each; with more, everything counts as sampled.
const MAX_TIMES: usize = 16 << 20;

/// The times of samples by thread and process number.
#[derive(Debug, Default)]
pub struct Sampled {
    times: FxHashMap<u32, Vec<u32>>,
    n_times: usize,
}

impl Sampled {
    /// Records the time of a sample.
    pub fn add(&mut self, pid: u32, tid: u32, time_ns: u64) {
        self.add_one(pid, time_ns);
        if tid != pid {
            self.add_one(tid, time_ns);
        }
    }

    fn add_one(&mut self, id: u32, time_ns: u64) {
        if self.n_times > MAX_TIMES {
            self.times.clear();
            return;
        }
        let times = self.times.entry(id).or_default();
        if times.last() != Some(&coarse(time_ns)) {
            times.push(coarse(time_ns));
            self.n_times = self.n_times.saturating_add(1);
        }
    }

    /// Must be called after all samples were added.
    pub(super) fn sort(&mut self) {
        self.times.values_mut().for_each(|times| times.sort_unstable());
    }

    /// Whether there may be a sample of this thread or process in the interval.
    pub(super) fn has(&self, id: u32, from_ns: u64, to_ns: u64) -> bool {
        let within = |times: &Vec<u32>| {
            let first = times.partition_point(|&time| time < coarse(from_ns));
            times.get(first).is_some_and(|&time| time <= coarse(to_ns))
        };
        self.n_times > MAX_TIMES || self.times.get(&id).is_some_and(within)
    }
}

fn coarse(time_ns: u64) -> u32 {
    u32::try_from(time_ns >> SHIFT).unwrap_or(u32::MAX)
}
