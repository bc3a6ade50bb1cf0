//! Sorts records by time.
//!
//! perf writes the contents of each CPU's buffer, one after the other, and then marks the end of a round. A record may
//! be older than some records of the previous round, but not older than all of the round before that:
//!
//! ```text
//! CPU 0 ── 1 4 ┐        CPU 0 ── 7 8 ┐
//! CPU 1 ── 2 6 ┴ round  CPU 1 ── 5 9 ┴ round: 1 2 4 5 6 are complete now, and in order
//! ```
//!
//! # Sources
//! `tools/perf/util/ordered-events.c` (`OE_FLUSH__ROUND`), whose comment has the same example.

use super::records::Head;
use std::collections::VecDeque;

/// The most bytes of waiting records; beyond, the oldest half is released. perf ends a round after reading the buffers
/// of all CPUs once, each 512 KiB by default.
const MAX_BYTES: usize = 128 << 20;
/// Memory of a record in addition to its body, considering that a growing vector reserves up to twice its size.
const RECORD_BYTES: usize = 2 * size_of::<Waiting>();
/// The most bodies kept for reuse.
const MAX_SPARE: usize = 256;

struct Waiting {
    time_ns: u64,
    /// Keeps records with equal times in order.
    number: u64,
    head: Head,
    body: Vec<u8>,
}

/// Sorts records.
#[derive(Default)]
pub(super) struct Rounds {
    waiting: Vec<Waiting>,
    /// Sorted; nothing older can follow.
    released: VecDeque<Waiting>,
    bytes: usize,
    n_added: u64,
    /// The latest time of the previous round.
    before_ns: u64,
    /// The latest time so far.
    latest_ns: u64,
    spare: Vec<Vec<u8>>,
}

impl Rounds {
    /// Adds a record. Takes `body` and replaces it by an empty one. True if so much is waiting that some of it must be
    /// released.
    pub(super) fn add(&mut self, time_ns: u64, head: Head, body: &mut Vec<u8>) -> bool {
        let body = std::mem::replace(body, self.spare.pop().unwrap_or_default());
        self.bytes = self.bytes.saturating_add(body.capacity()).saturating_add(RECORD_BYTES);
        self.latest_ns = self.latest_ns.max(time_ns);
        self.waiting.push(Waiting { time_ns, number: self.n_added, head, body });
        self.n_added = self.n_added.saturating_add(1);
        self.bytes > MAX_BYTES
    }

    /// Ends the round; returns the time up to which all records have been read.
    pub(super) fn finish_round(&mut self) -> u64 {
        std::mem::replace(&mut self.before_ns, self.latest_ns)
    }

    /// The median time of the waiting records.
    pub(super) fn middle_ns(&mut self) -> u64 {
        let middle = self.waiting.len() / 2;
        self.sort();
        self.waiting.get(middle).map_or(u64::MAX, |waiting| waiting.time_ns)
    }

    /// Releases records up to a time, inclusive.
    pub(super) fn release(&mut self, up_to_ns: u64) {
        self.sort();
        let n = self.waiting.partition_point(|waiting| waiting.time_ns <= up_to_ns);
        self.released.extend(self.waiting.drain(..n));
    }

    /// The next released record.
    pub(super) fn pop(&mut self) -> Option<(Head, Vec<u8>)> {
        let Waiting { head, body, .. } = self.released.pop_front()?;
        self.bytes = self.bytes.saturating_sub(body.capacity()).saturating_sub(RECORD_BYTES);
        Some((head, body))
    }

    /// Accepts a used body, to reuse its memory.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(body);
        }
    }

    fn sort(&mut self) {
        self.waiting.sort_unstable_by_key(|waiting| (waiting.time_ns, waiting.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(rounds: &mut Rounds, up_to_ns: u64) -> Vec<u16> {
        rounds.release(up_to_ns);
        std::iter::from_fn(|| rounds.pop()).map(|(head, _)| head.misc).collect()
    }

    /// Check that two rounds whose CPUs overlap are sorted by time, that each record is released once nothing older can
    /// follow, and that records with equal times keep their order.
    #[test]
    fn rounds_are_sorted() {
        let mut rounds = Rounds::default();
        let add = |rounds: &mut Rounds, time_ns, misc| {
            assert!(!rounds.add(time_ns, Head { kind: 9, misc, stack: None }, &mut vec![0; 8]));
        };
        for (time, misc) in [(1, 1), (4, 4), (2, 2), (6, 6)] {
            add(&mut rounds, time, misc);
        }
        let end = rounds.finish_round();
        assert_eq!(passed(&mut rounds, end), [0; 0], "a record of the next round may be older");
        for (time, misc) in [(7, 7), (8, 8), (5, 5), (6, 60), (9, 9)] {
            add(&mut rounds, time, misc);
        }
        let end = rounds.finish_round();
        assert_eq!(passed(&mut rounds, end), [1, 2, 4, 5, 6, 60]);
        assert_eq!(passed(&mut rounds, u64::MAX), [7, 8, 9]);
    }

    /// Check that records without a body count towards the limit, too.
    #[test]
    fn empty_records_are_bounded() {
        let mut rounds = Rounds::default();
        let n = (1_u64..).find(|&n| rounds.add(n, Head { kind: 9, misc: 0, stack: None }, &mut Vec::new()));
        let kept = rounds.waiting.capacity() * size_of::<Waiting>();
        assert!(n.is_some_and(|n| n > 100_000) && kept <= MAX_BYTES, "{n:?} records in {kept} bytes");
    }

    /// Check that memory is bounded, and that the oldest records are released early.
    #[test]
    fn memory_is_bounded() {
        let mut rounds = Rounds::default();
        let mut is_full = false;
        let mut n = 0_u64;
        while !is_full {
            n += 1;
            is_full = rounds.add(n, Head { kind: 9, misc: 0, stack: None }, &mut vec![0; 1 << 20]);
            assert!(n < 1000, "128 MiB are 127 of these");
        }
        assert_eq!(rounds.middle_ns(), n / 2 + 1);
        let up_to = rounds.middle_ns();
        assert_eq!(passed(&mut rounds, up_to).len() as u64, n / 2 + 1);
        assert!(rounds.bytes <= MAX_BYTES);
    }
}
