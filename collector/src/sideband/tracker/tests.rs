//! Histories of processes.

use super::*;
use crate::test_support::code;
use fpprof_recording::model::{Arch, FileIdentity, UserRegs};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn fork(parent: u32, pid: u32, tid: u32) -> Sideband {
    fork_at(1, parent, pid, tid)
}

fn fork_at(time_ns: u64, parent: u32, pid: u32, tid: u32) -> Sideband {
    Sideband::Fork(Fork { time_ns, pid, tid, parent_pid: parent, parent_tid: parent })
}

fn exec(pid: u32, time_ns: u64) -> Sideband {
    Sideband::Comm(Comm { time_ns, pid, tid: pid, comm: b"x".to_vec(), exec: true, start_ticks: 0 })
}

fn exit(pid: u32, tid: u32) -> Sideband {
    exit_at(1, pid, tid)
}

fn exit_at(time_ns: u64, pid: u32, tid: u32) -> Sideband {
    Sideband::Exit(Exit { time_ns, pid, tid })
}

/// What `/proc` showed of a process with one thread.
fn seen(pid: u32, since_ns: u64) -> Seen {
    Seen { since_ns, threads: vec![(pid, since_ns)], described_ns: Some(since_ns), is_anew: false }
}

fn mmap(pid: u32, start: u64) -> Sideband {
    mmap_at(1, pid, start)
}

fn mmap_at(time_ns: u64, pid: u32, start: u64) -> Sideband {
    Sideband::Mmap(Mmap { time_ns, start, ..code(pid, b"", FileIdentity::default()) })
}

/// A sample of 64-bit code.
pub(super) fn at(pid: u32, time_ns: u64) -> Sample {
    Sample { pid, time_ns, ..Sample::default() }
}

fn apply(tracker: &mut Tracker, events: &[Sideband]) -> Vec<Verdict> {
    events.iter().map(|event| tracker.apply(event)).collect()
}

/// Check that descendants are profiled and other processes are not, not even one that reuses the PID of a profiled
/// process.
#[test]
fn descendants_only() {
    use Verdict::{Keep, Skip};
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    let events = [fork(10, 11, 11), fork(11, 12, 12), fork(99, 100, 100), mmap(12, 0), mmap(100, 0), exit(99, 99)];
    assert_eq!(apply(&mut tracker, &events), [Keep, Keep, Skip, Keep, Skip, Skip]);
    assert_eq!(apply(&mut tracker, &[exit(11, 11), fork_at(2, 99, 11, 11), mmap(11, 0)]), [Keep, Skip, Skip]);
    tracker.add(50, &seen(50, 5));
    assert_eq!(apply(&mut tracker, &[fork(99, 50, 50), mmap(50, 0)]), [Skip, Keep], "its own fork, seen late");
    let mut all = Tracker::new(true);
    assert_eq!(apply(&mut all, &events), [Keep; 6]);
}

/// Check that ancestors are known as far as forks were seen, also of processes that have executed other programs; and that
/// processes that are each other's ancestors, because a PID was reused, do no harm.
#[test]
fn ancestors_are_known_by_forks() {
    let mut tracker = Tracker::new(true);
    apply(&mut tracker, &[fork(9, 10, 10), fork(10, 11, 11), exec(11, 2), fork(11, 11, 12)]);
    assert_eq!([11, 10, 9].map(|pid| tracker.ancestors(pid)), [vec![10, 9], vec![9], vec![]]);
    apply(&mut tracker, &[fork_at(3, 11, 9, 9)]);
    assert_eq!(tracker.ancestors(11), [10, 9, 11, 10, 9, 11, 10, 9]);
}

/// Check that a child starts with its parent's mappings, that neither sees what the other maps afterwards, and that an
/// exec starts over while samples before it still see what was there.
#[test]
fn mappings_follow_fork_and_exec() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    apply(&mut tracker, &[mmap(10, 0x1000), fork(10, 11, 11), mmap(10, 0x3000), mmap_at(2, 11, 0x5000)]);
    let maps = |tracker: &Tracker, pid, time_ns| tracker.ranges(&at(pid, time_ns)).iter().collect::<Vec<_>>();
    assert_eq!(maps(&tracker, 10, 5), [(0x1000, 0x2000), (0x3000, 0x4000)]);
    assert_eq!(maps(&tracker, 11, 5), [(0x1000, 0x2000), (0x5000, 0x6000)]);
    apply(&mut tracker, &[exec(11, 100), mmap_at(101, 11, 0x9000)]);
    assert_eq!(maps(&tracker, 11, 99), [(0x1000, 0x2000), (0x5000, 0x6000)]);
    assert_eq!(maps(&tracker, 11, 100), [(0x9000, 0xa000)]);
    assert_eq!(maps(&tracker, 77, 5), []);
}

/// Check that words of 32-bit code may only point to code, before and after an exec.
#[test]
fn words_of_32_bit_code_point_to_code() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    let data = |time_ns, start| {
        let Sideband::Mmap(mmap) = mmap_at(time_ns, 10, start) else { unreachable!() };
        Sideband::Mmap(Mmap { prot: 3, ..mmap })
    };
    let events = [mmap(10, 0x1000), data(1, 0x5000), exec(10, 100), data(101, 0x6000), mmap_at(102, 10, 0x9000)];
    apply(&mut tracker, &events);
    let user_regs = Some(UserRegs::new(Arch::X86_64, Abi::Bits32, &[0; 17]));
    let maps = |sample: Sample| tracker.ranges(&sample).iter().map(|(start, _)| start).collect::<Vec<_>>();
    for (time_ns, all, code) in [(50, [0x1000, 0x5000], 0x1000), (200, [0x6000, 0x9000], 0x9000)] {
        assert_eq!(maps(at(10, time_ns)), all);
        assert_eq!(maps(Sample { user_regs, ..at(10, time_ns) }), [code]);
    }
}

/// Check that a PID used by several processes in turn, each with an exec, means at any time the process that had it
/// then, until all samples of the earlier ones were read.
#[test]
fn numbers_are_used_again() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    apply(&mut tracker, &[mmap(10, 0x1000)]);
    for (life, start) in [(100, 0x10000), (200, 0x20000), (300, 0x30000)] {
        apply(
            &mut tracker,
            &[
                fork_at(life, 10, 11, 11),
                exec(11, life + 10),
                mmap_at(life + 11, 11, start),
                exit_at(life + 12, 11, 11),
            ],
        );
    }
    let first = |tracker: &Tracker, time_ns| tracker.ranges(&at(11, time_ns)).iter().next().map(|(start, _)| start);
    let starts = [100, 110, 199, 200, 215, 305, 310].map(|time_ns| first(&tracker, time_ns));
    let expected = [0x1000, 0x10000, 0x10000, 0x1000, 0x20000, 0x1000, 0x30000];
    assert_eq!(starts, expected.map(Some));
    tracker.forget_ended(312);
    assert_eq!(first(&tracker, 305), Some(0x1000), "a sample that is a little late");
    tracker.forget_ended(312);
    assert_eq!([305, 315].map(|time_ns| first(&tracker, time_ns)), [None, None]);
}

/// Check that a process is forgotten when its last thread has ended, but not before its last samples were read, and not
/// when only its first thread has ended.
#[test]
fn ended_processes_are_forgotten() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    apply(&mut tracker, &[mmap(10, 0x1000), fork(10, 10, 20), exit(10, 10)]);
    tracker.forget_ended(100);
    assert_eq!(tracker.ranges(&at(10, 5)).iter().count(), 1);
    apply(&mut tracker, &[exit_at(150, 10, 20)]);
    tracker.forget_ended(150);
    assert_eq!(tracker.ranges(&at(10, 151)).iter().count(), 1, "a sample on its way out");
    tracker.forget_ended(160);
    assert_eq!(tracker.ranges(&at(10, 151)).iter().count(), 0);
    assert!(tracker.processes.is_empty());
}

/// Check that an exit right after an exec is disregarded if mappings follow, however late, and that without them the
/// process counts as one whose events the exec removed.
#[test]
fn programs_with_other_rights_are_followed() {
    use Verdict::Keep;
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    assert_eq!(apply(&mut tracker, &[exec(10, 5), exit_at(6, 10, 10)]), [Keep; 2]);
    assert_eq!(tracker.n_left_by_exec(), 1);
    tracker.forget_ended(100);
    assert_eq!(apply(&mut tracker, &[mmap_at(7, 10, 0x1000), fork_at(8, 10, 11, 11)]), [Keep; 2]);
    assert_eq!(tracker.n_left_by_exec(), 0);
    assert_eq!(apply(&mut tracker, &[exit_at(9, 10, 10), exit_at(9, 11, 11)]), [Keep; 2]);
    tracker.forget_ended(100);
    assert!(tracker.processes.is_empty());
}

/// The mapping whose code is at each page after these mappings: addresses of pages, and numbers of mappings.
fn code_after<'a>(mappings: impl Iterator<Item = &'a (u64, u64, bool)>) -> BTreeMap<u64, u64> {
    let mut code = BTreeMap::new();
    for &(start, pages, is_code) in mappings {
        for page in start..start + pages {
            if is_code {
                code.insert(page, start)
            } else {
                code.remove(&page)
            };
        }
    }
    code
}

fn ranges_of(tracker: &Tracker, pid: u32) -> Vec<(u64, u64)> {
    tracker.ranges(&at(pid, 5)).iter().collect()
}

/// Check that a limited number of ranges is kept of a process that maps endlessly in many places, that they include all
/// of its mappings, and that the process then has to be described, after which its mappings are known again.
#[test]
fn mappings_without_end_are_bounded() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    let starts: Vec<u64> = (0..3 * MAX_RANGES as u64).map(|n| (n * 7919 % 100_003) << 13).collect();
    for (n, &start) in starts.iter().enumerate() {
        tracker.apply(&mmap(10, start));
        assert_eq!(tracker.known_of(10), if n < MAX_RANGES { Known::All } else { Known::Some });
    }
    let process = &tracker.processes[&10];
    assert!(
        process.mapped.all.len() <= MAX_RANGES
            && process.mapped.code.len() <= MAX_RANGES
            && process.latest.len() <= MAX_LATEST
    );
    assert!(starts.iter().all(|&start| process.mapped.all.contains(start)));
    tracker.add(10, &Seen { is_anew: true, ..seen(10, 9) });
    let Sideband::Mmap(shown) = mmap_at(9, 10, 0x1000) else { unreachable!() };
    tracker.apply(&Sideband::Mmap(Mmap { synthesized: true, ..shown }));
    assert_eq!((tracker.known_of(10), tracker.processes[&10].mapped.all.len()), (Known::All, 1));
    assert!(tracker.ranges(&at(10, 8)).contains(starts[0]), "of earlier samples all counts");
}

/// Check that a late event whose effect `/proc` has already shown counts for earlier samples.
#[test]
fn late_mappings_count_for_earlier_samples() {
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    apply(&mut tracker, &[mmap_at(1, 10, 0x1000)]);
    tracker.add(10, &Seen { is_anew: true, ..seen(10, 20) });
    apply(&mut tracker, &[mmap_at(15, 10, 0x8000)]);
    assert_eq!(tracker.ranges(&at(10, 16)).iter().collect::<Vec<_>>(), [(0x1000, 0x2000), (0x8000, 0x9000)]);
    assert!(tracker.ranges(&at(10, 20)).is_empty());
}

/// Check that a process forked before or during another read of its parent's `/proc` files has what the parent had
/// then.
#[test]
fn children_have_what_their_parent_had() {
    let mut tracker = Tracker::new(true);
    tracker.add(10, &seen(10, 0));
    apply(&mut tracker, &[mmap_at(1, 10, 0x1000)]);
    tracker.add(10, &Seen { is_anew: true, described_ns: Some(24), ..seen(10, 20) });
    let forks = [(15, 11), (22, 12), (25, 13)].map(|(time_ns, pid)| fork_at(time_ns, 10, pid, pid));
    apply(&mut tracker, &forks);
    assert_eq!([11, 12, 13].map(|pid| tracker.known_of(pid)), [Known::Some, Known::Some, Known::All]);
    assert_eq!([11, 12, 13].map(|pid| tracker.ranges(&at(pid, 30)).iter().count()), [1, 1, 0]);
}

/// Check that a process that has executed a program and ended before it was described has what its events reported.
#[test]
fn ended_processes_have_what_was_recorded() {
    let mut tracker = Tracker::new(true);
    tracker.add(10, &Seen::default());
    apply(&mut tracker, &[exec(10, 5), mmap_at(6, 10, 0x1000), exit_at(7, 10, 10)]);
    assert_eq!((tracker.known_of(10), tracker.ranges(&at(10, 6)).iter().count()), (Known::All, 1));
}

/// Check that processes whose end no event reported are ended, but none that is still there, or that is newer.
#[test]
fn processes_without_an_end_are_forgotten() {
    let mut tracker = Tracker::new(true);
    apply(&mut tracker, &[fork_at(1, 10, 11, 11), exec(11, 5), fork_at(6, 11, 12, 12), fork_at(9, 10, 13, 13)]);
    assert_eq!([11, 12, 13].map(|pid| tracker.program_ns(pid)), [5, 5, 0]);
    tracker.end_gone(8, |pid| pid != 10);
    (0..2).for_each(|_| tracker.forget_ended(10));
    assert_eq!([10, 11, 12, 13].map(|pid| tracker.knows(pid)), [true, false, false, true]);
}

/// Check that an unreported mapping in the place of code is written once as no code, elsewhere not at all, and that the
/// process then has to be described, unless it executes another program.
#[test]
fn mappings_without_details_hide_code() {
    use Verdict::{Keep, Pass};
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    let range_only = |start| {
        let Sideband::Mmap(mmap) = mmap(10, start) else { unreachable!() };
        Sideband::Mmap(Mmap { prot: 0, flags: 0, ..mmap })
    };
    assert_eq!(apply(&mut tracker, &[mmap(10, 0x1000)]), [Keep]);
    assert_eq!(tracker.known_of(10), Known::All);
    let events = [range_only(0x9000), range_only(0x1000), range_only(0x1000), mmap(10, 0x1000)];
    assert_eq!(apply(&mut tracker, &events), [Pass, Keep, Pass, Keep]);
    assert_eq!(tracker.known_of(10), Known::Some);
    assert_eq!(ranges_of(&tracker, 10), [(0x1000, 0x2000), (0x9000, 0xa000)]);
    apply(&mut tracker, &[exec(10, 5)]);
    assert_eq!(tracker.known_of(10), Known::All);
}

/// Check that a few alternating mappings are written once.
#[test]
fn alternating_mappings_are_written_once() {
    use Verdict::{Keep, Pass};
    let mut tracker = Tracker::new(false);
    tracker.add(10, &seen(10, 0));
    let two = [mmap(10, 0x1000), mmap(10, 0x8000)];
    assert_eq!(apply(&mut tracker, &two), [Keep; 2]);
    assert_eq!(apply(&mut tracker, &two), [Pass; 2]);
    assert_eq!(apply(&mut tracker, &[mmap(10, 0x800), mmap(10, 0x1000)]), [Keep; 2], "one over the other");
}

proptest! {
    /// Check that without the mappings that are passed over, the same code is in the same places; and that those
    /// without code in places of their own are passed over, as are repeated ones.
    #[test]
    fn mappings_that_change_no_code_are_passed_over(
        mappings in prop::collection::vec((0..40_u64, 1..8_u64, any::<bool>()), 0..30),
    ) {
        let mut tracker = Tracker::new(true);
        let mut map = |&(start, pages, is_code): &(u64, u64, bool)| {
            let Sideband::Mmap(mmap) = mmap(1, start * 0x1000) else { unreachable!() };
            let prot = if is_code { 5 } else { 3 };
            tracker.apply(&Sideband::Mmap(Mmap { len: pages * 0x1000, prot, ..mmap }))
        };
        let verdicts: Vec<_> = mappings.iter().map(&mut map).collect();
        prop_assert_eq!(map(&(100, 1, false)), Verdict::Pass);
        let last = (50, 1, true);
        prop_assert_eq!([map(&last), map(&last), map(&(50, 2, true)), map(&last)], [
            Verdict::Keep,
            Verdict::Pass,
            Verdict::Keep,
            Verdict::Keep
        ]);
        let kept = mappings.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Keep);
        prop_assert_eq!(code_after(kept.map(|(mapping, _)| mapping)), code_after(mappings.iter()));
    }
}
