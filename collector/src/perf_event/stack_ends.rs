//! The ends of stacks, which the kernel's samples do not contain.

use crate::proc::start_stack;
use crate::sideband::is_range_only;
use fpprof_recording::model::{Comm, Mmap, Sideband, StackEnd, StackEndSource};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The ends of all mappings and of the first threads' stacks of all profiled processes.
///
/// The end of a mapping is valid until it is unmapped or changed, which no event reports; later mappings over it are
/// reported.
#[derive(Debug, Default)]
pub(super) struct StackEnds {
    processes: FxHashMap<u32, Process>,
    /// What a process was before an exec, in the order of time: several may have been reported before the first sample is read.
    former: FxHashMap<u32, Vec<Process>>,
    /// Processes whose first thread ended: other threads may live on, and samples still come.
    ended: FxHashSet<u32>,
}

#[derive(Debug, Default, Clone)]
struct Process {
    /// Mapping ends by start, not overlapping. Shared until one of the sharers changes it.
    mappings: Rc<BTreeMap<u64, u64>>,
    /// Where the kernel put arguments and environment at the last exec: the end of the first thread's stack.
    first_stack: Option<u64>,
    /// How often the kernel may still be asked for it.
    asks_left: u8,
    /// How many chunks may still be searched for it.
    searches_left: u8,
    /// Time of the last exec: earlier mappings are gone.
    since_ns: u64,
}

/// Largest size of a first thread's stack; anything farther away is something else.
///
/// # Sources
/// Twice the usual limit (`_STK_LIM` in `include/uapi/linux/resource.h`).
const LARGEST_FIRST_STACK: u64 = 16 << 20;

/// How many of a process's samples ask for a first stack that was not known at its exec.
///
/// # Sources
/// `begin_new_exec` reports an exec before `load_elf_binary` sets `mm->start_stack` (`fs/exec.c`, `fs/binfmt_elf.c`):
/// a fast reader asks too early.
const MAX_ASKS: u8 = 8;
/// How many chunks are searched for it: other threads' stacks do not contain it.
const MAX_SEARCHES: u8 = 32;

/// Mappings kept for a process: as many as it can have (`vm.max_map_count`). If there are more, because unmapped ones
/// are still counted, all are forgotten.
const MAX_MAPPINGS: usize = 65_530;

impl StackEnds {
    /// Notes an event of a profiled process.
    ///
    /// If a process executes two programs in quick succession, `/proc` may already describe the second when asked about
    /// the first. Stacks are placed at random, so that answer is then too far away to be taken for the end of a stack.
    pub(super) fn apply(&mut self, event: &Sideband) {
        match event {
            Sideband::Mmap(mmap) => self.mmap(mmap),
            Sideband::Comm(comm) if comm.exec => self.exec(comm),
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                let parent = self.processes.get(&fork.parent_pid).cloned().unwrap_or_default();
                self.processes.insert(fork.pid, parent);
            }
            Sideband::Exit(exit) if exit.pid == exit.tid => {
                self.ended.insert(exit.pid);
            }
            _ => {}
        }
    }

    /// Forgets processes that have ended, and former programs: call it when all samples up to the last event have been seen.
    pub(super) fn forget_ended(&mut self, is_alive: impl Fn(u32) -> bool) {
        let Self { processes, former, ended } = self;
        former.clear();
        ended.retain(|pid| {
            let is_needed = is_alive(*pid);
            if !is_needed {
                processes.remove(pid);
            }
            is_needed
        });
    }

    /// Notes an existing process. With `is_anew`, its earlier mappings no longer count.
    pub(super) fn add(&mut self, pid: u32, is_anew: bool) {
        let process = self.processes.entry(pid).or_default();
        if is_anew {
            process.mappings = Rc::default();
        }
        (process.first_stack, process.asks_left) = (start_stack(pid), MAX_ASKS);
        process.searches_left = MAX_SEARCHES;
    }

    /// The end of the stack that contained `sp` at `time_ns`, if known. `chunk` is the stack from there on, as the
    /// kernel copied it: for a process that ended before it was asked about, nothing else shows the end.
    pub(super) fn end(&mut self, pid: u32, sp: u64, time_ns: u64, chunk: &[u8]) -> Option<StackEnd> {
        let former = self.former.get_mut(&pid).into_iter().flatten();
        let process = former.chain(self.processes.get_mut(&pid)).rev().find(|process| time_ns >= process.since_ns)?;
        if process.first_stack.is_none() && process.asks_left > 0 {
            process.asks_left -= 1;
            process.first_stack = start_stack(pid);
        }
        let is_above =
            |first: &u64| first.checked_sub(sp).is_some_and(|depth| (1..=LARGEST_FIRST_STACK).contains(&depth));
        // What the kernel answered may be the stack of the next program, and this one another thread's.
        if !process.first_stack.as_ref().is_some_and(is_above) && process.searches_left > 0 {
            process.searches_left -= 1;
            process.first_stack = find_arguments(sp, chunk).or(process.first_stack);
        }
        if let Some(address) = process.first_stack.filter(is_above) {
            return Some(StackEnd { address, source: StackEndSource::StartStack });
        }
        let (_, &end) = process.mappings.range(..=sp).next_back()?;
        (end > sp).then_some(StackEnd { address: end, source: StackEndSource::Mapping })
    }

    fn exec(&mut self, comm: &Comm) {
        let now = Process {
            first_stack: start_stack(comm.pid),
            asks_left: MAX_ASKS,
            searches_left: MAX_SEARCHES,
            since_ns: comm.time_ns,
            ..Process::default()
        };
        if let Some(former) = self.processes.insert(comm.pid, now) {
            self.former.entry(comm.pid).or_default().push(former);
        }
    }

    fn mmap(&mut self, mmap: &Mmap) {
        // The kernel reports a first stack before it moves it.
        if mmap.path == b"[stack]" || is_range_only(mmap) {
            return;
        }
        let process = self.processes.entry(mmap.pid).or_default();
        if process.mappings.len() >= MAX_MAPPINGS {
            process.mappings = Rc::default();
        }
        insert(Rc::make_mut(&mut process.mappings), mmap.start, mmap.start.saturating_add(mmap.len));
    }
}

/// Where the kernel put the arguments of a program, if that is in the chunk: their number, pointers to them, zero,
/// pointers to the environment, zero, and the first entry of the auxiliary vector.
///
/// # Sources
/// System V psABI for AMD64, figure 3.9 (initial process stack). `create_elf_tables` in `fs/binfmt_elf.c`;
/// `ARCH_DLINFO`, with which the vector begins on x86-64 and arm64.
fn find_arguments(sp: u64, chunk: &[u8]) -> Option<u64> {
    const AT_SYSINFO_EHDR: u64 = 33;
    const MAX_ARGUMENTS: u64 = 1 << 16;
    if !sp.is_multiple_of(8) {
        return None;
    }
    let words = chunk.as_chunks::<8>().0;
    let word = |at: usize| words.get(at).map(|word| u64::from_le_bytes(*word));
    // The end of a list of pointers above `place`.
    let end_of = |from: usize, place: u64| (from..words.len()).find(|&at| word(at).is_none_or(|word| word <= place));
    let is_start = |at: usize, place: u64| -> Option<bool> {
        let n = word(at).filter(|n| (1..MAX_ARGUMENTS).contains(n))?;
        let arguments = end_of(at + 1, place)?;
        let environment = end_of(arguments + 1, place)?;
        let is_whole = arguments - at - 1 == usize::try_from(n).ok()?;
        let is_ended = word(arguments)? == 0 && word(environment)? == 0;
        Some(is_whole && is_ended && word(environment + 1)? == AT_SYSINFO_EHDR)
    };
    let places = (0..words.len()).map(|at| (at, sp.saturating_add(8 * at as u64)));
    let mut aligned = places.filter(|(_, place)| place.is_multiple_of(16));
    aligned.find(|&(at, place)| is_start(at, place) == Some(true)).map(|(_, place)| place)
}

/// Adds `start..end`, cutting what it covers.
fn insert(mappings: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    if start >= end {
        return;
    }
    if let Some((_, below)) = mappings.range_mut(..start).next_back()
        && *below > start
    {
        let rest = std::mem::replace(below, start);
        if rest > end {
            mappings.insert(end, rest);
        }
    }
    while let Some((&covered, &covered_end)) = mappings.range(start..end).next() {
        mappings.remove(&covered);
        if covered_end > end {
            mappings.insert(end, covered_end);
        }
    }
    mappings.insert(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::code;
    use fpprof_recording::model::{Exit, FileIdentity};

    fn mmap(start: u64, len: u64) -> Sideband {
        Sideband::Mmap(Mmap { start, len, prot: 3, ..code(7, b"//anon", FileIdentity::default()) })
    }

    fn end(ends: &mut StackEnds, sp: u64) -> Option<u64> {
        ends.end(7, sp, 5, &[]).map(|end| end.address)
    }

    /// Check that a stack ends where its mapping does, that adjacent mappings stay separate, that later mappings cover
    /// earlier ones, and that there is no end where nothing is mapped.
    #[test]
    fn mappings_end_where_they_end() {
        let mut ends = StackEnds::default();
        for event in [mmap(0x1000, 0x1000), mmap(0x2000, 0x1000), mmap(0x8000, 0x4000)] {
            ends.apply(&event);
        }
        assert_eq!(
            [0xfff, 0x1000, 0x1fff, 0x2000, 0x3000].map(|sp| end(&mut ends, sp)),
            [None, Some(0x2000), Some(0x2000), Some(0x3000), None]
        );
        ends.apply(&mmap(0x9000, 0x1000));
        assert_eq!([0x8800, 0x9800, 0xa000].map(|sp| end(&mut ends, sp)), [Some(0x9000), Some(0xa000), Some(0xc000)]);
        ends.apply(&mmap(0, 0x10000));
        assert_eq!(end(&mut ends, 0x1800), Some(0x10000));
        ends.apply(&mmap(u64::MAX - 1, 100));
        assert_eq!(end(&mut ends, u64::MAX - 1), Some(u64::MAX));
    }

    /// Check that a first stack's end is its start address, for this very process, and not for a stack pointer far from
    /// it.
    #[test]
    fn first_stacks_end_at_their_start() {
        let mut ends = StackEnds::default();
        let pid = std::process::id();
        ends.add(pid, false);
        let start = start_stack(pid).expect("of one's own process it is known");
        let end = ends.end(pid, start - 64, 5, &[]).expect("an end");
        assert_eq!(end, StackEnd { address: start, source: StackEndSource::StartStack });
        assert_eq!(ends.end(pid, start, 5, &[]), None);
        assert_eq!(ends.end(pid, start - LARGEST_FIRST_STACK - 8, 5, &[]), None);
    }

    /// Check that a process is forgotten once it is not known any more, also if that is some time after its end.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut ends = StackEnds::default();
        ends.apply(&mmap(0x1000, 0x1000));
        ends.apply(&Sideband::Exit(Exit { time_ns: 1, pid: 7, tid: 7 }));
        for is_alive in [true, false] {
            ends.forget_ended(|pid| pid == 7 && is_alive);
            assert_eq!(end(&mut ends, 0x1000).is_some(), is_alive);
        }
        assert!(ends.processes.is_empty() && ends.ended.is_empty());
    }

    /// Check that samples of a program are ended by its own stack, if the process has executed others before they are read.
    #[test]
    fn programs_have_their_own_stacks() {
        let exec = |time_ns| {
            let comm = Comm { time_ns, pid: 7, tid: 7, comm: b"x".to_vec(), exec: true, start_ticks: 0 };
            Sideband::Comm(comm)
        };
        let mut ends = StackEnds::default();
        for event in [exec(1), mmap(0x1000, 0x1000), exec(10), mmap(0x1000, 0x3000), exec(20)] {
            ends.apply(&event);
        }
        let mut end_at = |time_ns| ends.end(7, 0x1800, time_ns, &[]).map(|end| end.address);
        assert_eq!(
            [0, 1, 9, 10, 19, 20].map(&mut end_at),
            [None, Some(0x2000), Some(0x2000), Some(0x4000), Some(0x4000), None]
        );
        ends.forget_ended(|_| true);
        assert!(ends.former.is_empty());
    }

    /// Check that a first stack that was not known at the exec is found at a sample.
    #[test]
    fn first_stacks_are_asked_for_again() {
        let mut ends = StackEnds::default();
        let pid = std::process::id();
        let start = start_stack(pid).expect("of one's own process it is known");
        ends.processes.insert(pid, Process { asks_left: 1, ..Process::default() });
        assert_eq!(ends.end(pid, start - 64, 5, &[]).map(|end| end.address), Some(start));
    }

    /// Check that the first stack of a process that is gone ends at its arguments, as seen in its samples, also for
    /// samples too deep to contain them; and that words which only begin like arguments are not taken for them.
    #[test]
    fn first_stacks_end_at_their_arguments() {
        let gone = u32::MAX;
        let sp = 0x7ffc_0000_1000;
        let at = |n: u64| sp + 8 * n;
        let start = [2, at(20), at(21), 0, at(22), 0, 33, 0x7ffc_1000_0000];
        let chunk = |before: &[u64], words: &[u64]| -> Vec<u8> {
            before.iter().chain(words).flat_map(|word| word.to_le_bytes()).collect()
        };
        let find = |chunk: &[u8]| {
            let mut ends = StackEnds::default();
            // That of the next program.
            let first_stack = Some(sp + LARGEST_FIRST_STACK + 4096);
            ends.processes.insert(gone, Process { first_stack, searches_left: 1, ..Process::default() });
            let found = ends.end(gone, sp, 5, chunk).map(|end| end.address);
            assert_eq!(ends.end(gone, sp - 4096, 5, &[]).map(|end| end.address), found, "it is remembered");
            found
        };
        assert_eq!(find(&chunk(&[1, at(9)], &start)), Some(at(2)));
        assert_eq!(find(&chunk(&[1], &start)), None, "not aligned");
        assert_eq!(find(&chunk(&[1, at(9)], &start[..6])), None, "the vector is not there");
        for (place, wrong) in [(0, 3), (0, 0), (2, 7), (4, 7), (6, 32)] {
            let mut words = start;
            words[place] = wrong;
            assert_eq!(find(&chunk(&[1, at(9)], &words)), None, "{place}: {wrong}");
        }
    }
}
