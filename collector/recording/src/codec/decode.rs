//! Decodes columns to samples.

use super::cfi::{self, HAS_INTERRUPTED};
use super::chains::Chains;
use super::columns::{Columns, Cursors};
use super::memory::Memory;
use super::repeats::{Repeats, RepeatsDecoder};
use super::state::{
    CpuState, FP_ENDS, LONG_RUN, MAX_CHAIN_FRAMES, MAX_HOLES, MAX_STACK_BYTES, MAX_THREADS, MAX_VALUE_BYTES,
    MIN_VALUE_BYTES, PredictedChain, RUN_BITS, STACK_END_SOURCES, ThreadState, flag, value_bytes,
};
use super::varint::Cursor;
use super::words::Words;
use crate::model::{Abi, CfiEnd, ChunkHole, FpFrame, Interrupted, Machine, Sample, StackEnd, UserRegs};
use crate::pack::Payload;

/// The most bytes of values: a writer closes a block only after a sample that is too many.
const MOST_VALUE_BYTES: u64 = MAX_VALUE_BYTES + MAX_STACK_BYTES as u64 * 2;

/// The most samples of a block that has repeats.
const MAX_SAMPLES: u64 = MOST_VALUE_BYTES / MIN_VALUE_BYTES;

/// Decodes the samples of the payload one after the other into `sample`, whatever `visit` left in it, and calls
/// `visit`. `Err` is the number of valid samples, all of which have been visited.
pub(crate) fn decode_samples(
    payload: &Payload,
    items: u32,
    machine: Machine,
    sample: &mut Sample,
    mut visit: impl FnMut(&mut Sample),
) -> Result<(), u64> {
    let items = u64::from(items);
    let mut decoder = Decoder::new(payload, machine).ok_or(0u64)?;
    let mut item = 0;
    while item < items {
        let repeats = decoder.next(sample, items - item).ok_or(item)?;
        let row = repeats.map(|repeats| (repeats, sample.clone()));
        visit(sample);
        item += 1;
        let Some((repeats, row)) = row else { continue };
        for number in 1..=repeats.n {
            decoder.spend(value_bytes(&row)).ok_or(item)?;
            sample.clone_from(&row);
            repeats.apply(number, sample);
            visit(sample);
            item += 1;
        }
    }
    if decoder.is_done() { Ok(()) } else { Err(items) }
}

/// Calls `visit` with the process, thread and time of the samples of the payload, up to the first invalid one. Only the
/// columns selected by [`is_thread_column`] are needed.
pub(crate) fn decode_who(payload: &Payload, items: u32, mut visit: impl FnMut(u32, u32, u64)) -> Option<()> {
    let mut columns = Cursors::new(payload.parts())?;
    let (mut cpus, mut threads, mut repeats) = (Vec::new(), Vec::new(), RepeatsDecoder::default());
    let items = u64::from(items);
    let mut item = 0;
    while item < items {
        let time_ns = next_cpu(&mut columns, &mut cpus)?.time;
        let thread = next_thread(&mut columns, &mut threads)?;
        let ThreadState { pid, tid, .. } = threads.get(thread)?;
        visit(*pid, *tid, time_ns);
        item += 1;
        if let Some(repeats) = repeats.of_next_row(&mut columns.repeats)? {
            // Rows are limited by their bytes.
            (repeats.n <= (items - item).min(MAX_SAMPLES.saturating_sub(item))).then_some(())?;
            (1..=repeats.n).for_each(|number| visit(*pid, *tid, repeats.time_ns(number, time_ns)));
            item += repeats.n;
        }
    }
    Some(())
}

/// Whether a column is one of those with the process, thread and time of samples.
pub(crate) fn is_thread_column(column: usize) -> bool {
    const WHO: [&str; 6] = ["cpu", "new_cpus", "time", "thread", "new_threads", "repeats"];
    Columns::NAMES.get(column).is_some_and(|name| WHO.contains(name))
}

/// The CPU of the next sample, advanced to its time.
fn next_cpu<'c>(columns: &mut Cursors<'_>, cpus: &'c mut Vec<CpuState>) -> Option<&'c mut CpuState> {
    let number = columns.cpu.len()?;
    if number == cpus.len() && number < MAX_THREADS {
        cpus.push(CpuState { cpu: columns.new_cpus.u32()?, ..CpuState::default() });
    }
    let state = cpus.get_mut(number)?;
    state.time_step = columns.time.delta(state.time_step)?;
    state.time = state.time.wrapping_add(state.time_step);
    Some(state)
}

/// The thread of the next sample.
fn next_thread(columns: &mut Cursors<'_>, threads: &mut Vec<ThreadState>) -> Option<usize> {
    let number = columns.thread.len()?;
    if number == threads.len() && number < MAX_THREADS {
        let pid = columns.new_threads.u32()?;
        let tid = columns.new_threads.delta(u64::from(pid))?.try_into().ok()?;
        threads.push(ThreadState::new(pid, tid));
    }
    (number < threads.len()).then_some(number)
}

struct Decoder<'a> {
    machine: Machine,
    columns: Cursors<'a>,
    cpus: Vec<CpuState>,
    threads: Vec<ThreadState>,
    words: Words,
    memory: Memory,
    chains: Chains,
    predicted: Vec<FpFrame>,
    value_bytes: u64,
    /// Whether the block has the number of bytes below the stack pointer of its chunks.
    has_below_sp: bool,
    /// Number of samples up to the next one whose chunk was shortened by load shedding, and its original size.
    next_shed: Option<(u64, u32)>,
    /// Number of samples up to the next one with an interrupted stack.
    next_interrupted: Option<u64>,
    /// Number of samples up to the next one with a walk by call frame information.
    next_cfi: Option<u64>,
    repeats: RepeatsDecoder,
}

impl<'a> Decoder<'a> {
    fn new(payload: &'a Payload, machine: Machine) -> Option<Self> {
        let columns = Cursors::new(payload.parts())?;
        Some(Self {
            machine,
            has_below_sp: !columns.below_sp.is_empty(),
            columns,
            cpus: Vec::new(),
            threads: Vec::new(),
            words: Words::new(),
            memory: Memory::default(),
            chains: Chains::default(),
            predicted: Vec::new(),
            value_bytes: 0,
            next_shed: None,
            next_interrupted: None,
            next_cfi: None,
            repeats: RepeatsDecoder::default(),
        })
    }

    fn is_done(&self) -> bool {
        let is_awaited = self.next_shed.is_some() || self.next_interrupted.is_some() || self.next_cfi.is_some();
        self.columns.all_read() && !is_awaited && !self.repeats.is_awaiting()
    }

    /// Decodes a row; returns its repeats, if it has any. With these there are at most `most` samples left. `None` if
    /// the payload is invalid.
    fn next(&mut self, sample: &mut Sample, most: u64) -> Option<Option<Repeats>> {
        let flags = self.columns.flags.byte()?;
        let has = |bit: u8| flags & bit != 0;
        sample.in_kernel = has(flag::IN_KERNEL);
        self.cpu(sample, has(flag::EVENT))?;
        let thread = self.thread(sample)?;
        if has(flag::STACK_END) {
            self.stack_end(thread)?;
        }
        let state = self.threads.get(thread)?;
        sample.stack_end = state.stack_end;
        let abi = if has(flag::BITS32_OR_IN_EXEC) { Abi::Bits32 } else { Abi::Bits64 };
        sample.in_exec = has(flag::BITS32_OR_IN_EXEC) && !has(flag::REGS);
        sample.user_regs = if has(flag::REGS) { Some(self.registers(thread, abi)?) } else { None };
        self.holes(sample, has(flag::HOLES))?;
        let has_no_holes = has(flag::HOLES) && sample.stack_holes.is_empty();
        sample.entering_kernel = has_no_holes && !has(flag::REGS);
        sample.withheld = has_no_holes && has(flag::REGS);
        self.stack(sample, has(flag::STACK))?;
        sample.interrupted = self.interrupted(sample)?;
        self.user_fp(sample, has(flag::FP))?;
        let id = self.columns.kernel_chain.varint()?;
        sample.kernel.clear();
        sample.kernel.extend_from_slice(self.chain(id)?);
        sample.shed_from = self.shed()?;
        self.cfi(thread, sample)?;
        self.spend(value_bytes(sample))?;
        let repeats = self.repeats.of_next_row(&mut self.columns.repeats)?;
        repeats.is_none_or(|repeats| repeats.n < most).then_some(repeats)
    }

    /// Counts the bytes of a sample as a value; `None` if the block has too many.
    fn spend(&mut self, value_bytes: u64) -> Option<()> {
        self.value_bytes += value_bytes;
        (self.value_bytes <= MOST_VALUE_BYTES).then_some(())
    }

    /// The inner `None` means that the chunk was not shortened.
    fn shed(&mut self) -> Option<Option<u32>> {
        if self.next_shed.is_none() && !self.columns.shed.is_empty() {
            self.next_shed = Some((self.columns.shed.varint()?, self.columns.shed.u32()?));
        }
        let Some((before, asked_bytes)) = self.next_shed else { return Some(None) };
        let is_shed = before == 0;
        self.next_shed = if is_shed { None } else { Some((before - 1, asked_bytes)) };
        Some(is_shed.then_some(asked_bytes))
    }

    /// Decodes the walk by call frame information, if the sample has one.
    fn cfi(&mut self, thread: usize, sample: &mut Sample) -> Option<()> {
        sample.cfi_frames.clear();
        sample.cfi_end = None;
        if self.next_cfi.is_none() && !self.columns.cfi.is_empty() {
            self.next_cfi = Some(self.columns.cfi.varint()?);
        }
        let Some(before) = self.next_cfi else { return Some(()) };
        self.next_cfi = before.checked_sub(1);
        if before > 0 {
            return Some(());
        }
        let end = self.columns.cfi.varint()?;
        let has_interrupted = end >= HAS_INTERRUPTED;
        let number = if has_interrupted { end - HAS_INTERRUPTED } else { end };
        sample.cfi_end = Some(*CfiEnd::ALL.get(usize::try_from(number).ok()?)?);
        let id = self.columns.cfi.varint()?;
        if id == 0 {
            return (!has_interrupted).then_some(());
        }
        let state = self.threads.get_mut(thread)?;
        state.cfa = self.columns.cfi.delta(state.cfa)?;
        let leaf_cfa = state.cfa;
        cfi::add_frames(self.chain(id)?, leaf_cfa, &mut sample.cfi_frames)?;
        if has_interrupted {
            let (n_interrupted, mut last) = (self.columns.cfi.varint()?, 0);
            for _ in 0..n_interrupted {
                let number = self.columns.cfi.len().filter(|&number| number > last)?;
                sample.cfi_frames.get_mut(number)?.is_instruction = true;
                last = number;
            }
            return (n_interrupted > 0).then_some(());
        }
        Some(())
    }

    fn cpu(&mut self, sample: &mut Sample, event_changed: bool) -> Option<()> {
        let state = next_cpu(&mut self.columns, &mut self.cpus)?;
        let columns = &mut self.columns;
        state.fired = columns.counters.delta(state.fired)?;
        state.lost = columns.counters.delta(state.lost)?;
        if event_changed {
            state.event = columns.event.varint()?.try_into().ok()?;
            state.weight = columns.event.delta(state.weight)?;
        }
        sample.cpu = state.cpu;
        sample.time_ns = state.time;
        sample.cpu_fired = state.fired;
        sample.cpu_lost = state.lost;
        sample.event = state.event;
        sample.weight = state.weight;
        Some(())
    }

    fn thread(&mut self, sample: &mut Sample) -> Option<usize> {
        let number = next_thread(&mut self.columns, &mut self.threads)?;
        let state = self.threads.get(number)?;
        sample.pid = state.pid;
        sample.tid = state.tid;
        Some(number)
    }

    fn stack_end(&mut self, thread: usize) -> Option<()> {
        let state = self.threads.get_mut(thread)?;
        let old = state.stack_end.map_or(0, |old| old.address);
        state.stack_end = stack_end(&mut self.columns.stack_end, old)?;
        Some(())
    }

    fn registers(&mut self, thread: usize, abi: Abi) -> Option<UserRegs> {
        let state = self.threads.get_mut(thread)?;
        let arch = self.machine.arch;
        let mask = self.columns.register_mask.varint()?;
        let mut read = |mask: u64, base: u64| {
            for (_, value) in state.regs.iter_mut().enumerate().filter(|(number, _)| mask >> number & 1 == 1) {
                *value = self.words.get(&mut self.columns.registers, &mut self.columns.literals, base)?;
            }
            Some(state.regs.get(arch.sp()).copied().unwrap_or(0))
        };
        let sp = read(mask & 1 << arch.sp(), 0)?;
        read(mask & !(1 << arch.sp()), sp)?;
        (mask >> arch.n_registers() == 0).then_some(UserRegs { arch, abi, values: state.regs })
    }

    fn holes(&mut self, sample: &mut Sample, has_holes: bool) -> Option<()> {
        sample.stack_holes.clear();
        if !has_holes {
            return Some(());
        }
        holes(&mut self.columns.holes, &mut sample.stack_holes)
    }

    fn stack(&mut self, sample: &mut Sample, has_stack: bool) -> Option<()> {
        sample.bytes_below_sp = 0;
        if !has_stack {
            sample.stack.clear();
            return Some(());
        }
        // Before version 4, chunks begin at the stack pointer.
        if self.has_below_sp {
            sample.bytes_below_sp = self.columns.below_sp.byte()?;
        }
        let start = sample.stack_start();
        let most = MAX_STACK_BYTES + usize::from(sample.bytes_below_sp);
        let len = stack_len(&mut self.columns.stack_len, start, sample.stack_end, most)?;
        self.copied(sample.pid, start, len, &sample.stack_holes, &mut sample.stack)
    }

    /// The inner `None` means that the sample has none.
    fn interrupted(&mut self, sample: &Sample) -> Option<Option<Interrupted>> {
        if self.next_interrupted.is_none() && !self.columns.interrupted.is_empty() {
            self.next_interrupted = Some(self.columns.interrupted.varint()?);
        }
        let Some(before) = self.next_interrupted else { return Some(None) };
        self.next_interrupted = before.checked_sub(1);
        if before > 0 {
            return Some(None);
        }
        let column = &mut self.columns.interrupted;
        let mut own =
            Interrupted { sp: column.delta(sample.user_regs.map_or(0, |regs| regs.sp()))?, ..Default::default() };
        own.bytes_below_sp = column.byte()?;
        own.stack_end = stack_end(column, own.sp)?;
        let start = own.stack_start();
        let most = (MAX_STACK_BYTES + usize::from(own.bytes_below_sp)).checked_sub(sample.stack_from_sp().len())?;
        let len = stack_len(column, start, own.stack_end, most)?;
        holes(column, &mut own.stack_holes)?;
        self.copied(sample.pid, start, len, &own.stack_holes, &mut own.stack)?;
        Some(Some(own))
    }

    /// Decodes a chunk: the previous contents of the process's memory with the words that changed.
    fn copied(&mut self, pid: u32, start: u64, len: usize, holes: &[ChunkHole], bytes: &mut Vec<u8>) -> Option<()> {
        let mut address = start & !7;
        for _ in 0..self.columns.n_runs.varint()? {
            let run = self.columns.runs.varint()?;
            address = address.wrapping_add((run >> RUN_BITS).wrapping_mul(8));
            let mut longer = run & LONG_RUN;
            if longer == LONG_RUN {
                longer = longer.checked_add(self.columns.long_runs.varint()?)?;
            }
            for _ in 0..=longer {
                let word = self.words.get(&mut self.columns.stack_words, &mut self.columns.literals, address)?;
                self.memory.set_word(pid, address, word)?;
                address = address.wrapping_add(8);
            }
        }
        // Not cleared first, since a chunk is large and every byte is overwritten.
        bytes.resize(len, 0);
        self.memory.read(pid, start, bytes);
        let mut from = 0;
        for part in super::memory::readable(len, holes).chain(std::iter::once(len..len)) {
            if let Some(hole) = bytes.get_mut(from..part.start) {
                hole.fill(0);
            }
            from = part.end;
        }
        Some(())
    }

    /// Decodes the frame-pointer chain: a number of frames that [`PredictedChain`] finds in the copied stack, then an
    /// interned chain of addresses, with their frame addresses if any is nonzero.
    fn user_fp(&mut self, sample: &mut Sample, has_fp: bool) -> Option<()> {
        sample.user_fp.clear();
        sample.fp_end = Default::default();
        if !has_fp {
            return Some(());
        }
        let predicted = self.columns.fp_predicted.len()?;
        sample.fp_end = *FP_ENDS.get(predicted % FP_ENDS.len())?;
        let predicted = Some(predicted / FP_ENDS.len()).filter(|&n| n <= MAX_CHAIN_FRAMES)?;
        let memory = &self.memory;
        let pid = sample.pid;
        self.predicted.clear();
        let mask = self.machine.return_address_mask;
        let chain = PredictedChain::new(sample, sample.user_regs, mask, |address| memory.word(pid, address));
        self.predicted.extend(chain.take(predicted));
        if self.predicted.len() != predicted {
            return None;
        }
        sample.user_fp.extend_from_slice(&self.predicted);
        let id = self.columns.fp_chain.varint()?;
        let mut above = sample.stack_start();
        let n_rest = self.chain(id >> 1)?.len();
        for number in 0..n_rest {
            if id & 1 == 1 {
                above = self.columns.fp_frames.delta(above)?;
            }
            let frame_address = if id & 1 == 1 { above } else { 0 };
            let address = *self.chains.get(self.last_used(id >> 1)?)?.get(number)?;
            sample.user_fp.push(FpFrame { address, frame_address });
        }
        (sample.user_fp.len() <= MAX_CHAIN_FRAMES).then_some(())
    }

    fn last_used(&self, id: u64) -> Option<usize> {
        match id {
            0 => None,
            1 => self.chains.len().checked_sub(1),
            known => usize::try_from(known - 2).ok(),
        }
    }

    fn chain(&mut self, id: u64) -> Option<&[u64]> {
        if id == 1 {
            self.spell_chain()?;
        }
        match self.last_used(id) {
            None => Some(&[]),
            Some(number) => self.chains.get(number),
        }
    }

    fn spell_chain(&mut self) -> Option<()> {
        let len = self.columns.new_chains.len().filter(|&len| len <= MAX_CHAIN_FRAMES)?;
        let shared = self.columns.new_chains.len()?;
        let own = len.checked_sub(shared)?;
        let last = self.chains.last();
        let tail: Vec<u64> = last.get(last.len().checked_sub(shared)?..)?.to_vec();
        let mut chain = Vec::with_capacity(len);
        for _ in 0..own {
            chain.push(self.words.get(&mut self.columns.chain_words, &mut self.columns.literals, 0)?);
        }
        self.chains.push(chain.into_iter().chain(tail));
        Some(())
    }
}

/// Decodes the end of a stack, stored relative to `other`.
fn stack_end(column: &mut Cursor<'_>, other: u64) -> Option<Option<StackEnd>> {
    let Some(source) = column.len()?.checked_sub(1) else { return Some(None) };
    let source = *STACK_END_SOURCES.get(source)?;
    Some(Some(StackEnd { address: column.delta(other)?, source }))
}

/// Size of a chunk; `None` if it exceeds `most`.
fn stack_len(column: &mut Cursor<'_>, start: u64, stack_end: Option<StackEnd>, most: usize) -> Option<usize> {
    let end = column.delta(stack_end.map_or(start, |end| end.address))?;
    usize::try_from(end.wrapping_sub(start)).ok().filter(|&len| len <= most)
}

/// Decodes the holes of a chunk.
fn holes(column: &mut Cursor<'_>, holes: &mut Vec<ChunkHole>) -> Option<()> {
    let n_holes = column.len().filter(|&n| n <= MAX_HOLES)?;
    for _ in 0..n_holes {
        let (offset, len) = (column.u32()?, column.u32()?);
        holes.push(ChunkHole { offset, len });
    }
    Some(())
}
