//! Threads that are blocked when the recording ends: their waits are sampled up to then. If stacks are copied when a
//! thread blocks, also the threads that are blocked when the recording begins.
//!
//! ```text
//! programs stopped ──▶ blocked threads, with registers and kernel chain (BPF) ──▶ memory (process_vm_readv)
//!                                                                                      │
//!            CPU time unchanged since it blocked? ── no: lost, `woken`  ◀──────────────┘
//! ```

use super::balance::{LOST, OpenWaits};
use super::record::Session;
use super::waits::WAITS;
use crate::arch::{is_32, return_address_mask};
use crate::bpf::types;
use crate::decode::user_regs;
use crate::error::Error;
use crate::proc::{MapsEntry, MemoryReads, parse_maps, start_stack};
use crate::ring::RingId;
use crate::sys::{read_memory, read_pod};
use fpprof_recording::model::{
    Abi, Arch, CaptureMode, FpEnd, FpFrame, Gap, LossCause, Sample, StackEnd, StackEndSource, UserRegs,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::mem::size_of;

/// As in the BPF programs.
const MAX_FRAMES: usize = types::limit::MAX_FRAMES.0 as usize;
const THREAD_BLOCK_BYTES: u64 = types::limit::THREAD_BLOCK_BYTES.0 as u64;

impl<W: Write> Session<'_, W> {
    /// Samples the blocked threads. Call it when no program runs any more and all rings are read. The samples count for
    /// the first CPU.
    pub(super) fn sample_open_waits(&mut self, now_ns: u64) -> Result<(), Error> {
        let output = self.programs.open_waits().map_err(Error::bpf)?;
        let least_ns = self.plan.config.waits.map_or(u64::MAX, |waits| waits.least_ns);
        let ring_id = RingId { cpu: self.cpus.sampled.first().copied().unwrap_or(0), event: WAITS };
        let mut blocked = Blocked::new(self.request.mode, &self.memory);
        let mut done = OpenWaits::default();
        for (wait, chain) in records(&output) {
            let blocked_ns = now_ns.saturating_sub(wait.since_ns);
            if blocked_ns < least_ns {
                done.short += 1;
                done.short_ns += blocked_ns;
                continue;
            }
            match blocked.sample(wait, chain) {
                Some(mut sample) => {
                    done.recorded += 1;
                    let counters = self.reader.rings.counters(ring_id);
                    let before = counters.get(types::counter::COUNT_FIRED) + done.short + done.woken;
                    sample.cpu_fired = before + done.recorded;
                    sample.cpu_lost = counters.sum(&LOST) + done.woken;
                    (sample.cpu, sample.event) = (ring_id.cpu, ring_id.event);
                    (sample.time_ns, sample.weight) = (now_ns, blocked_ns);
                    self.reader.write_sample(sample);
                }
                None => {
                    done.woken += 1;
                    let RingId { cpu, event } = ring_id;
                    let gap = Gap { cpu, event, start_ns: now_ns, end_ns: now_ns, lost: 1, cause: LossCause::Woken };
                    self.reader.write_gap(&gap);
                }
            }
        }
        self.reader.open_waits = Some((ring_id, done));
        Ok(())
    }

    /// Copies the stacks of threads that blocked before the programs could copy them.
    pub(super) fn copy_stacks_of_blocked(&mut self) -> Result<(), Error> {
        let output = self.programs.open_waits().map_err(Error::bpf)?;
        let mut blocked = Blocked::new(self.request.mode, &self.memory);
        for (wait, chain) in records(&output) {
            if let Some(sample) = blocked.sample(wait, chain) {
                self.reader.wait_halves.begin(wait.since_ns, &sample);
            }
        }
        Ok(())
    }
}

/// Splits the output into waits, each with its kernel chain.
fn records(mut output: &[u8]) -> impl Iterator<Item = (types::open_wait, &[u8])> {
    std::iter::from_fn(move || {
        let wait: types::open_wait = read_pod(output)?;
        let (record, rest) = output.split_at_checked(size_of::<types::open_wait>() + wait.n_kernel as usize * 8)?;
        output = rest;
        Some((wait, record.get(size_of::<types::open_wait>()..)?))
    })
}

/// Samples blocked threads.
struct Blocked<'a> {
    mode: CaptureMode,
    memory: &'a MemoryReads,
    maps: Maps,
}

/// Mappings of processes, by PID.
type Maps = BTreeMap<u32, Vec<MapsEntry>>;

impl<'a> Blocked<'a> {
    fn new(mode: CaptureMode, memory: &'a MemoryReads) -> Self {
        Self { mode, memory, maps: Maps::new() }
    }

    /// A sample without time, CPU and weight; `None` for a thread that has run since.
    fn sample(&mut self, wait: types::open_wait, chain: &[u8]) -> Option<Sample> {
        let kernel = chain.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let mut sample = Sample { pid: wait.pid, tid: wait.tid, in_kernel: true, kernel, ..Sample::default() };
        (sample.event, sample.in_exec) = (WAITS, wait.in_exec != 0);
        if wait.has_user != 0 {
            self.user_side(wait, &mut sample);
        }
        (wait.is_blocked != 0 && run_ns(wait.tid).is_none_or(|run_ns| run_ns == wait.run_ns)).then_some(sample)
    }

    /// Adds registers and stack. Of a process whose memory cannot be read in time, there are only the registers.
    fn user_side(&mut self, wait: types::open_wait, sample: &mut Sample) {
        let abi = if is_32(&wait.regs) { Abi::Bits32 } else { Abi::Bits64 };
        let regs = user_regs(abi, &wait.regs);
        let has_chain = self.mode.has_frame_pointers();
        let stack_bytes = match self.mode {
            CaptureMode::Fp => 0,
            // Which of them would have been copied is not known, and there are few.
            mode if mode.copies_some() => 0,
            CaptureMode::Dwarf { stack_bytes }
            | CaptureMode::Both { stack_bytes, .. }
            | CaptureMode::Cfi { stack_bytes, .. } => stack_bytes,
        };
        sample.withheld = wait.withheld != 0 && stack_bytes > 0;
        let regs = if sample.withheld { regs.pointers() } else { regs };
        sample.user_regs = if stack_bytes > 0 { Some(regs) } else { regs.of_leaf() };
        if has_chain {
            (sample.user_fp, sample.fp_end) = (vec![leaf(&regs)], FpEnd::Unreadable);
        }
        let copied_bytes = if sample.withheld { 0 } else { stack_bytes };
        let (mut maps, mut with_stack) = (std::mem::take(&mut self.maps), sample.clone());
        let read = self.memory.read(wait.pid, move || {
            if copied_bytes > 0 {
                copy_stack(&wait, &regs, copied_bytes, &mut maps, &mut with_stack);
            }
            if has_chain {
                (with_stack.user_fp, with_stack.fp_end) = walk(wait.pid, &regs);
            }
            (maps, with_stack)
        });
        if let Some((maps, with_stack)) = read {
            self.maps = maps;
            *sample = with_stack;
        }
    }
}

/// Copies a stack as the BPF programs do, up to its end.
fn copy_stack(wait: &types::open_wait, regs: &UserRegs, bytes: u32, maps: &mut Maps, sample: &mut Sample) {
    sample.stack_end = stack_end(wait, regs.sp(), maps);
    let depth = sample.stack_end.map_or(0, |end| end.address.saturating_sub(regs.sp()));
    let len = usize::try_from(depth.min(u64::from(bytes))).unwrap_or(0);
    // The red zone below the stack pointer may be unmapped, or below address 0.
    for below in [regs.red_zone_bytes(), 0] {
        let Some(start) = regs.sp().checked_sub(below.into()) else { continue };
        sample.bytes_below_sp = below;
        sample.stack.resize(len + usize::from(below), 0);
        let read = read_memory(wait.pid, start, &mut sample.stack);
        sample.stack.truncate(read);
        if read > 0 {
            break;
        }
    }
}

/// Finds the end of a stack from the process's mappings, as the BPF programs do.
fn stack_end(wait: &types::open_wait, sp: u64, maps: &mut Maps) -> Option<StackEnd> {
    let maps = maps.entry(wait.pid).or_insert_with(|| {
        std::fs::read(format!("/proc/{}/maps", wait.pid)).map(|text| parse_maps(&text).collect()).unwrap_or_default()
    });
    let end = maps.iter().find(|entry| (entry.start..entry.end).contains(&sp))?.end;
    let found = |address, source| Some(StackEnd { address, source });
    if let Some(first) = start_stack(wait.pid).filter(|first| (sp..end).contains(first)) {
        return found(first, StackEndSource::StartStack);
    }
    let base = wait.thread_base;
    match sp < base && base <= end && end - base <= THREAD_BLOCK_BYTES {
        true => found(base, StackEndSource::ThreadBase),
        false => found(end, StackEndSource::Mapping),
    }
}

fn leaf(regs: &UserRegs) -> FpFrame {
    FpFrame { address: regs.ip(), frame_address: 0 }
}

/// Walks the frame-pointer chain, step by step as in `walk.bpf.h`.
fn walk(pid: u32, regs: &UserRegs) -> (Vec<FpFrame>, FpEnd) {
    let mut frames = vec![leaf(regs)];
    let word_bytes: usize = if regs.abi == Abi::Bits32 { 4 } else { 8 };
    if regs.abi == Abi::Bits32 && regs.arch != Arch::X86_64 {
        return (frames, FpEnd::Unknown);
    }
    let mask = return_address_mask();
    let (mut fp, mut last) = (regs.fp(), 0);
    while frames.len() < MAX_FRAMES {
        if fp == 0 {
            return (frames, FpEnd::Zero);
        }
        if !fp.is_multiple_of(word_bytes as u64) || fp <= last {
            return (frames, FpEnd::NotAscending);
        }
        let mut bytes = [0; 16];
        let Some(pair) = bytes.get_mut(..2 * word_bytes) else { break };
        if read_memory(pid, fp, pair) < pair.len() {
            return (frames, FpEnd::Unreadable);
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes.iter().skip(at * word_bytes).take(word_bytes)) {
                *to = *from;
            }
            u64::from_le_bytes(word)
        };
        let (next, address) = (word(0), word(1) & mask);
        if address == 0 {
            return (frames, FpEnd::ZeroReturnAddress);
        }
        frames.push(FpFrame { address, frame_address: fp });
        (last, fp) = (fp, next);
    }
    (frames, FpEnd::MaxDepth)
}

/// CPU time of a thread, nanoseconds; `None` if the kernel does not report it.
///
/// # Sources
/// `proc_pid_schedstat` in `fs/proc/base.c`: the first number is the same as in `struct open_wait`.
fn run_ns(tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::NATIVE;

    /// Check that a stack pointer that a program has set to anything, such as an address less than a red zone, is copied from
    /// as far as memory can be read: nothing.
    #[test]
    fn stack_pointers_may_be_anything() {
        let mut wait: types::open_wait = read_pod(&[0; size_of::<types::open_wait>()]).unwrap();
        wait.pid = std::process::id();
        for sp in [0, 8, 127, 128, 1 << 63, u64::MAX] {
            let mut values = vec![0; NATIVE.n_registers()];
            values[NATIVE.sp()] = sp;
            let mut sample = Sample::default();
            copy_stack(&wait, &UserRegs::new(NATIVE, Abi::Bits64, &values), 4096, &mut Maps::new(), &mut sample);
            assert_eq!((sample.stack.len(), sample.bytes_below_sp, sample.stack_end), (0, 0, None), "{sp:#x}");
        }
    }
}
