//! Opening events for threads and their descendants, or for whole CPUs.

use super::plan::Plan;
use crate::error::Error;
use crate::proc::threads;
use crate::session::shared;
use crate::sideband::{LARGE_RING_BYTES, SidebandSource};
use crate::sys::{Count, PerfEvent, PerfRing, Poller, StackEvent};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Size of the process event ring on a thread's CPU. Smaller than for whole CPUs: together with the sample rings it
/// must stay within what an ordinary user may lock.
const THREAD_SIDEBAND_BYTES: usize = 128 << 10;

/// The sampling events and rings of all CPUs, and their process events.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) cpus: Vec<CpuEvents>,
    pub(super) sideband: SidebandSource,
    template: StackEvent,
    has_threads: bool,
}

/// The sampling events of one CPU.
#[derive(Debug)]
pub(super) struct CpuEvents {
    pub(super) cpu: u32,
    /// Declared first, to be dropped before its events.
    pub(super) ring: PerfRing,
    /// The first event owns the ring, the others write into it.
    events: Vec<PerfEvent>,
    /// The CPU went offline, which ended the events: what is in the ring is all there will be.
    is_over: bool,
}

impl Events {
    /// Opens disabled events for everything that runs on every CPU.
    pub(super) fn open_cpus(plan: &Plan) -> Result<Self, Error> {
        let sideband = SidebandSource::open(&plan.cpus)?;
        Self::open(plan, None, sideband)
    }

    /// Opens events for one thread and its future descendants, disabled or to start with its exec.
    pub(super) fn open_thread(plan: &Plan, pid: u32) -> Result<Self, Error> {
        let sideband = SidebandSource::open_thread(pid, &plan.cpus, THREAD_SIDEBAND_BYTES);
        let sideband = sideband.map_err(|error| refused(plan, pid, error))?;
        Self::open(plan, Some(pid), sideband)
    }

    /// Opens disabled events for running processes.
    pub(super) fn open_pids(plan: &Plan, pids: &[u32]) -> Result<Self, Error> {
        let mut known = BTreeSet::new();
        let mut events: Option<Self> = None;
        for &pid in pids {
            // A thread created by one that has events inherits them, so this finds all threads eventually.
            loop {
                let new: Vec<u32> = threads(pid).into_iter().filter(|&tid| known.insert(tid)).collect();
                if new.is_empty() {
                    break;
                }
                for tid in new {
                    match &mut events {
                        // It has ended meanwhile, or, as the first thread of a process, before the others.
                        None => match Self::open_thread(plan, tid) {
                            Err(Error::NoSuchProcess(_)) => {}
                            opened => events = Some(opened?),
                        },
                        Some(events) => events.add(plan, tid)?,
                    }
                }
            }
        }
        events.ok_or(Error::NoSuchProcess(pids.first().copied().unwrap_or(0)))
    }

    /// Adds a thread; ignores one that ended meanwhile.
    fn add(&mut self, plan: &Plan, tid: u32) -> Result<(), Error> {
        let add = || -> io::Result<()> {
            self.sideband.add_thread(tid)?;
            for cpu in &mut self.cpus {
                let event = PerfEvent::stacks(&self.template, Some(tid), cpu.cpu)?;
                if let Some(first) = cpu.events.first() {
                    event.set_output(first)?;
                }
                cpu.events.push(event);
            }
            Ok(())
        };
        let mut add = add;
        match add() {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other.map_err(|error| refused(plan, tid, error)),
        }
    }

    /// Opens events with the largest rings that the kernel lets this user lock.
    fn open(plan: &Plan, tid: Option<u32>, sideband: SidebandSource) -> Result<Self, Error> {
        let mut last = None;
        for &ring_bytes in &plan.ring_bytes {
            let template =
                StackEvent { wakeup_bytes: u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX), ..plan.event.clone() };
            let open = |&cpu: &u32| CpuEvents::open(&template, tid, cpu, ring_bytes);
            match plan.cpus.iter().map(open).collect::<io::Result<Vec<_>>>() {
                Ok(cpus) => return Ok(Self { cpus, sideband, template, has_threads: tid.is_some() }),
                // More than this user may lock.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => last = Some(ring_bytes),
                Err(error) => {
                    return Err(match tid {
                        Some(tid) => refused(plan, tid, error),
                        None => plan.event.event.refused(0, error),
                    });
                }
            }
        }
        let ring_bytes = last.unwrap_or(0);
        Err(Error::LockedMemory { ring_bytes, mlock_kb: mlock_kb(ring_bytes) })
    }

    /// Opens and starts the events of a CPU that has come online, beside earlier ones, which are over.
    pub(super) fn reopen(&mut self, cpu: u32, poller: &Poller) -> Result<(), Error> {
        self.sideband.reopen(cpu, poller)?;
        let open = || -> io::Result<CpuEvents> {
            let new = CpuEvents::open(&self.template, None, cpu, self.ring_bytes())?;
            for event in &new.events {
                poller.add(event.as_fd())?;
                event.enable()?;
            }
            Ok(new)
        };
        let new = open().map_err(Error::system("sampling a CPU that has come online"))?;
        self.cpus.iter_mut().filter(|old| old.cpu == cpu).for_each(|old| old.is_over = true);
        self.cpus.push(new);
        Ok(())
    }

    /// Closes rings that are over and have been read; returns their CPUs and the samples that they lost.
    pub(super) fn close_read(&mut self) -> Vec<(u32, u64)> {
        let is_read = |cpu: &mut CpuEvents| cpu.is_over && cpu.ring.head() == cpu.ring.tail();
        let closed = self.cpus.extract_if(.., is_read);
        closed.map(|closed| (closed.cpu, closed.lost().unwrap_or(0))).collect()
    }

    /// Starts all events that do not start by themselves.
    pub(super) fn enable(&self) -> Result<(), Error> {
        if self.template.starts_on_exec {
            return Ok(());
        }
        self.each(PerfEvent::enable).map_err(Error::system("starting to sample"))
    }

    /// Stops sampling; when this returns, no more samples are taken.
    pub(super) fn disable(&self) -> Result<(), Error> {
        self.each(PerfEvent::disable).map_err(Error::system("stopping to sample"))
    }

    fn each(&self, act: impl Fn(&PerfEvent) -> io::Result<()>) -> io::Result<()> {
        self.cpus.iter().flat_map(|cpu| &cpu.events).try_for_each(act)
    }

    /// File descriptors that become readable when a ring is a quarter full.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let samples = self.cpus.iter().filter_map(|cpu| cpu.events.first()).map(PerfEvent::as_fd);
        samples.chain(self.sideband.descriptors())
    }

    /// Whether the events belong to threads, rather than to CPUs.
    pub(super) fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// The percentage of the time that the counters were counting, if less than all of it.
    pub(super) fn counter_share(&self) -> Option<u64> {
        let counts = self.cpus.iter().filter_map(CpuEvents::count);
        match self.has_threads {
            false => shared(counts),
            true => shared(of_threads(counts).into_iter()),
        }
    }

    /// Size of each CPU's ring, bytes.
    pub(super) fn ring_bytes(&self) -> usize {
        self.cpus.first().map_or(0, |cpu| cpu.ring.data_bytes())
    }
}

impl CpuEvents {
    fn open(template: &StackEvent, tid: Option<u32>, cpu: u32, ring_bytes: usize) -> io::Result<Self> {
        let event = PerfEvent::stacks(template, tid, cpu)?;
        let ring = PerfRing::new(&event, ring_bytes)?;
        Ok(Self { cpu, ring, events: vec![event], is_over: false })
    }

    /// Samples lost for lack of room, as the kernel counts them; `None` if it does not.
    pub(super) fn lost(&self) -> Option<u64> {
        self.events.iter().map(PerfEvent::lost).try_fold(0u64, |sum, lost| Some(sum.saturating_add(lost?)))
    }

    /// Sum of the counts of its events.
    fn count(&self) -> Option<Count> {
        self.events.iter().filter_map(PerfEvent::count).reduce(|sum, count| Count {
            value: sum.value + count.value,
            enabled_ns: sum.enabled_ns + count.enabled_ns,
            running_ns: sum.running_ns + count.running_ns,
        })
    }
}

/// Combines the counts of all CPUs of events that follow threads. Such an event is enabled while its thread runs on any
/// CPU, but only counts on its own CPU. So the running times add up, while the enabled time is the same on all CPUs;
/// the maximum is taken, since the kernel leaves out threads that never ran on a CPU. If many threads each stay on one
/// CPU, that is still too small, and sharing goes unnoticed.
fn of_threads(counts: impl Iterator<Item = Count>) -> Option<Count> {
    counts.reduce(|sum, count| Count {
        value: sum.value + count.value,
        enabled_ns: sum.enabled_ns.max(count.enabled_ns),
        running_ns: sum.running_ns + count.running_ns,
    })
}

/// Kilobytes that a user must be allowed to lock for each CPU: for a ring of samples, one of process events, and a page more for
/// each (`perf_mmap`, `kernel/events/core.c`).
fn mlock_kb(ring_bytes: usize) -> usize {
    ring_bytes.saturating_add(LARGE_RING_BYTES + 2 * rustix::param::page_size()).div_ceil(1024)
}

/// Translates the kernel's refusal.
fn refused(plan: &Plan, tid: u32, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::NoSuchProcess(tid),
        Some(libc::EACCES | libc::EPERM) => {
            Error::PerfEventRefused { action: "sample other users' processes", missing: "CAP_PERFMON" }
        }
        _ => plan.event.event.refused(0, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that threads running on other CPUs does not count as sharing, and that time missing from all CPUs does.
    #[test]
    fn threads_wait_on_other_cpus() {
        let count = |enabled_ns, running_ns| Count { value: running_ns, enabled_ns, running_ns };
        let share = |counts: &[Count]| shared(of_threads(counts.iter().copied()).into_iter());
        // Values read from four threads on two CPUs.
        assert_eq!(share(&[count(4_226_640, 2_733_774), count(3_218_590, 1_492_866)]), None);
        assert_eq!(share(&[count(4_226_640, 1_366_887), count(3_218_590, 746_433)]), Some(50));
        assert_eq!(share(&[]), None);
    }
}
