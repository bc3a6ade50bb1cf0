//! Equal samples of a block: the first is a row of the columns, and the others are counted in a column of their own.
//!
//! ```text
//! samples  A  B  A  A  C  B        rows     A B C
//!                                  repeats  A: 2 more, B: 1 more
//! ```
//!
//! Equal means that only time, ticks and weight may differ. The sum of the weights is kept, and time and ticks of each
//! CPU's last sample, which say how far the CPU had come if the recording breaks off.

use super::chains::ChainNumbers;
use super::varint::{Cursor, put, put_delta};
use crate::model::{CfiFrame, Sample};

/// A block is closed when what its rows are recognised by has this many words.
const MAX_KEY_WORDS: usize = 1 << 21;

/// The rows that later samples may repeat.
#[derive(Debug, Default)]
pub(super) struct Rows {
    keys: ChainNumbers,
    rows: Vec<Row>,
    key: Vec<u64>,
}

#[derive(Debug)]
struct Row {
    number: u32,
    time_ns: u64,
    fired: u64,
    weight: u64,
    repeats: u64,
    /// Sum of the weights of the repeats.
    weights: u64,
    /// Time and ticks of the last repeat, if it is the last sample of its CPU.
    last: Option<(u64, u64)>,
}

impl Rows {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.n_words() >= MAX_KEY_WORDS
    }

    /// Counts `sample` as a repeat of an equal one that is not older than `since_ns`; returns that row, or `None` if there
    /// is no such row.
    pub(super) fn repeat(&mut self, sample: &Sample, since_ns: u64) -> Option<usize> {
        if !is_comparable(sample) {
            return None;
        }
        self.key.clear();
        put_key(sample, &mut self.key);
        let index = usize::try_from(self.keys.number(&self.key)?).ok()?;
        let row = self.rows.get_mut(index)?;
        if !(since_ns..=sample.time_ns).contains(&row.time_ns) {
            return None;
        }
        row.repeats += 1;
        row.weights = row.weights.wrapping_add(sample.weight);
        row.last = Some((sample.time_ns, sample.cpu_fired));
        Some(index)
    }

    /// Adds a sample that is no repeat, row `number` of the block.
    pub(super) fn add(&mut self, sample: &Sample, number: u32) {
        if !is_comparable(sample) {
            return;
        }
        self.key.clear();
        put_key(sample, &mut self.key);
        self.keys.insert(&self.key);
        let Sample { time_ns, cpu_fired: fired, weight, .. } = *sample;
        self.rows.push(Row { number, time_ns, fired, weight, repeats: 0, weights: 0, last: None });
    }

    /// The row's CPU had a later sample than the row's last repeat.
    pub(super) fn pass(&mut self, row: usize) {
        if let Some(row) = self.rows.get_mut(row) {
            row.last = None;
        }
    }

    /// Encodes the repeats.
    pub(super) fn put(&self, column: &mut Vec<u8>) {
        let mut next = 0;
        for row in self.rows.iter().filter(|row| row.repeats > 0) {
            put(column, u64::from(row.number - next));
            next = row.number + 1;
            put(column, (row.repeats - 1) << 1 | u64::from(row.last.is_some()));
            put_delta(column, row.weights, row.weight.wrapping_mul(row.repeats));
            if let Some((time_ns, fired)) = row.last {
                put_delta(column, time_ns, row.time_ns);
                put_delta(column, fired, row.fired);
            }
        }
    }
}

/// Whether a sample may be or have a repeat: copied bytes are never the same.
fn is_comparable(sample: &Sample) -> bool {
    sample.stack.is_empty()
        && sample.stack_holes.is_empty()
        && sample.interrupted.is_none()
        && sample.shed_from.is_none()
}

/// Everything in which equal samples agree, preceded by the lengths.
fn put_key(sample: &Sample, key: &mut Vec<u64>) {
    let Sample { cpu, pid, tid, event, cpu_lost, in_kernel, in_exec, entering_kernel, withheld, .. } = *sample;
    let flags =
        [in_kernel, in_exec, entering_kernel, withheld].into_iter().fold(0, |bits, on| bits << 1 | u64::from(on));
    let lens = [sample.user_fp.len(), sample.cfi_frames.len(), sample.kernel.len()].map(|len| len as u64);
    let fp_end = sample.fp_end as u64;
    let cfi_end = sample.cfi_end.map_or(0, |end| end as u64 + 1);
    let ids = [u64::from(cpu), u64::from(pid), u64::from(tid), u64::from(event)];
    key.extend(lens.into_iter().chain(ids).chain([cpu_lost, flags, fp_end, cfi_end]));
    key.extend(sample.stack_end.map_or([0, 0], |end| [end.source as u64 + 1, end.address]));
    key.extend(sample.user_fp.iter().flat_map(|frame| [frame.address, frame.frame_address]));
    let how = |frame: &CfiFrame| (frame.found_by as u64) << 1 | u64::from(frame.is_instruction);
    key.extend(sample.cfi_frames.iter().flat_map(|frame| [frame.address, frame.cfa, how(frame)]));
    key.extend(&sample.kernel);
    if let Some(regs) = &sample.user_regs {
        key.push(regs.abi as u64);
        key.extend(regs.own());
    }
}

/// The repeats of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeats {
    /// Their number, at least 1.
    pub(super) n: u64,
    /// Sum of their weights, less that of the row for each.
    weights: u64,
    /// Time and ticks of the last one against those of the row, if it is the last sample of its CPU.
    last: Option<(u64, u64)>,
}

impl Repeats {
    /// Time of repeat `number`, from 1, of a row with this time.
    pub(super) fn time_ns(&self, number: u64, row_ns: u64) -> u64 {
        row_ns.wrapping_add(self.last.filter(|_| number == self.n).map_or(0, |(time_ns, _)| time_ns))
    }

    /// Turns `sample`, a copy of the row, into repeat `number`. The weights are the mean, and in the last one the rest.
    pub(super) fn apply(&self, number: u64, sample: &mut Sample) {
        sample.time_ns = self.time_ns(number, sample.time_ns);
        let weights = sample.weight.wrapping_mul(self.n).wrapping_add(self.weights);
        sample.weight = weights.checked_div(self.n).unwrap_or(0);
        if number == self.n {
            sample.weight = sample.weight.wrapping_add(weights.checked_rem(self.n).unwrap_or(0));
            sample.cpu_fired = sample.cpu_fired.wrapping_add(self.last.map_or(0, |(_, fired)| fired));
        }
    }
}

/// Decodes the repeats, row after row.
#[derive(Debug, Default)]
pub(super) struct RepeatsDecoder {
    /// Number of rows before the next one with repeats, and these.
    next: Option<(u64, Repeats)>,
}

impl RepeatsDecoder {
    /// The repeats of the next row; the inner `None` means that it has none.
    pub(super) fn of_next_row(&mut self, column: &mut Cursor<'_>) -> Option<Option<Repeats>> {
        if self.next.is_none() && !column.is_empty() {
            let before = column.varint()?;
            let n = column.varint()?;
            let weights = column.delta(0)?;
            let last = if n & 1 == 1 { Some((column.delta(0)?, column.delta(0)?)) } else { None };
            self.next = Some((before, Repeats { n: (n >> 1) + 1, weights, last }));
        }
        let Some((before, repeats)) = self.next else { return Some(None) };
        self.next = before.checked_sub(1).map(|before| (before, repeats));
        Some((before == 0).then_some(repeats))
    }

    /// Whether a row is still to come that has repeats.
    pub(super) fn is_awaiting(&self) -> bool {
        self.next.is_some()
    }
}
