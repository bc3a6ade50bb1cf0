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

const N_COUNTERS: usize = types::counter::COUNT_LOST_NESTED.0 as usize + 1;
const _: () = assert!(offset_of!(types::cpu_control, tail).is_multiple_of(64), "written by user space alone");
const _: () = assert!(size_of::<types::cpu_control>().is_multiple_of(64), "whole cache lines");
const _: () = assert!(offset_of!(types::cpu_control, order).is_multiple_of(8), "read by words");
const MAX_PARTS: usize = types::limit::MAX_PARTS.0 as usize;

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
        let position = read(offset_of!(types::cpu_control, tail));
        Cursor { cpu, position, head }
    }

    /// Which part is the `turn`th that was taken.
    fn part(&self, cpu: u32, turn: u64) -> Option<u8> {
        let at = usize::try_from(turn).ok()? % MAX_PARTS;
        let word = self.control(cpu, offset_of!(types::cpu_control, order) + at / 8 * 8)?.load(Ordering::Relaxed);
        word.to_ne_bytes().get(at % 8).copied()
    }

    /// Goes past a record of `record_bytes`. The room stays the reader's until [`Rings::release`].
    pub(crate) fn advance(&self, cursor: &mut Cursor, record_bytes: usize) {
        let end = (cursor.position | (self.layout.part_bytes - 1)) + 1;
        // What lies behind a part's end belongs to no position.
        cursor.position = (cursor.position + record_bytes as u64).min(end);
        // A record of no bytes: the rest of the part was left empty. Below the head that was seen nothing else can lie
        // here but a whole record (`publish` in fpprof.bpf.c).
        if cursor.position < end && self.record(cursor).is_some_and(<[u8]>::is_empty) {
            cursor.position = end;
        }
    }

    /// The next record, from its head to its end; `None` at the end of what the cursor saw.
    pub(crate) fn record(&self, cursor: &Cursor) -> Option<&[u8]> {
        if cursor.position >= cursor.head {
            return None;
        }
        let part = self.part(cursor.cpu, cursor.position / self.layout.part_bytes)?;
        let offset = u64::from(cursor.cpu)
            .checked_mul(self.layout.value_bytes)?
            .checked_add(u64::from(part) * self.layout.part_stride + cursor.position % self.layout.part_bytes)?;
        let offset = usize::try_from(offset).ok()?;
        let length = self.data.bytes(offset, 4)?;
        let length = u32::from_ne_bytes(length.try_into().ok()?) as usize;
        self.data.bytes(offset, length)
    }

    /// Gives what lies before the cursor back to the CPU.
    pub(crate) fn release(&self, cursor: &Cursor) {
        let control = |offset| self.control(cursor.cpu, offset);
        let tail = control(offset_of!(types::cpu_control, tail));
        let given_back = control(offset_of!(types::cpu_control, given_back));
        let Some((tail, given_back)) = tail.zip(given_back) else { return };
        let turns = tail.load(Ordering::Relaxed) / self.layout.part_bytes..cursor.position / self.layout.part_bytes;
        let parts = turns.take(MAX_PARTS).filter_map(|turn| self.part(cursor.cpu, turn));
        let read = parts.fold(0, |read, part| read | 1_u64.wrapping_shl(u32::from(part)));
        if read != 0 {
            given_back.fetch_xor(read, Ordering::Release);
        }
        tail.store(cursor.position, Ordering::Release);
    }

    /// Room each CPU ever took, bytes: its records, but for what lay behind the ends of parts, and what it left of parts.
    pub(crate) fn produced(&self) -> impl Iterator<Item = u64> {
        self.cpus().map(|cpu| self.cursor(cpu).head)
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
