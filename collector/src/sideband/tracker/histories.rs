//! Property test: for any history of a small machine, reported incompletely and out of order, the tracker knows what
//! was true.
//!
//! Events are reported from some time on. `/proc` is read while the machine continues, and its contents are reported
//! before the events of the same time. The reader reads events up to a moment ago, and samples what ran until then.

mod machine;

use super::tests::at;
use super::*;
use crate::sideband::order::time_ns;
use machine::{Machine, PAGE_BYTES, Thread, mapping};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The next action of the reader.
#[derive(Debug, Clone)]
struct Look {
    /// Number of steps that happen before.
    pause: u8,
    /// Age of the newest events it reads.
    lag_ns: u64,
    /// Samples that make it read `/proc`.
    due: Vec<Due>,
    /// How many of the processes that existed at the start are described.
    turns: usize,
}

#[derive(Debug, Clone)]
struct Due {
    which: usize,
    /// Although everything is known, as if events had been lost.
    is_anew: bool,
    /// Number of steps before and between the parts of reading.
    pauses: [u8; 3],
}

/// What the recording profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Everything,
    /// A running process, and its descendants.
    Process,
    /// A process started for the recording, and its descendants.
    Command,
}

/// A machine, and a tracker of its events.
struct Run {
    machine: Machine,
    /// Past states of the machine, by nanosecond.
    past: Vec<Machine>,
    steps: std::vec::IntoIter<(u8, u8, u8)>,
    is_told: bool,
    /// Events not read yet.
    events: Vec<Sideband>,
    tracker: Tracker,
    /// Everything up to then has been read.
    seen_ns: u64,
    /// Processes that existed at the start and have yet to be described.
    existing: Vec<u32>,
    /// Processes and times, yet to be read, for which earlier knowledge is kept.
    kept: Vec<(u32, u64)>,
    /// Processes that had no running thread when they were to be described: nothing is known of what they did before.
    ended: BTreeSet<u32>,
    pauses: [u8; 3],
}

impl Run {
    fn new(steps: Vec<(u8, u8, u8)>, about: About) -> Self {
        let mut machine = Machine::default();
        let past = vec![machine.clone()];
        machine.begin(false);
        let tracker = Tracker::new(about == About::Everything);
        let (steps, events, existing) = (steps.into_iter(), Vec::new(), Vec::new());
        let (kept, ended, pauses) = (Vec::new(), BTreeSet::new(), [0; 3]);
        Self { machine, past, steps, is_told: false, events, tracker, seen_ns: 0, existing, kept, ended, pauses }
    }

    fn steps(&mut self, n: u8) {
        for _ in 0..n {
            match self.steps.next() {
                Some(step) => {
                    let event = self.machine.step(step);
                    self.events.extend(event.filter(|_| self.is_told));
                }
                None => self.machine.now_ns += 1,
            }
            self.past.push(self.machine.clone());
        }
    }

    /// A timestamp that is used nowhere else.
    fn now(&mut self) -> u64 {
        self.machine.now_ns += 1;
        self.past.push(self.machine.clone());
        self.machine.now_ns
    }

    /// Begins the recording.
    fn begin(&mut self, about: About, pauses: [u8; 3]) {
        self.is_told = true;
        self.steps(pauses[0]);
        let existing: Vec<u32> = self.machine.processes.keys().copied().collect();
        match about {
            About::Everything => {
                self.machine.processes.values_mut().for_each(|process| process.is_followed = true);
                (self.existing, self.pauses) = (existing, pauses);
            }
            About::Process => {
                let runs = |pid: &&u32| self.machine.processes[*pid].runs();
                let Some(&pid) = existing.iter().find(runs) else { return };
                self.machine.processes.get_mut(&pid).unwrap().is_followed = true;
                self.describe_existing(pid, pauses);
            }
            About::Command => {
                let Some(pid) = self.machine.begin(true) else { return };
                let now_ns = self.now();
                self.tracker.add(pid, &Seen { since_ns: now_ns, threads: vec![(pid, now_ns)], ..Seen::default() });
            }
        }
    }

    fn describe_existing(&mut self, pid: u32, pauses: [u8; 3]) {
        if !self.describe(pid, None, pauses) {
            let threads = self.read(pid, [0; 3]).map_or_else(Vec::new, |(threads, _)| threads);
            self.ended.extend(threads.is_empty().then_some(pid));
            let since_ns = if self.tracker.follows_all() { 0 } else { self.now() };
            self.tracker.add(pid, &Seen { since_ns, threads, ..Seen::default() });
        }
    }

    /// Reads what `/proc` shows of a process, as `synthesis` does, and updates the tracker. If it is described because
    /// it is `due` but has nothing mapped any more, it is left alone. Returns whether it could be read.
    fn describe(&mut self, pid: u32, due: Option<&Due>, pauses: [u8; 3]) -> bool {
        let Some(life) = self.machine.processes.get(&pid).map(|process| process.life) else { return false };
        let since_ns = self.now();
        let mut read = None;
        for _ in 0..4 {
            read = self.read(pid, pauses);
            if read.as_ref().is_some_and(|(threads, _)| !threads.is_empty()) {
                break;
            }
        }
        let is_same = |machine: &Machine| machine.processes.get(&pid).is_some_and(|process| process.life == life);
        let Some((threads, pages)) = read.filter(|_| is_same(&self.machine)) else { return false };
        if due.is_some() && pages.is_empty() {
            return true;
        }
        let (described_ns, is_anew) = (Some(self.now()), due.is_some_and(|due| due.is_anew));
        self.tracker.add(pid, &Seen { since_ns, threads, described_ns, is_anew });
        for page in pages {
            self.tracker.apply(&mapping(since_ns, pid, page, true));
        }
        true
    }

    /// Running threads with times at which they ran, and what one of them has mapped. `None` if that thread has gone
    /// meanwhile.
    fn read(&mut self, pid: u32, pauses: [u8; 3]) -> Option<(RunningThreads, BTreeSet<u64>)> {
        self.steps(pauses[0]);
        let mut listed: Vec<u32> = self.machine.processes.get(&pid)?.threads.keys().copied().collect();
        listed.sort_by_key(|&tid| tid == pid);
        let runs = |machine: &Machine, tid| {
            machine.processes.get(&pid).is_some_and(|process| process.is(tid, Thread::Running))
        };
        let mut running = Vec::new();
        for tid in listed {
            self.steps(pauses[1]);
            let now_ns = self.now();
            running.extend(runs(&self.machine, tid).then_some((tid, now_ns)));
        }
        self.steps(pauses[2]);
        if running.is_empty() {
            return Some((running, BTreeSet::new()));
        }
        let still = running.iter().any(|&(tid, _)| runs(&self.machine, tid));
        still.then(|| (running, self.machine.processes[&pid].pages.clone()))
    }

    fn look(&mut self, Look { pause, lag_ns, due, turns }: &Look) {
        self.steps(*pause);
        let cut_ns = self.now().saturating_sub(*lag_ns).max(self.seen_ns);
        let mut known = Vec::new();
        let mut next_ns = self.seen_ns + 1;
        let n_seen = self.events.iter().take_while(|event| time_ns(event) <= cut_ns).count();
        for event in self.events.drain(..n_seen).collect::<Vec<_>>() {
            known.extend((next_ns..time_ns(&event)).flat_map(|time_ns| self.known_at(time_ns)));
            next_ns = time_ns(&event);
            self.tracker.apply(&event);
        }
        known.extend((next_ns..=cut_ns).flat_map(|time_ns| self.known_at(time_ns)));
        self.assert_true(&known);
        for kept in self.kept.extract_if(.., |(_, time_ns)| *time_ns <= cut_ns) {
            assert!(known.contains(&kept), "{kept:?} was known before {cut_ns}, and is no longer");
        }
        for due in due {
            let sampled: Vec<u32> = (self.seen_ns + 1..=cut_ns).flat_map(|time_ns| self.sampled_at(time_ns)).collect();
            let Some(n) = due.which.checked_rem(sampled.len()) else { continue };
            if due.is_anew || self.tracker.known_of(sampled[n]) == Known::Nothing {
                self.describe(sampled[n], Some(due), due.pauses);
            }
        }
        self.assert_true(&known);
        let kept = (cut_ns + 1..=self.machine.now_ns).flat_map(|time_ns| self.kept_at(time_ns)).collect();
        self.kept = kept;
        self.tracker.forget_ended(cut_ns);
        let before_ns = std::mem::replace(&mut self.seen_ns, cut_ns);
        self.assert_not_forgotten();
        self.assert_forgotten(before_ns);
        for _ in 0..*turns {
            let Some(pid) = self.existing.pop() else { break };
            if self.tracker.known_of(pid) == Known::Nothing {
                self.describe_existing(pid, self.pauses);
            }
        }
    }

    /// Processes that may have been sampled at this time.
    fn sampled_at(&self, time_ns: u64) -> impl Iterator<Item = u32> {
        let processes = self.past[usize::try_from(time_ns).unwrap()].processes.iter();
        processes.filter(|(_, process)| process.is_followed && process.can_be_sampled()).map(|(&pid, _)| pid)
    }

    /// Those of them whose mappings are known from the events up to then.
    fn known_at(&self, time_ns: u64) -> Vec<(u32, u64)> {
        let former = |pid| self.tracker.former.get(&pid).and_then(|former| former_at(former, time_ns));
        let described_ns = |pid| match (former(pid), self.tracker.processes.get(&pid)) {
            (Some(former), _) => former.described_ns,
            (None, process) => process?.described_ns,
        };
        let is_known = |pid: &u32| described_ns(*pid).is_some_and(|described_ns| described_ns <= time_ns);
        self.sampled_at(time_ns).filter(is_known).map(|pid| (pid, time_ns)).collect()
    }

    /// Those of them whose mappings known before `/proc` was read are kept.
    fn kept_at(&self, time_ns: u64) -> Vec<(u32, u64)> {
        let life = |pid: u32, time_ns: u64| {
            self.past[usize::try_from(time_ns).unwrap()].processes.get(&pid).map(|process| process.life)
        };
        let is_kept = |&(pid, _): &(u32, u64)| {
            let former = self.tracker.former.get(&pid).and_then(|former| former_at(former, time_ns));
            // Events yet to come may report a new process.
            former.is_some_and(|former| life(pid, former.described_ns.unwrap()) == life(pid, time_ns))
        };
        self.known_at(time_ns).into_iter().filter(is_kept).collect()
    }

    fn assert_true(&self, known: &[(u32, u64)]) {
        for &(pid, time_ns) in known {
            let ranges = self.tracker.ranges(&at(pid, time_ns));
            for page in &self.past[usize::try_from(time_ns).unwrap()].processes[&pid].pages {
                assert!(ranges.contains(page * 2 * PAGE_BYTES), "{pid} has mapped {page} at {time_ns}: {ranges:?}");
            }
        }
    }

    fn assert_not_forgotten(&self) {
        for (&pid, process) in &self.past[usize::try_from(self.seen_ns).unwrap()].processes {
            let is_told = process.is_followed && process.runs() && !self.ended.contains(&pid);
            let is_known = !is_told || self.existing.contains(&pid) || self.tracker.knows(pid);
            assert!(is_known, "{pid} is not known at {}", self.seen_ns);
        }
    }

    /// Checks that nothing is kept of what had ended at `before_ns`, except what has yet to be described: an event of a
    /// process whose first thread had ended before the recording adds that thread.
    fn assert_forgotten(&self, before_ns: u64) {
        for pid in self.tracker.processes.keys().filter(|pid| !self.existing.contains(pid)) {
            let lives = |past: &Machine| {
                past.processes
                    .get(pid)
                    .is_some_and(|process| process.threads.values().any(|&state| state != Thread::Ended))
            };
            let past = &self.past[usize::try_from(before_ns).unwrap()..];
            assert!(past.iter().any(lives), "{pid} is known at {}, and ended before {before_ns}", self.seen_ns);
        }
    }
}

fn pauses() -> impl Strategy<Value = [u8; 3]> {
    prop_oneof![Just([0; 3]), [0..4u8, 0..4u8, 0..4u8]]
}

fn due() -> impl Strategy<Value = Due> {
    (any::<usize>(), prop::bool::weighted(0.2), pauses()).prop_map(|(which, is_anew, pauses)| Due {
        which,
        is_anew,
        pauses,
    })
}

fn looks() -> impl Strategy<Value = Vec<Look>> {
    let look = (0..12u8, 0..6u64, vec(due(), 0..3), 0..4usize);
    vec(look.prop_map(|(pause, lag_ns, due, turns)| Look { pause, lag_ns, due, turns }), 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that no live process is ever forgotten, that ended ones are, and that everything a process has mapped when
    /// it is sampled is known once it was described.
    #[test]
    fn tracked_state_matches_the_model(
        before in 0..30u8,
        about in prop_oneof![Just(About::Everything), Just(About::Process), Just(About::Command)],
        first in pauses(),
        looks in looks(),
        steps in vec((0..18u8, any::<u8>(), any::<u8>()), 0..150),
    ) {
        let mut run = Run::new(steps, about);
        run.steps(before);
        run.begin(about, first);
        looks.iter().for_each(|look| run.look(look));
        for _ in 0..2 {
            run.look(&Look { pause: 0, lag_ns: 0, due: Vec::new(), turns: usize::MAX });
        }
    }
}
