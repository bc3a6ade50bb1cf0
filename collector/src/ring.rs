//! The reader's side of the rings of all CPUs.

use crate::bpf::{Layout, types};
use crate::decode::lost_in;
use crate::sys::SharedMap;
use fpprof_recording::model::Gap;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

/// The rings, one for each CPU from 0 on. CPUs that are offline have one that stays empty.
#[derive(Debug)]
pub(crate) struct Rings {
    data: SharedMap,
    controls: SharedMap,
    layout: Layout,
    n_cpus: u32,
}

/// The counters of one CPU, by `enum counter` of `abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters([u64; N_COUNTERS]);

const N_COUNTERS: usize = types::counter::COUNT_SHED.0 as usize + 1;
const _: () = assert!(offset_of!(types::cpu_control, tail).is_multiple_of(64), "written by user space alone");
const _: () = assert!(size_of::<types::cpu_control>().is_multiple_of(64), "whole cache lines");

impl Counters {
    pub(crate) fn get(&self, counter: types::counter) -> u64 {
        self.0.get(counter.0 as usize).copied().unwrap_or(0)
    }

    /// Sum of several.
    pub(crate) fn sum(&self, counters: &[types::counter]) -> u64 {
        counters.iter().map(|&counter| self.get(counter)).sum()
    }
}

/// Where in a ring reading has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    cpu: u32,
    position: u64,
    head: u64,
}

impl Cursor {
    /// Whose ring.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Goes past a record of `record_bytes`. The room stays the reader's until [`Rings::release`].
    pub(crate) fn advance(&mut self, record_bytes: usize) {
        self.position += record_bytes as u64;
    }

    /// Goes past everything.
    pub(crate) fn skip_all(&mut self) {
        self.position = self.head;
    }
}

impl Rings {
    pub(crate) fn new((data, controls): (SharedMap, SharedMap), layout: Layout, n_cpus: u32) -> Self {
        Self { data, controls, layout, n_cpus }
    }

    /// CPUs.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.n_cpus
    }

    fn control(&self, cpu: u32, offset: usize) -> Option<&std::sync::atomic::AtomicU64> {
        (cpu < self.n_cpus).then_some(())?;
        self.controls.word(cpu as usize * size_of::<types::cpu_control>() + offset)
    }

    /// All that is in the ring of `cpu` now.
    pub(crate) fn cursor(&self, cpu: u32) -> Cursor {
        let read = |offset| self.control(cpu, offset).map_or(0, |word| word.load(Ordering::Acquire));
        let head = read(offset_of!(types::cpu_control, head));
        Cursor { cpu, position: read(offset_of!(types::cpu_control, tail)), head }
    }

    /// The next record, from its head to its end; `None` at the end of what the cursor saw.
    pub(crate) fn record(&self, cursor: &Cursor) -> Option<&[u8]> {
        if cursor.position >= cursor.head {
            return None;
        }
        let offset = u64::from(cursor.cpu)
            .checked_mul(self.layout.value_bytes)?
            .checked_add(cursor.position & (self.layout.ring_bytes - 1))?;
        let offset = usize::try_from(offset).ok()?;
        let length = self.data.bytes(offset, 4)?;
        let length = u32::from_ne_bytes(length.try_into().ok()?) as usize;
        self.data.bytes(offset, length)
    }

    /// Gives what lies before the cursor back to the CPU.
    pub(crate) fn release(&self, cursor: &Cursor) {
        if let Some(tail) = self.control(cursor.cpu, offset_of!(types::cpu_control, tail)) {
            tail.store(cursor.position, Ordering::Release);
        }
    }

    /// Whether a ring is a quarter full: what was read last time was too young to be taken out, or much has come since.
    pub(crate) fn is_filling(&self) -> bool {
        self.cpus().any(|cpu| {
            let cursor = self.cursor(cpu);
            cursor.head.wrapping_sub(cursor.position) >= self.layout.ring_bytes / 4
        })
    }

    /// What a CPU has lost since its last sample. It is whole only while the CPU takes no sample.
    pub(crate) fn open_gaps(&self, cpu: u32) -> impl Iterator<Item = Gap> {
        let at = offset_of!(types::cpu_control, gaps);
        let offsets = (at..).step_by(8).take(3 * types::gap_cause::GAP_EXEC_WINDOW.0 as usize + 3);
        lost_in(
            cpu,
            offsets.map(move |offset| self.control(cpu, offset).map_or(0, |word| word.load(Ordering::Relaxed))),
        )
    }

    /// The counters of a CPU as they are now. They balance only while the CPU takes no sample.
    pub(crate) fn counters(&self, cpu: u32) -> Counters {
        let mut counters = [0; N_COUNTERS];
        for (i, counter) in counters.iter_mut().enumerate() {
            let offset = offset_of!(types::cpu_control, counters) + i * 8;
            *counter = self.control(cpu, offset).map_or(0, |word| word.load(Ordering::Relaxed));
        }
        Counters(counters)
    }
}
