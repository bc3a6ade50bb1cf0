//! The reader's side of the ring buffers of all CPUs.

use crate::bpf::{Layout, ProgramConfig, types};
use crate::sys::SharedMap;
use fpprof_recording::model::{Gap, LossCause};
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

/// Identity of a ring, which holds one CPU's samples of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingId {
    /// The CPU.
    pub(crate) cpu: u32,
    /// Index of the recording's event.
    pub(crate) event: u16,
}

/// The rings: one for each CPU from 0 on, then as many again for each further event. Rings of offline CPUs stay
/// empty. CPUs that came online after the rings were created have only counters.
#[derive(Debug)]
pub(crate) struct Rings {
    data: SharedMap,
    controls: SharedMap,
    layout: Layout,
    n_ring_cpus: u32,
    n_possible_cpus: u32,
    n_events: u16,
}

/// The counters of one CPU and event, by `enum counter` of `abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters([u64; N_COUNTERS]);

const N_COUNTERS: usize = types::counter::COUNT_PERIODS.0 as usize + 1;
const _: () = assert!(offset_of!(types::cpu_control, tail).is_multiple_of(64), "written by user space alone");
const _: () = assert!(size_of::<types::cpu_control>().is_multiple_of(64), "whole cache lines");
const _: () = assert!(offset_of!(types::cpu_control, order).is_multiple_of(8), "read by words");
const _: () = assert!(types::gap_cause::GAP_RING_FULL.0 == 0 && types::gap_cause::GAP_TABLE_FULL.0 == 1);
const _: () = assert!(types::gap_cause::GAP_NO_RING.0 == 2);
const _: () = assert!(size_of::<types::gap>() == 24, "first, last, number");
const N_GAP_CAUSES: usize = types::gap_cause::GAP_NO_RING.0 as usize + 1;
const MAX_SEGMENTS: usize = types::limit::MAX_SEGMENTS.0 as usize;

impl Counters {
    pub(crate) fn get(&self, counter: types::counter) -> u64 {
        self.0.get(counter.0 as usize).copied().unwrap_or(0)
    }

    /// Sum of several counters.
    pub(crate) fn sum(&self, counters: &[types::counter]) -> u64 {
        counters.iter().map(|&counter| self.get(counter)).sum()
    }
}

/// Reading position in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    ring_id: RingId,
    position: u64,
    head: u64,
}

impl Cursor {
    /// The cursor's ring.
    pub(crate) fn ring_id(&self) -> RingId {
        self.ring_id
    }

    /// Skips everything up to the head.
    pub(crate) fn skip_all(&mut self) {
        self.position = self.head;
    }
}

impl Rings {
    /// The rings of programs loaded with `spec`.
    pub(crate) fn new((data, controls): (SharedMap, SharedMap), spec: &ProgramConfig) -> Self {
        let (n_ring_cpus, n_possible_cpus) = (spec.n_ring_cpus, spec.n_possible_cpus);
        Self { data, controls, layout: spec.layout, n_ring_cpus, n_possible_cpus, n_events: spec.n_events() }
    }

    /// IDs of all rings.
    pub(crate) fn ring_ids(&self) -> impl Iterator<Item = RingId> + use<> {
        ring_ids(self.n_ring_cpus, self.n_events)
    }

    /// IDs of all sets of counters: for each CPU that can ever come online.
    pub(crate) fn counted_ring_ids(&self) -> impl Iterator<Item = RingId> + use<> {
        ring_ids(self.n_possible_cpus, self.n_events)
    }

    fn control(&self, ring_id: RingId, offset: usize) -> Option<&std::sync::atomic::AtomicU64> {
        let number = number_among(ring_id, self.n_possible_cpus, self.n_events)?;
        self.controls.word(number * size_of::<types::cpu_control>() + offset)
    }

    /// A cursor over everything in the ring now.
    pub(crate) fn cursor(&self, ring_id: RingId) -> Cursor {
        let read = |offset| self.control(ring_id, offset).map_or(0, |word| word.load(Ordering::Acquire));
        let head = read(offset_of!(types::cpu_control, head));
        let position = read(offset_of!(types::cpu_control, tail));
        Cursor { ring_id, position, head }
    }

    /// The segment with this sequence number, in the order in which the CPU took them.
    fn segment(&self, ring_id: RingId, sequence: u64) -> Option<u8> {
        let at = usize::try_from(sequence).ok()? % MAX_SEGMENTS;
        let word = self.control(ring_id, offset_of!(types::cpu_control, order) + at / 8 * 8)?.load(Ordering::Relaxed);
        word.to_ne_bytes().get(at % 8).copied()
    }

    /// Moves past a record of `record_bytes`. Its room stays the reader's until [`Rings::release`].
    pub(crate) fn advance(&self, cursor: &mut Cursor, record_bytes: usize) {
        let end = (cursor.position | (self.layout.segment_bytes - 1)) + 1;
        // Slack after a segment's end belongs to no position.
        cursor.position = (cursor.position + record_bytes as u64).min(end);
        // An empty record: the rest of the segment was left unused. Below the observed head, only whole records can be
        // here (`publish` in fpprof.bpf.c).
        if cursor.position < end && self.record(cursor).is_some_and(<[u8]>::is_empty) {
            cursor.position = end;
        }
    }

    /// The next record, header included; `None` at the head that the cursor saw.
    pub(crate) fn record(&self, cursor: &Cursor) -> Option<&[u8]> {
        if cursor.position >= cursor.head {
            return None;
        }
        let segment = self.segment(cursor.ring_id, cursor.position / self.layout.segment_bytes)?;
        let first = (number_among(cursor.ring_id, self.n_ring_cpus, self.n_events)? as u64)
            .checked_mul(self.layout.n_segments)?;
        let offset = (first + u64::from(segment))
            .checked_mul(self.layout.value_bytes)?
            .checked_add(cursor.position % self.layout.segment_bytes)?;
        let offset = usize::try_from(offset).ok()?;
        let length = self.data.bytes(offset, 4)?;
        let length = u32::from_ne_bytes(length.try_into().ok()?) as usize;
        self.data.bytes(offset, length)
    }

    /// Returns the room before the cursor to the CPU.
    pub(crate) fn release(&self, cursor: &Cursor) {
        let control = |offset| self.control(cursor.ring_id, offset);
        let tail = control(offset_of!(types::cpu_control, tail));
        let given_back = control(offset_of!(types::cpu_control, given_back));
        let Some((tail, given_back)) = tail.zip(given_back) else { return };
        let (first, end) = (tail.load(Ordering::Relaxed), cursor.position);
        let read = first / self.layout.segment_bytes..end / self.layout.segment_bytes;
        let segments = read.take(MAX_SEGMENTS).filter_map(|sequence| self.segment(cursor.ring_id, sequence));
        let read = segments.fold(0, |read, segment| read | 1_u64.wrapping_shl(u32::from(segment)));
        if read != 0 {
            given_back.fetch_xor(read, Ordering::Release);
        }
        tail.store(cursor.position, Ordering::Release);
    }

    /// Total bytes each ring has taken: records, except for their parts in slack, and unused rests of segments.
    pub(crate) fn produced(&self) -> impl Iterator<Item = u64> {
        self.ring_ids().map(|ring_id| self.cursor(ring_id).head)
    }

    /// Losses since a ring's last sample. Complete only while no sample is taken.
    pub(crate) fn open_gaps(&self, ring_id: RingId) -> impl Iterator<Item = Gap> {
        let at = offset_of!(types::cpu_control, gaps);
        let offsets = (at..).step_by(8).take(3 * N_GAP_CAUSES);
        lost_in(
            ring_id,
            offsets.map(move |offset| self.control(ring_id, offset).map_or(0, |word| word.load(Ordering::Relaxed))),
        )
    }

    /// The current counters of a CPU and event. They only balance while no sample is taken.
    pub(crate) fn counters(&self, ring_id: RingId) -> Counters {
        let mut counters = [0; N_COUNTERS];
        for (i, counter) in counters.iter_mut().enumerate() {
            let offset = offset_of!(types::cpu_control, counters) + i * 8;
            *counter = self.control(ring_id, offset).map_or(0, |word| word.load(Ordering::Relaxed));
        }
        Counters(counters)
    }
}

fn ring_ids(n_cpus: u32, n_events: u16) -> impl Iterator<Item = RingId> {
    (0..n_events).flat_map(move |event| (0..n_cpus).map(move |cpu| RingId { cpu, event }))
}

/// Index among the rings of all CPUs and events, as the BPF programs number them.
fn number_among(ring_id: RingId, n_cpus: u32, n_events: u16) -> Option<usize> {
    (ring_id.cpu < n_cpus && ring_id.event < n_events).then_some(())?;
    (usize::from(ring_id.event) * n_cpus as usize).checked_add(ring_id.cpu as usize)
}

/// The gaps of a ring as its CPU records them, three words for each cause.
pub(crate) fn lost_in(ring_id: RingId, mut words: impl Iterator<Item = u64>) -> impl Iterator<Item = Gap> {
    let causes = [LossCause::RingFull, LossCause::TableFull, LossCause::NoRing].into_iter();
    let RingId { cpu, event } = ring_id;
    let gap = move |cause| {
        let (start_ns, end_ns, lost) = (words.next()?, words.next()?, words.next()?);
        Some(Gap { cpu, event, start_ns, end_ns, lost, cause })
    };
    causes.filter_map(gap).filter(|gap| gap.lost > 0)
}
