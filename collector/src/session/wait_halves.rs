//! Joining of wait samples whose stacks come when the thread blocks, and whose length comes when it runs again.
//!
//! That is how waits are sampled on kernels without `sched_exit` (before Linux 6.15); see `off_cpu.bpf.h`.

use fpprof_recording::model::Sample;
use rustc_hash::FxHashMap;
use std::mem::{size_of, swap};

/// Memory limit of all first halves: some ten thousand threads blocked at once.
const MAX_BYTES: usize = 128 << 20;

/// First halves whose second half has not come, by thread.
#[derive(Debug, Default)]
pub(super) struct WaitHalves {
    begun: FxHashMap<u32, (u64, Sample)>,
    bytes: usize,
    ended: Vec<u32>,
}

impl WaitHalves {
    /// Keeps the stacks of a wait that began at `since_ns`, replacing those of the thread's previous wait, which was
    /// too short to be sampled. Without room they are not kept.
    pub(super) fn begin(&mut self, since_ns: u64, sample: &Sample) {
        self.forget(sample.tid);
        let bytes = bytes_of(sample);
        if self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.begun.insert(sample.tid, (since_ns, sample.clone()));
        }
    }

    /// Adds the stacks to the second half of the same wait. `false` if there are none.
    pub(super) fn end(&mut self, since_ns: u64, second: &mut Sample) -> bool {
        let is_same = self.begun.get(&second.tid).is_some_and(|&(begun_ns, _)| begun_ns == since_ns);
        let Some((_, mut first)) = is_same.then(|| self.begun.remove(&second.tid)).flatten() else { return false };
        self.bytes -= bytes_of(&first);
        (first.time_ns, first.weight) = (second.time_ns, second.weight);
        (first.cpu, first.cpu_fired, first.cpu_lost) = (second.cpu, second.cpu_fired, second.cpu_lost);
        swap(&mut first, second);
        true
    }

    /// Notes the end of a thread.
    pub(super) fn thread_ended(&mut self, tid: u32) {
        if self.begun.contains_key(&tid) {
            self.ended.push(tid);
        }
    }

    /// Forgets threads that have ended; call it when all their samples have been seen.
    pub(super) fn forget_ended(&mut self) {
        while let Some(tid) = self.ended.pop() {
            self.forget(tid);
        }
    }

    fn forget(&mut self, tid: u32) {
        if let Some((_, sample)) = self.begun.remove(&tid) {
            self.bytes -= bytes_of(&sample);
        }
    }
}

fn bytes_of(sample: &Sample) -> usize {
    let interrupted = sample.interrupted.as_ref().map_or(0, |interrupted| interrupted.stack.len());
    size_of::<Sample>() + sample.stack.len() + interrupted + 16 * sample.user_fp.len() + 8 * sample.kernel.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(tid: u32, byte: u8) -> Sample {
        Sample { tid, time_ns: 10, weight: 10, cpu: 1, stack: vec![byte; 100], kernel: vec![7], ..Sample::default() }
    }

    fn second(tid: u32) -> Sample {
        Sample { tid, time_ns: 90, weight: 80, cpu: 2, cpu_fired: 5, cpu_lost: 3, ..Sample::default() }
    }

    /// Check that a sample gets its stacks from the first half and the rest from the second, once.
    #[test]
    fn halves_are_joined() {
        let mut halves = WaitHalves::default();
        halves.begin(10, &first(3, 1));
        let mut sample = second(3);
        assert!(halves.end(10, &mut sample));
        assert_eq!(sample, Sample { time_ns: 90, weight: 80, cpu: 2, cpu_fired: 5, cpu_lost: 3, ..first(3, 1) });
        assert!(!halves.end(10, &mut second(3)));
        assert_eq!(halves.bytes, 0);
    }

    /// Check that the stacks of a short wait, of another thread or of an ended one are not used for a wait.
    #[test]
    fn others_are_not_joined() {
        let mut halves = WaitHalves::default();
        halves.begin(10, &first(3, 1));
        halves.begin(40, &first(3, 2));
        halves.begin(10, &first(4, 1));
        assert!(!halves.end(10, &mut second(3)) && !halves.end(10, &mut second(5)));
        let mut sample = second(3);
        assert!(halves.end(40, &mut sample) && sample.stack == [2; 100]);
        halves.thread_ended(4);
        halves.forget_ended();
        assert!(!halves.end(10, &mut second(4)));
        assert_eq!(halves.bytes, 0);
    }

    /// Check that memory is bounded, however many threads are blocked.
    #[test]
    fn memory_is_bounded() {
        let mut halves = WaitHalves::default();
        let large = |tid| Sample { tid, stack: vec![0; 1 << 20], ..Sample::default() };
        (0..200).for_each(|tid| halves.begin(1, &large(tid)));
        assert!(halves.bytes <= MAX_BYTES && halves.begun.len() > 100);
    }
}
