//! A small machine whose whole history is known.

use fpprof_recording::model::{Comm, Exit, FileIdentity, Fork, Mmap, Sideband};
use std::collections::{BTreeMap, BTreeSet};

/// IDs of processes and threads: few, so that they are reused.
const NUMBERS: std::ops::Range<u32> = 10..19;
/// Number of pages that can be mapped.
const N_PAGES: u64 = 6;
pub(super) const PAGE_BYTES: u64 = 0x1000;

/// Everything that exists at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    pub(super) now_ns: u64,
    pub(super) processes: BTreeMap<u32, Process>,
    n_lives: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Process {
    /// Distinguishes it from other processes that had its PID.
    pub(super) life: u32,
    /// As shown by `/proc/PID/task`.
    pub(super) threads: BTreeMap<u32, Thread>,
    pub(super) pages: BTreeSet<u64>,
    exec: Option<Exec>,
    /// Whether the recording is to profile it.
    pub(super) is_followed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Thread {
    Running,
    /// It has begun to exit, as its flags show.
    Exiting,
    /// Its exit was reported. It is shown until it is waited for.
    Ended,
}

/// How far a thread is in executing a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exec {
    /// It ends the other threads, and takes the ID of the first.
    Alone(u32),
    /// The old mappings are gone.
    Unmapped,
    /// The exec was reported.
    Told,
    /// The program is mapped. A process that is killed before stays known for too long; see [`super::Exec`].
    Mapped,
}

impl Process {
    pub(super) fn is(&self, tid: u32, state: Thread) -> bool {
        self.threads.get(&tid) == Some(&state)
    }

    /// Whether a thread of it runs. Its mappings are read through such a thread.
    pub(super) fn runs(&self) -> bool {
        self.threads.values().any(|&thread| thread == Thread::Running)
    }

    /// Whether a thread may be in user mode.
    pub(super) fn can_be_sampled(&self) -> bool {
        self.exec.is_none() && self.runs()
    }

    fn nth_running(&self, n: u8) -> Option<u32> {
        let mut running = self.threads.iter().filter(|(_, state)| **state == Thread::Running).map(|(&tid, _)| tid);
        let all: Vec<u32> = running.by_ref().collect();
        all.get(usize::from(n).checked_rem(all.len())?).copied()
    }
}

impl Machine {
    /// Adds a process with one thread, without an event.
    pub(super) fn begin(&mut self, is_followed: bool) -> Option<u32> {
        let pid = self.free_number(0)?;
        self.n_lives += 1;
        let threads = BTreeMap::from([(pid, Thread::Running)]);
        let process = Process { life: self.n_lives, threads, pages: BTreeSet::from([0]), exec: None, is_followed };
        self.processes.insert(pid, process);
        Some(pid)
    }

    /// Performs a step, if it is possible; returns the event that the kernel reports for it.
    pub(super) fn step(&mut self, (what, which, how): (u8, u8, u8)) -> Option<Sideband> {
        self.now_ns += 1;
        let n = usize::from(which).checked_rem(self.processes.len())?;
        let pid = *self.processes.keys().nth(n)?;
        match what {
            0 | 1 => self.fork(pid, how),
            2..=4 => self.clone_thread(pid, how),
            5..=8 => self.advance_exit(pid, how),
            9 => self.begin_exec(pid, how),
            10..=12 => self.advance_exec(pid, how),
            13..=15 => self.map(pid, how),
            _ => self.unmap(pid, how),
        }
    }

    fn free_number(&self, skip: u8) -> Option<u32> {
        let is_used = |number: &u32| {
            self.processes.contains_key(number) || self.processes.values().any(|one| one.threads.contains_key(number))
        };
        let free: Vec<u32> = NUMBERS.filter(|number| !is_used(number)).collect();
        free.get(usize::from(skip).checked_rem(free.len())?).copied()
    }

    /// A process that may act: one that executes a program does nothing else.
    fn active(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid).filter(|process| process.exec.is_none() && process.runs())
    }

    fn fork(&mut self, parent_pid: u32, how: u8) -> Option<Sideband> {
        let pid = self.free_number(how)?;
        let parent = self.active(parent_pid)?;
        let (pages, is_followed) = (parent.pages.clone(), parent.is_followed);
        let parent_tid = parent.nth_running(how)?;
        self.n_lives += 1;
        let threads = BTreeMap::from([(pid, Thread::Running)]);
        self.processes.insert(pid, Process { life: self.n_lives, threads, pages, exec: None, is_followed });
        Some(Sideband::Fork(Fork { time_ns: self.now_ns, pid, tid: pid, parent_pid, parent_tid }))
    }

    fn clone_thread(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let (tid, time_ns) = (self.free_number(how)?, self.now_ns);
        let process = self.active(pid)?;
        let parent_tid = process.nth_running(how)?;
        process.threads.insert(tid, Thread::Running);
        Some(Sideband::Fork(Fork { time_ns, pid, tid, parent_pid: pid, parent_tid }))
    }

    /// Makes a thread begin to exit, end, or be waited for.
    fn advance_exit(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let process = self.processes.get_mut(&pid).filter(|process| process.exec.is_none())?;
        let n = usize::from(how).checked_rem(process.threads.len())?;
        let tid = *process.threads.keys().nth(n)?;
        self.end_thread(pid, tid)
    }

    fn end_thread(&mut self, pid: u32, tid: u32) -> Option<Sideband> {
        let time_ns = self.now_ns;
        let process = self.processes.get_mut(&pid)?;
        let is_alone = process.threads.len() == 1;
        match process.threads.get_mut(&tid)? {
            state @ Thread::Running => *state = Thread::Exiting,
            state @ Thread::Exiting => {
                *state = Thread::Ended;
                return Some(Sideband::Exit(Exit { time_ns, pid, tid }));
            }
            Thread::Ended if is_alone => _ = self.processes.remove(&pid),
            // The first thread is shown as long as there are others.
            Thread::Ended if tid == pid => {}
            Thread::Ended => _ = process.threads.remove(&tid),
        }
        None
    }

    fn begin_exec(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let process = self.active(pid)?;
        process.exec = Some(Exec::Alone(process.nth_running(how)?));
        None
    }

    fn advance_exec(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let time_ns = self.now_ns;
        let process = self.processes.get_mut(&pid)?;
        match process.exec? {
            Exec::Alone(tid) => {
                let is_in_the_way = |(&other, &state): (&u32, &Thread)| {
                    (other != tid && (other != pid || state < Thread::Ended)).then_some(other)
                };
                let others: Vec<u32> = process.threads.iter().filter_map(is_in_the_way).collect();
                if let Some(n) = usize::from(how).checked_rem(others.len()) {
                    return self.end_thread(pid, *others.get(n)?);
                }
                process.threads = BTreeMap::from([(pid, Thread::Running)]);
                process.exec = Some(Exec::Unmapped);
            }
            Exec::Unmapped => {
                process.pages.clear();
                process.exec = Some(Exec::Told);
            }
            Exec::Told => {
                process.exec = Some(Exec::Mapped);
                let comm = b"new".to_vec();
                return Some(Sideband::Comm(Comm { time_ns, pid, tid: pid, comm, exec: true, start_ticks: 0 }));
            }
            Exec::Mapped => {
                process.exec = None;
                return self.map(pid, how);
            }
        }
        None
    }

    fn map(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let time_ns = self.now_ns;
        let process = self.active(pid)?;
        let page = u64::from(how) % N_PAGES;
        process.pages.insert(page);
        Some(mapping(time_ns, pid, page, false))
    }

    fn unmap(&mut self, pid: u32, how: u8) -> Option<Sideband> {
        let process = self.active(pid)?;
        process.pages.remove(&(u64::from(how) % N_PAGES));
        None
    }
}

/// The event of a page being mapped, from the kernel or from `/proc`.
pub(super) fn mapping(time_ns: u64, pid: u32, page: u64, synthesized: bool) -> Sideband {
    Sideband::Mmap(Mmap {
        time_ns,
        pid,
        tid: pid,
        // Not adjacent, so that each stays separate.
        start: page * 2 * PAGE_BYTES,
        len: PAGE_BYTES,
        file_offset: 0,
        prot: 1,
        flags: 2,
        path: Vec::new(),
        identity: FileIdentity::default(),
        synthesized,
    })
}
