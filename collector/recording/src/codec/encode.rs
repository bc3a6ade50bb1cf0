//! Encodes samples as columns.

use super::cfi::{self, HAS_INTERRUPTED, MAX_CFI_FRAMES};
use super::chains::ChainNumbers;
use super::columns::Columns;
use super::memory::{MAX_PAGES, Memory, PAGE_BYTES, Page, by_page, readable, set_word_at, split, word_at};
use super::repeats::Rows;
use super::state::{
    CpuState, FP_ENDS, LONG_RUN, MAX_CHAIN_FRAMES, MAX_HOLES, MAX_STACK_BYTES, MAX_THREADS, MAX_VALUE_BYTES,
    PredictedChain, RUN_BITS, STACK_END_SOURCES, ThreadState, flag, value_bytes,
};
use super::varint::{put, put_delta};
use super::words::{Place, WordNumbers};
use crate::error::Error;
use crate::mapping_ranges::MappingRanges;
use crate::model::{Abi, CfiEnd, ChunkHole, FpFrame, Interrupted, Machine, Sample, StackEnd, UserRegs};
use crate::scrub::Scrubber;
use rustc_hash::FxHashMap;

/// If there are registers but no chunk (mode `fp` of aarch64), this much above the stack pointer counts as stack: most
/// frame pointers are there, and a stack that grew has no known mapping.
const NEAR_STACK_BYTES: u64 = 1 << 16;
/// How far above the stack pointer words of 32-bit code may point into the stack, the usual limit of a stack. Other
/// words may only point to code, and the mapping that contains the stack may be far larger.
const NARROW_STACK_BYTES: u64 = 8 << 20;

/// Collects the samples of one block.
#[derive(Debug)]
pub(crate) struct SampleEncoder {
    machine: Machine,
    columns: Columns,
    /// By CPU and event: values of one event are closer together than those of one CPU.
    cpus: FxHashMap<(u32, u16), usize>,
    cpu_states: Vec<CpuState>,
    threads: FxHashMap<(u32, u32), usize>,
    thread_states: Vec<ThreadState>,
    words: WordNumbers,
    memory: Memory,
    chains: ChainNumbers,
    chain: Vec<u64>,
    changes: Vec<(u64, u64)>,
    /// Number of rows.
    items: u32,
    rows: Rows,
    /// Number of samples that are no rows, since they repeat one.
    repeats: u32,
    /// Number of rows up to and including the last one whose chunk was shortened by load shedding.
    shed_items: u32,
    /// The same for the last one with an interrupted stack.
    interrupted_items: u32,
    /// The same for the last one with a walk by call frame information.
    cfi_items: u32,
    value_bytes: u64,
}

/// One chunk of a sample.
struct Copied<'a> {
    pid: u32,
    start: u64,
    bytes: &'a [u8],
    holes: &'a [ChunkHole],
}

impl Copied<'_> {
    fn range(&self) -> (u64, u64) {
        (self.start, self.start.saturating_add(self.bytes.len() as u64))
    }
}

impl SampleEncoder {
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            machine,
            columns: Columns::default(),
            cpus: FxHashMap::default(),
            cpu_states: Vec::new(),
            threads: FxHashMap::default(),
            thread_states: Vec::new(),
            words: WordNumbers::new(),
            memory: Memory::default(),
            chains: ChainNumbers::default(),
            chain: Vec::new(),
            changes: Vec::new(),
            items: 0,
            rows: Rows::default(),
            repeats: 0,
            shed_items: 0,
            interrupted_items: 0,
            cfi_items: 0,
            value_bytes: 0,
        }
    }

    /// Number of samples since the last [`Self::clear`].
    pub(crate) fn items(&self) -> u32 {
        self.items + self.repeats
    }

    /// Current size of the payload.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// The columns with their names, for measurements.
    pub(crate) fn columns(&mut self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.put_repeats();
        Columns::NAMES.iter().copied().zip(self.columns.all())
    }

    /// Number of samples in the block by event and CPU.
    pub(crate) fn samples_by_cpu(&self) -> impl Iterator<Item = ((u16, u32), u64)> + '_ {
        self.cpu_states.iter().map(|state| ((state.event, state.cpu), state.samples))
    }

    /// Whether the block must be closed before `sample`.
    pub(crate) fn is_full_for(&self, sample: &Sample) -> bool {
        let interrupted_bytes = sample.interrupted.as_ref().map_or(0, |interrupted| interrupted.stack.len());
        self.memory.len() + (sample.stack.len() + interrupted_bytes) / PAGE_BYTES + 4 > MAX_PAGES
            || (self.items > 0 && self.value_bytes + value_bytes(sample) > MAX_VALUE_BYTES)
            || self.thread_states.len() >= MAX_THREADS
            || self.cpu_states.len() >= MAX_THREADS
            || self.rows.is_full()
    }

    /// The parts of the payload.
    pub(crate) fn parts(&mut self) -> impl AsRef<[&[u8]]> {
        self.put_repeats();
        self.columns.all()
    }

    fn put_repeats(&mut self) {
        self.columns.repeats.clear();
        self.rows.put(&mut self.columns.repeats);
    }

    /// Starts the next block, reusing the memory.
    pub(crate) fn clear(&mut self) {
        self.columns.clear();
        self.cpus.clear();
        self.cpu_states.clear();
        self.threads.clear();
        self.thread_states.clear();
        self.words.clear();
        self.memory.clear();
        self.chains.clear();
        self.items = 0;
        self.rows.clear();
        self.repeats = 0;
        self.shed_items = 0;
        self.interrupted_items = 0;
        self.cfi_items = 0;
        self.value_bytes = 0;
    }

    /// Adds a sample; on an error, nothing is added. If it repeats one that is not older than `since_ns`, it is only
    /// counted.
    pub(crate) fn push(
        &mut self,
        sample: &Sample,
        ranges: Option<&MappingRanges>,
        since_ns: Option<u64>,
    ) -> Result<(), Error> {
        check(sample, self.machine)?;
        if since_ns.is_some_and(|since_ns| self.repeat(sample, since_ns)) {
            return Ok(());
        }
        self.push_row(sample, ranges);
        if since_ns.is_some() {
            self.rows.add(sample, self.items - 1);
        }
        Ok(())
    }

    /// Counts a sample that repeats a row not older than `since_ns`; returns whether there is such a row.
    fn repeat(&mut self, sample: &Sample, since_ns: u64) -> bool {
        let Some(row) = self.rows.repeat(sample, since_ns) else { return false };
        self.repeats += 1;
        self.value_bytes += value_bytes(sample);
        let number = self.cpus.get(&(sample.cpu, sample.event));
        if let Some(state) = number.and_then(|&number| self.cpu_states.get_mut(number)) {
            state.samples += 1;
            state.repeated.replace(row).filter(|&before| before != row).into_iter().for_each(|row| self.rows.pass(row));
        }
        true
    }

    fn push_row(&mut self, sample: &Sample, ranges: Option<&MappingRanges>) {
        let start = sample.stack_start();
        let abi = sample.user_regs.map(|regs| regs.abi);
        let needs_stack = self.machine.arch.lr().is_some() || abi == Some(Abi::Bits32);
        let has_regs_alone = sample.stack.is_empty() && abi.is_some() && needs_stack;
        let stack_bytes = if has_regs_alone { NEAR_STACK_BYTES } else { sample.stack.len() as u64 };
        let chunk = (start, start.saturating_add(stack_bytes));
        let mask = self.machine.return_address_mask;
        let interrupted = sample.interrupted.as_ref();
        let other = interrupted.map_or((0, 0), |interrupted| copied_of(sample.pid, interrupted).range());
        let of_chunk = |(start, chunk_end): (u64, u64), other, sp, below, end: Option<StackEnd>| {
            let stack_end = end.filter(|_| abi == Some(Abi::Bits32)).map_or(0, |end| end.address);
            let chunk = (start, chunk_end.max(stack_end.min(start.saturating_add(NARROW_STACK_BYTES))));
            let scrubber = Scrubber::new(ranges, chunk, abi, mask).with_other(other);
            if below == 0 { scrubber } else { scrubber.with_red_zone(sp, end.map(|end| end.address)) }
        };
        let sp = sample.user_regs.map_or(0, |regs| regs.sp());
        let scrubber = of_chunk(chunk, other, sp, sample.bytes_below_sp, sample.stack_end);
        let regs = sample.user_regs.map(|mut regs| {
            scrubber.regs(&mut regs);
            regs
        });
        self.value_bytes += value_bytes(sample);
        self.items += 1;
        let mut flags = 0;
        let mut set = |bit: u8, on: bool| flags |= if on { bit } else { 0 };
        set(flag::IN_KERNEL, sample.in_kernel);
        set(flag::REGS, regs.is_some());
        set(flag::BITS32_OR_IN_EXEC, regs.map_or(sample.in_exec, |regs| regs.abi == Abi::Bits32));
        set(flag::STACK, !sample.stack.is_empty());
        set(flag::HOLES, has_holes_column(sample));
        set(flag::FP, !sample.user_fp.is_empty() || sample.fp_end != Default::default());
        set(flag::EVENT, self.cpu(sample));
        let thread = self.thread(sample.pid, sample.tid);
        set(flag::STACK_END, self.stack_end(thread, sample.stack_end));
        self.columns.flags.push(flags);
        if let Some(regs) = &regs {
            self.registers(thread, regs, chunk);
        }
        self.stack(sample, &scrubber);
        if let Some(own) = interrupted {
            let scrubber = of_chunk(other, chunk, own.sp, own.bytes_below_sp, own.stack_end);
            self.interrupted(sample, own, &scrubber);
        }
        self.user_fp(sample, regs, &scrubber);
        self.chain.clear();
        self.chain.extend_from_slice(&sample.kernel);
        let id = self.intern_chain();
        put(&mut self.columns.kernel_chain, id);
        self.shed(sample);
        self.cfi(thread, sample);
    }

    /// Encodes CPU, event, weight and counters; returns whether event or weight changed.
    fn cpu(&mut self, sample: &Sample) -> bool {
        let columns = &mut self.columns;
        let next = self.cpu_states.len();
        let number = *self.cpus.entry((sample.cpu, sample.event)).or_insert(next);
        put(&mut columns.cpu, number as u64);
        if number == next {
            put(&mut columns.new_cpus, u64::from(sample.cpu));
            self.cpu_states.push(CpuState { cpu: sample.cpu, ..CpuState::default() });
        }
        let Some(state) = self.cpu_states.get_mut(number) else { return false };
        state.repeated.into_iter().for_each(|row| self.rows.pass(row));
        let step = sample.time_ns.wrapping_sub(state.time);
        put_delta(&mut columns.time, step, state.time_step);
        put_delta(&mut columns.counters, sample.cpu_fired, state.fired);
        put_delta(&mut columns.counters, sample.cpu_lost, state.lost);
        let changed = (sample.event, sample.weight) != (state.event, state.weight);
        if changed {
            put(&mut columns.event, u64::from(sample.event));
            put_delta(&mut columns.event, sample.weight, state.weight);
        }
        *state = CpuState {
            cpu: sample.cpu,
            time: sample.time_ns,
            time_step: step,
            fired: sample.cpu_fired,
            lost: sample.cpu_lost,
            event: sample.event,
            weight: sample.weight,
            samples: state.samples + 1,
            repeated: None,
        };
        changed
    }

    fn thread(&mut self, pid: u32, tid: u32) -> usize {
        let next = self.thread_states.len();
        let number = *self.threads.entry((pid, tid)).or_insert(next);
        put(&mut self.columns.thread, number as u64);
        if number == next {
            put(&mut self.columns.new_threads, u64::from(pid));
            put_delta(&mut self.columns.new_threads, u64::from(tid), u64::from(pid));
            self.thread_states.push(ThreadState::new(pid, tid));
        }
        number
    }

    /// Encodes the end of the stack if it changed; returns whether it did.
    fn stack_end(&mut self, thread: usize, end: Option<StackEnd>) -> bool {
        let Some(state) = self.thread_states.get_mut(thread).filter(|state| state.stack_end != end) else {
            return false;
        };
        put_stack_end(&mut self.columns.stack_end, end, state.stack_end.map_or(0, |old| old.address));
        state.stack_end = end;
        true
    }

    fn registers(&mut self, thread: usize, regs: &UserRegs, chunk: (u64, u64)) {
        let Some(state) = self.thread_states.get_mut(thread) else { return };
        let mut mask = 0;
        let sp = self.machine.arch.sp();
        let sp_first = [sp].into_iter().chain((0..self.machine.arch.n_registers()).filter(|&number| number != sp));
        for number in sp_first {
            let (Some(&new), Some(old)) = (regs.values.get(number), state.regs.get_mut(number)) else { continue };
            if new != *old {
                mask |= 1u64 << number;
                let place = if number == sp { Place::NOWHERE } else { Place { address: regs.sp(), chunk } };
                self.words.put(&mut self.columns.registers, &mut self.columns.literals, new, place);
                *old = new;
            }
        }
        put(&mut self.columns.register_mask, mask);
    }

    fn stack(&mut self, sample: &Sample, scrubber: &Scrubber<'_>) {
        if has_holes_column(sample) {
            put_holes(&mut self.columns.holes, &sample.stack_holes);
        }
        if sample.stack.is_empty() {
            return;
        }
        let Sample { pid, stack: bytes, stack_holes: holes, .. } = sample;
        let part = Copied { pid: *pid, start: sample.stack_start(), bytes, holes };
        put_len(&mut self.columns.stack_len, &part, sample.stack_end);
        self.columns.below_sp.push(sample.bytes_below_sp);
        self.copied(&part, scrubber);
    }

    /// Encodes the interrupted stack, which few samples have.
    fn interrupted(&mut self, sample: &Sample, own: &Interrupted, scrubber: &Scrubber<'_>) {
        let column = &mut self.columns.interrupted;
        put(column, u64::from(self.items - self.interrupted_items) - 1);
        self.interrupted_items = self.items;
        let part = copied_of(sample.pid, own);
        put_delta(column, own.sp, sample.user_regs.map_or(0, |regs| regs.sp()));
        column.push(own.bytes_below_sp);
        put_stack_end(column, own.stack_end, own.sp);
        put_len(column, &part, own.stack_end);
        put_holes(column, part.holes);
        self.copied(&part, scrubber);
    }

    /// Encodes the words of a chunk that differ from the previous contents of the process's memory.
    fn copied(&mut self, chunk: &Copied<'_>, scrubber: &Scrubber<'_>) {
        self.changes.clear();
        for part in readable(chunk.bytes.len(), chunk.holes) {
            let address = chunk.start.wrapping_add(part.start as u64);
            let bytes = chunk.bytes.get(part).unwrap_or(&[]);
            for (address, range) in by_page(address, bytes.len()) {
                let (number, offset) = split(address);
                let bytes = bytes.get(range).unwrap_or(&[]);
                if let Some(page) = self.memory.page_mut(chunk.pid, number) {
                    let base = address.wrapping_sub(offset as u64);
                    diff(page, base, offset, bytes, scrubber, &mut self.changes);
                }
            }
        }
        self.put_changes((chunk.start, chunk.start.wrapping_add(chunk.bytes.len() as u64)));
    }

    fn put_changes(&mut self, chunk: (u64, u64)) {
        let columns = &mut self.columns;
        let mut expected = chunk.0 & !7;
        let mut runs = 0;
        for run in self.changes.chunk_by(|a, b| a.0.wrapping_add(8) == b.0) {
            let (Some(&(first, _)), Some(&(last, _))) = (run.first(), run.last()) else { continue };
            let (gap, longer) = (first.wrapping_sub(expected) / 8, run.len() as u64 - 1);
            put(&mut columns.runs, gap << RUN_BITS | longer.min(LONG_RUN));
            if longer >= LONG_RUN {
                put(&mut columns.long_runs, longer - LONG_RUN);
            }
            for &(address, word) in run {
                let place = Place { address, chunk };
                self.words.put(&mut columns.stack_words, &mut columns.literals, word, place);
            }
            expected = last.wrapping_add(8);
            runs += 1;
        }
        put(&mut columns.n_runs, runs);
    }

    /// Encodes the frame-pointer chain. Frames that the reader can predict from the written stack are only counted; the
    /// other addresses are interned, since the same chains recur. The number and the end share one varint.
    fn user_fp(&mut self, sample: &Sample, regs: Option<UserRegs>, scrubber: &Scrubber<'_>) {
        if sample.user_fp.is_empty() && sample.fp_end == Default::default() {
            return;
        }
        let fp_end = FP_ENDS.iter().position(|&end| end == sample.fp_end).unwrap_or(0);
        let scrubbed = |(number, frame): (usize, &FpFrame)| FpFrame {
            address: if number == 0 { frame.address } else { scrubber.word(frame.address) },
            frame_address: scrubber.word(frame.frame_address),
        };
        let frames = || sample.user_fp.iter().enumerate().map(scrubbed);
        let memory = &self.memory;
        let mask = self.machine.return_address_mask;
        let predicted = PredictedChain::new(sample, regs, mask, |address| memory.word(sample.pid, address))
            .zip(frames())
            .take_while(|(predicted, frame)| predicted == frame)
            .count();
        put(&mut self.columns.fp_predicted, (predicted * FP_ENDS.len() + fp_end) as u64);
        self.chain.clear();
        self.chain.extend(frames().skip(predicted).map(|frame| frame.address));
        let has_frame_addresses = frames().skip(predicted).any(|frame| frame.frame_address != 0);
        let mut above = sample.stack_start();
        if has_frame_addresses {
            for frame in frames().skip(predicted) {
                put_delta(&mut self.columns.fp_frames, frame.frame_address, above);
                above = frame.frame_address;
            }
        }
        let id = self.intern_chain();
        put(&mut self.columns.fp_chain, id << 1 | u64::from(has_frame_addresses));
    }

    /// Encodes load shedding, which few samples have: the number of samples since the last such one, and the original
    /// size.
    fn shed(&mut self, sample: &Sample) {
        if let Some(asked_bytes) = sample.shed_from {
            put(&mut self.columns.shed, u64::from(self.items - self.shed_items) - 1);
            put(&mut self.columns.shed, u64::from(asked_bytes));
            self.shed_items = self.items;
        }
    }

    /// Encodes a walk, if there is one: the number of samples since the last such one, how it ended, and its frames.
    /// Few walks have frames that signals interrupted, so the end says whether there are any.
    fn cfi(&mut self, thread: usize, sample: &Sample) {
        let Some(end) = sample.cfi_end else { return };
        put(&mut self.columns.cfi, u64::from(self.items - self.cfi_items) - 1);
        self.cfi_items = self.items;
        let number = CfiEnd::ALL.iter().position(|&known| known == end).unwrap_or(0);
        let n_interrupted = cfi::interrupted(&sample.cfi_frames).count() as u64;
        put(&mut self.columns.cfi, number as u64 + if n_interrupted > 0 { HAS_INTERRUPTED } else { 0 });
        self.chain.clear();
        self.chain.extend(cfi::words(&sample.cfi_frames));
        let id = self.intern_chain();
        put(&mut self.columns.cfi, id);
        if let (Some(leaf), Some(state)) = (sample.cfi_frames.first(), self.thread_states.get_mut(thread)) {
            put_delta(&mut self.columns.cfi, leaf.cfa, state.cfa);
            state.cfa = leaf.cfa;
        }
        if n_interrupted > 0 {
            put(&mut self.columns.cfi, n_interrupted);
            cfi::interrupted(&sample.cfi_frames).for_each(|number| put(&mut self.columns.cfi, number));
        }
    }

    /// The number of the chain in `self.chain` plus 2; 0 for no frames; 1 for a new chain, which is spelt out: its
    /// length, how many of its last frames are those of the previous new chain, and the others.
    fn intern_chain(&mut self) -> u64 {
        if self.chain.is_empty() {
            return 0;
        }
        if let Some(number) = self.chains.number(&self.chain) {
            return number + 2;
        }
        let shared = self.chains.shared_with_last(&self.chain);
        put(&mut self.columns.new_chains, self.chain.len() as u64);
        put(&mut self.columns.new_chains, shared as u64);
        for &address in self.chain.iter().take(self.chain.len() - shared) {
            self.words.put(&mut self.columns.chain_words, &mut self.columns.literals, address, Place::NOWHERE);
        }
        self.chains.insert(&self.chain);
        1
    }
}

/// Encodes an end of stack relative to `other`.
fn put_stack_end(column: &mut Vec<u8>, end: Option<StackEnd>, other: u64) {
    match end {
        None => put(column, 0),
        Some(end) => {
            let source = STACK_END_SOURCES.iter().position(|&s| s == end.source).unwrap_or(0);
            put(column, source as u64 + 1);
            put_delta(column, end.address, other);
        }
    }
}

fn put_len(column: &mut Vec<u8>, chunk: &Copied<'_>, stack_end: Option<StackEnd>) {
    let end = chunk.start.wrapping_add(chunk.bytes.len() as u64);
    put_delta(column, end, stack_end.map_or(chunk.start, |end| end.address));
}

fn put_holes(column: &mut Vec<u8>, holes: &[ChunkHole]) {
    put(column, holes.len() as u64);
    for hole in holes {
        put(column, u64::from(hole.offset));
        put(column, u64::from(hole.len));
    }
}

fn copied_of(pid: u32, own: &Interrupted) -> Copied<'_> {
    Copied { pid, start: own.stack_start(), bytes: &own.stack, holes: &own.stack_holes }
}

/// Whether the sample has a number of holes, which may be 0 with a special meaning.
fn has_holes_column(sample: &Sample) -> bool {
    sample.entering_kernel || sample.withheld || !sample.stack_holes.is_empty()
}

fn check(sample: &Sample, machine: Machine) -> Result<(), Error> {
    if let Some(regs) = sample.user_regs.filter(|regs| regs.arch != machine.arch) {
        return Err(Error::ForeignRegisters { found: regs.arch, expected: machine.arch });
    }
    check_walk(sample)?;
    let limits = [
        ("stack bytes", usize::try_from(sample.copied_bytes()).unwrap_or(usize::MAX), MAX_STACK_BYTES),
        ("frame-pointer frames", sample.user_fp.len(), MAX_CHAIN_FRAMES),
        ("kernel frames", sample.kernel.len(), MAX_CHAIN_FRAMES),
        ("frames of a walk by call frame information", sample.cfi_frames.len(), MAX_CFI_FRAMES),
        ("stack holes", sample.stack_holes.len(), MAX_HOLES),
        ("stack holes", sample.interrupted.as_ref().map_or(0, |own| own.stack_holes.len()), MAX_HOLES),
    ];
    match limits.into_iter().find(|&(_, value, limit)| value > limit) {
        Some((what, value, limit)) => Err(Error::TooLarge { what, value: value as u64, limit: limit as u64 }),
        None => Ok(()),
    }
}

/// Checks for walks that the format cannot represent: frames without an end, or not one above the other.
fn check_walk(sample: &Sample) -> Result<(), Error> {
    if sample.cfi_end.is_none() && !sample.cfi_frames.is_empty() {
        return Err(Error::WalkWithoutEnd { n_frames: sample.cfi_frames.len() });
    }
    match cfi::out_of_place(&sample.cfi_frames) {
        Some((number, frame)) => Err(Error::FrameOutOfPlace { number, cfa: frame.cfa }),
        None => Ok(()),
    }
}

/// Updates `page` with `bytes` at `offset`, scrubbed, and lists the words that changed, ascending.
fn diff(
    page: &mut Page,
    base: u64,
    offset: usize,
    bytes: &[u8],
    scrubber: &Scrubber<'_>,
    changes: &mut Vec<(u64, u64)>,
) {
    const LINE: usize = 64;
    let end = offset + bytes.len();
    if page.get(offset..end) == Some(bytes) {
        return;
    }
    let mut at = offset & !7;
    while at < end {
        let new = at.checked_sub(offset).and_then(|at| bytes.get(at..)).and_then(|tail| tail.first_chunk::<LINE>());
        if new.is_some() && new == page.get(at..).and_then(|tail| tail.first_chunk()) {
            at += LINE;
            continue;
        }
        for granule in (at..end.min(at + LINE)).step_by(8) {
            let old = word_at(page, granule);
            let (new, covered) = if granule >= offset && granule + 8 <= end {
                let word = bytes.get(granule - offset..).and_then(|tail| tail.first_chunk());
                (word.map_or(0, |word| u64::from_le_bytes(*word)), u64::MAX)
            } else {
                partial(granule, offset, bytes)
            };
            if new == old & covered {
                continue;
            }
            let new = (old & !covered) | scrubber.granule(base.wrapping_add(granule as u64), new, covered);
            if new != old {
                set_word_at(page, granule, new);
                changes.push((base.wrapping_add(granule as u64), new));
            }
        }
        at += LINE;
    }
}

/// The bytes of a granule that are in the chunk, and a mask of them.
fn partial(granule: usize, offset: usize, bytes: &[u8]) -> (u64, u64) {
    (0..8).fold((0, 0), |(word, covered), byte| {
        match (granule + byte).checked_sub(offset).and_then(|at| bytes.get(at)) {
            Some(&value) => (word | u64::from(value) << (8 * byte), covered | 0xff << (8 * byte)),
            None => (word, covered),
        }
    })
}
