//! The perf events that report what processes do, and their rings.

use super::allowance::Allowance;
use super::order::{Orderer, to_event};
use super::parse::{Body, Records};
use super::throttling::Throttling;
use crate::error::Error;
use crate::sys::{PerfEvent, PerfRing, Poller};
use fpprof_recording::model::{Sideband, SidebandLoss};
use std::os::fd::{AsFd, BorrowedFd};

/// Ring size of one CPU: what an ordinary user may lock (`kernel.perf_event_mlock_kb`, 516 with the
/// control page).
const RING_BYTES: usize = 512 << 10;
/// Ring size if few CPUs have to share a storm of new processes, and the kernel allows it.
pub(crate) const LARGE_RING_BYTES: usize = 2 << 20;
/// The most CPUs for that.
const FEW_CPUS: usize = 16;
/// Ring size with many CPUs, so that the rings of up to 256 CPUs take at most [`TOTAL_BYTES`].
const SMALL_RING_BYTES: usize = 128 << 10;
/// The most CPUs with larger rings.
const MANY_CPUS: usize = 64;
/// Total ring size of 16, 64 or 256 CPUs.
pub(crate) const TOTAL_BYTES: u64 = 32 << 20;
const _: () = assert!(FEW_CPUS * LARGE_RING_BYTES == 32 << 20 && MANY_CPUS * RING_BYTES == 32 << 20);

/// The process events of all CPUs.
#[derive(Debug)]
pub(crate) struct SidebandSource {
    cpus: Vec<CpuSource>,
    orderer: Orderer,
    allowance: Allowance,
    lost: SidebandLoss,
    /// Lost records, as counted by the kernel.
    counted: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct CpuSource {
    cpu: u32,
    /// Declared first, to be dropped before the events it belongs to.
    ring: PerfRing,
    event: PerfEvent,
    /// Events of further threads, which write into the same ring.
    others: Vec<PerfEvent>,
    throttling: Throttling,
}

/// A period in which the kernel did not let a CPU's event fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttled {
    pub(crate) cpu: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl SidebandSource {
    /// Opens the events of `cpus`, disabled.
    pub(crate) fn open(cpus: &[u32]) -> Result<Self, Error> {
        let opened = cpus.iter().map(|&cpu| CpuSource::open(cpu, cpus.len())).collect::<Result<_, _>>()?;
        Ok(Self::new(opened))
    }

    fn new(cpus: Vec<CpuSource>) -> Self {
        Self {
            cpus,
            orderer: Orderer::default(),
            allowance: Allowance::default(),
            lost: SidebandLoss::default(),
            counted: 0,
            bytes: Vec::new(),
        }
    }

    /// Opens the events of one thread and its future descendants, disabled, with rings of `ring_bytes`.
    pub(crate) fn open_thread(tid: u32, cpus: &[u32], ring_bytes: usize) -> std::io::Result<Self> {
        let open = |&cpu: &u32| {
            let event = PerfEvent::thread_sideband(tid, cpu, wakeup_bytes(ring_bytes))?;
            CpuSource::with_ring(cpu, event, ring_bytes)
        };
        let cpus = cpus.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self::new(cpus))
    }

    /// Adds a thread to those of [`Self::open_thread`].
    pub(crate) fn add_thread(&mut self, tid: u32) -> std::io::Result<()> {
        for source in &mut self.cpus {
            // It writes into the first event's ring, whose watermark counts.
            let event = PerfEvent::thread_sideband(tid, source.cpu, wakeup_bytes(RING_BYTES))?;
            event.set_output(&source.event)?;
            source.others.push(event);
        }
        Ok(())
    }

    /// Makes a sampling event report throttling into its CPU's ring.
    pub(crate) fn attach_sampler(&self, cpu: u32, event: &PerfEvent) -> Result<(), Error> {
        let Some(source) = self.cpus.iter().find(|source| source.cpu == cpu) else { return Ok(()) };
        event.set_output(&source.event).map_err(Error::system("redirecting a sampling event"))
    }

    /// Opens and starts the event of a CPU that has come online, in place of an earlier one. What was left in the
    /// earlier one is read.
    pub(crate) fn reopen(&mut self, cpu: u32, poller: &Poller) -> Result<(), Error> {
        let new = CpuSource::open(cpu, self.cpus.len())?;
        poller.add(new.event.as_fd()).map_err(Error::system("waiting for process events"))?;
        new.event.enable().map_err(Error::system("enabling process events"))?;
        if let Some(old) = self.cpus.iter_mut().find(|source| source.cpu == cpu) {
            self.bytes.clear();
            old.ring.drain(&mut self.bytes);
            old.take(&self.bytes, &mut self.orderer, &mut self.allowance, &mut self.lost);
            let mut throttling = std::mem::take(&mut old.throttling);
            throttling.give_up();
            *old = CpuSource { throttling, ..new };
        } else {
            self.cpus.push(new);
        }
        Ok(())
    }

    /// Starts reporting.
    pub(crate) fn enable(&self) -> Result<(), Error> {
        self.each(PerfEvent::enable).map_err(Error::system("enabling process events"))
    }

    /// Stops reporting.
    pub(crate) fn disable(&self) -> Result<(), Error> {
        self.each(PerfEvent::disable).map_err(Error::system("disabling process events"))
    }

    fn each(&self, act: impl Fn(&PerfEvent) -> std::io::Result<()>) -> std::io::Result<()> {
        self.cpus.iter().try_for_each(|source| {
            act(&source.event)?;
            source.others.iter().try_for_each(&act)
        })
    }

    /// File descriptors that become readable when a ring passes its watermark.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|source| source.event.as_fd())
    }

    /// Reads all rings and appends the events up to `cut_ns`, ordered by time.
    pub(crate) fn drain(&mut self, cut_ns: u64, events: &mut Vec<Sideband>) {
        for source in &mut self.cpus {
            self.bytes.clear();
            source.ring.drain(&mut self.bytes);
            source.take(&self.bytes, &mut self.orderer, &mut self.allowance, &mut self.lost);
        }
        self.allowance.end_read().filter_map(to_event).for_each(|event| self.orderer.push(event));
        self.orderer.release(cut_ns, events);
    }

    /// Asks the kernel how many records were lost. The ring reports losses only with the next record that fits, if
    /// there is one.
    pub(crate) fn count_lost(&mut self) {
        let events = self.cpus.iter().flat_map(|source| std::iter::once(&source.event).chain(&source.others));
        let counted = events.filter_map(PerfEvent::lost).fold(0, u64::saturating_add);
        // An event that was reopened starts at 0.
        self.counted = self.counted.max(counted);
    }

    /// Records lost for lack of room.
    pub(crate) fn lost(&self) -> SidebandLoss {
        SidebandLoss { events: self.lost.events.max(self.counted), ..self.lost }
    }

    /// Mappings not reported because their processes made too many.
    pub(crate) fn n_not_in_full(&self) -> u64 {
        self.allowance.n_not_in_full()
    }

    /// Names of threads not reported because their processes renamed them too often.
    pub(crate) fn n_names_left_out(&self) -> u64 {
        self.allowance.n_names_left_out()
    }

    /// Periods of throttling that ended since the last call.
    pub(crate) fn take_throttled(&mut self) -> impl Iterator<Item = Throttled> + '_ {
        self.cpus.iter_mut().flat_map(|source| {
            let cpu = source.cpu;
            source.throttling.take_ended().map(move |(start_ns, end_ns)| Throttled { cpu, start_ns, end_ns })
        })
    }

    /// Periods that have not ended at `now_ns`.
    pub(crate) fn throttled_now(&self, now_ns: u64) -> impl Iterator<Item = Throttled> + '_ {
        self.cpus.iter().filter_map(move |CpuSource { cpu, throttling, .. }| {
            let start_ns = throttling.open_since_ns()?;
            Some(Throttled { cpu: *cpu, start_ns, end_ns: now_ns.max(start_ns) })
        })
    }
}

/// Bytes in a ring that wake the reader: a quarter of it, or of the default size.
fn wakeup_bytes(ring_bytes: usize) -> u32 {
    u32::try_from(ring_bytes.min(RING_BYTES) / 4).unwrap_or(u32::MAX)
}

impl CpuSource {
    fn open(cpu: u32, n_cpus: usize) -> Result<Self, Error> {
        let open = |ring_bytes| {
            let event = PerfEvent::sideband(cpu, wakeup_bytes(ring_bytes))?;
            Self::with_ring(cpu, event, ring_bytes)
        };
        let large = (n_cpus <= FEW_CPUS).then(|| open(LARGE_RING_BYTES).ok()).flatten();
        let usual = if n_cpus > MANY_CPUS { SMALL_RING_BYTES } else { RING_BYTES };
        large.map_or_else(|| open(usual), Ok).map_err(|source| Error::PerfEvent {
            event: "dummy (process events)".to_owned(),
            cpu,
            source,
        })
    }

    fn with_ring(cpu: u32, event: PerfEvent, ring_bytes: usize) -> std::io::Result<Self> {
        let ring = PerfRing::new(&event, ring_bytes)?;
        Ok(Self { cpu, ring, event, others: Vec::new(), throttling: Throttling::default() })
    }

    fn take(&mut self, bytes: &[u8], orderer: &mut Orderer, allowance: &mut Allowance, lost: &mut SidebandLoss) {
        for record in (Records { bytes }) {
            // Cheaper than parsing it: there may be tens of thousands a second.
            if record.data_mapping().is_some_and(|(pid, time_ns)| allowance.leaves_out(pid, time_ns)) {
                continue;
            }
            match record.body() {
                Body::Lost(events) => {
                    lost.records += 1;
                    lost.events = lost.events.saturating_add(events);
                    // The end of the period may be among them. It lasts for a tick, and else would last until the next one.
                    self.throttling.give_up();
                }
                Body::Throttle { time_ns } => self.throttling.begin(time_ns),
                Body::Unthrottle { time_ns } => self.throttling.end(time_ns),
                body => allowance.apply(body).and_then(to_event).into_iter().for_each(|event| orderer.push(event)),
            }
        }
    }
}
