//! Decoding of ring buffer records into samples.

use crate::arch::{NATIVE, values};
use crate::bpf::types;
use crate::ring::{RingId, lost_in};
use crate::sys::read_pod;
use fpprof_recording::model::{
    Abi, CfiEnd, CfiFrame, ChunkHole, FoundBy, FpEnd, FpFrame, Gap, Interrupted, Sample, StackEnd, StackEndSource,
    UserRegs,
};
use std::mem::size_of;

/// A malformed record: a defect of the collector, never of the profiled program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadRecord;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A sample.
    Sample,
    /// First half of the sample of a wait that began at that time: everything but its length.
    WaitBegun { since_ns: u64 },
    /// Second half: its weight is the length of the wait, and the rest is empty.
    WaitEnded { since_ns: u64 },
}

/// Kind of a record, and start time of its thread.
pub(crate) fn kind(record: &[u8]) -> Option<(Kind, u64)> {
    let head: types::sample_head = read_pod(record)?;
    let kind = if has(head.flags, types::sample_flag::SAMPLE_WAIT_BEGUN) {
        Kind::WaitBegun { since_ns: head.weight }
    } else if has(head.flags, types::sample_flag::SAMPLE_WAIT_ENDED) {
        Kind::WaitEnded { since_ns: head.stack_end }
    } else {
        Kind::Sample
    };
    Some((kind, head.start_boottime))
}

/// Time of a record, for merging the CPUs' rings.
pub(crate) fn record_time_ns(record: &[u8]) -> Option<u64> {
    read_pod::<types::sample_head>(record).map(|head| head.time_ns)
}

/// Fills `sample` from a ring buffer record; its vectors keep their capacity. Adds the CPU's losses before this record
/// to `gaps`. Returns what a walk by call frame information was given up for, if user space can provide it. Without
/// `keeps_regs`, registers are left out, except for those that mode `fp` keeps.
pub(crate) fn decode(
    record: &[u8],
    ring_id: RingId,
    keeps_regs: bool,
    sample: &mut Sample,
    gaps: &mut Vec<Gap>,
) -> Result<Option<types::cfi_miss>, BadRecord> {
    let head: types::sample_head = read_pod(record).ok_or(BadRecord)?;
    let mut rest = Parts(record.get(size_of::<types::sample_head>()..).ok_or(BadRecord)?);
    let walked = rest.take(usize::from(head.n_cfi_frames) * size_of::<types::cfi_frame>())?;
    rest.take(usize::from(head.n_skipped))?;
    let chunk = rest.take(head.chunk_bytes as usize)?;
    let holes = rest.take(usize::from(head.n_hole_words) * 8)?;
    let has_interrupted = has(head.flags, types::sample_flag::SAMPLE_HAS_INTERRUPTED);
    sample.interrupted = if has_interrupted { Some(interrupted(&mut rest)?) } else { None };
    let frames = rest.take(usize::from(head.n_frames) * size_of::<types::fp_frame>())?;
    let has_miss = has(head.flags, types::sample_flag::SAMPLE_HAS_MISS);
    let miss = if has_miss { read_pod(rest.take(size_of::<types::cfi_miss>())?) } else { None };
    let kernel = rest.take(usize::from(head.n_kernel) * 8)?;
    let lost = rest.take(usize::from(head.n_gaps) * size_of::<types::gap>())?;

    sample.time_ns = head.time_ns;
    (sample.cpu, sample.event) = (ring_id.cpu, ring_id.event);
    (sample.pid, sample.tid) = (head.pid, head.tid);
    sample.weight = head.weight;
    (sample.cpu_fired, sample.cpu_lost) = (head.cpu_fired, head.cpu_lost);
    sample.in_kernel = has(head.flags, types::sample_flag::SAMPLE_IN_KERNEL);
    sample.in_exec = has(head.flags, types::sample_flag::SAMPLE_IN_EXEC);
    sample.entering_kernel = has(head.flags, types::sample_flag::SAMPLE_ENTERING_KERNEL);
    sample.withheld = has(head.flags, types::sample_flag::SAMPLE_WITHHELD);
    let has_user = has(head.flags, types::sample_flag::SAMPLE_HAS_USER);
    let abi = if has(head.flags, types::sample_flag::SAMPLE_ABI32) { Abi::Bits32 } else { Abi::Bits64 };
    let regs = has_user.then(|| user_regs(abi, &head.regs));
    let keeps_regs = keeps_regs && !has(head.flags, types::sample_flag::SAMPLE_CHAIN_ONLY);
    sample.user_regs = match (keeps_regs, sample.withheld) {
        (true, false) => regs,
        (true, true) => regs.map(|regs| regs.pointers()),
        (false, _) => regs.and_then(|regs| regs.of_leaf()),
    };
    sample.user_fp.clear();
    let words = words(frames);
    sample.user_fp.extend(pairs(words).map(|(address, frame_address)| FpFrame { address, frame_address }));
    sample.fp_end = fp_end(head.fp_end);
    sample.cfi_end = cfi_end(types::cfi_end(u32::from(head.cfi_end)));
    sample.cfi_frames.clear();
    sample.cfi_frames.extend(pairs(self::words(walked)).map(|(address, cfa)| cfi_frame(address, cfa)));
    if !sample.cfi_frames.is_empty() && chunk.is_empty() {
        sample.user_regs = None;
        // Nothing was withheld, even though no copy could be taken to verify the walk.
        sample.withheld = false;
    }
    sample.kernel.clear();
    sample.kernel.extend(self::words(kernel));
    sample.stack.clear();
    sample.stack.extend_from_slice(chunk);
    sample.stack_holes.clear();
    let has_red_zone = has(head.flags, types::sample_flag::SAMPLE_HAS_RED_ZONE);
    sample.bytes_below_sp = if has_red_zone { NATIVE.red_zone_bytes() } else { 0 };
    let start = head.regs.sp.wrapping_sub(u64::from(sample.bytes_below_sp));
    append_holes(holes, start, head.chunk_bytes, &mut sample.stack_holes);
    sample.stack_end = stack_end(head.stack_end, head.stack_end_source);
    sample.shed_from = (head.asked_bytes != 0).then_some(head.asked_bytes);
    gaps.extend(lost_in(ring_id, self::words(lost)));
    Ok(miss)
}

/// Decodes the stack that a thread on its alternate signal stack was on before.
fn interrupted(rest: &mut Parts<'_>) -> Result<Interrupted, BadRecord> {
    let head = rest.take(size_of::<types::interrupted>())?;
    let head: types::interrupted = read_pod(head).ok_or(BadRecord)?;
    let stack = rest.take(head.chunk_bytes as usize)?.to_vec();
    let holes = rest.take(usize::from(head.n_hole_words) * 8)?;
    let bytes_below_sp = if stack.is_empty() { 0 } else { NATIVE.red_zone_bytes() };
    let stack_end = stack_end(head.stack_end, head.stack_end_source);
    let mut own = Interrupted { sp: head.sp, stack, bytes_below_sp, stack_holes: Vec::new(), stack_end };
    append_holes(holes, own.stack_start(), head.chunk_bytes, &mut own.stack_holes);
    Ok(own)
}

const _: () = assert!(types::limit::RED_ZONE_BYTES.0 == NATIVE.red_zone_bytes() as u32);

/// The rest of a record. Parts are padded to 8 bytes.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let part = self.0.get(..len).ok_or(BadRecord)?;
        self.0 = self.0.get(len.next_multiple_of(8)..).ok_or(BadRecord)?;
        Ok(part)
    }
}

fn has(flags: u16, flag: types::sample_flag) -> bool {
    u32::from(flags) & flag.0 != 0
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

fn pairs(mut words: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || Some((words.next()?, words.next()?)))
}

/// Converts the kernel's registers to a recording's.
pub(crate) fn user_regs(abi: Abi, regs: &types::user_regs) -> UserRegs {
    UserRegs::new(NATIVE, abi, &values(regs))
}

fn fp_end(end: u8) -> FpEnd {
    match types::fp_end(u32::from(end)) {
        types::fp_end::FP_END_ZERO => FpEnd::Zero,
        types::fp_end::FP_END_UNREADABLE => FpEnd::Unreadable,
        types::fp_end::FP_END_NOT_ASCENDING => FpEnd::NotAscending,
        types::fp_end::FP_END_ZERO_RETURN_ADDRESS => FpEnd::ZeroReturnAddress,
        types::fp_end::FP_END_MAX_DEPTH => FpEnd::MaxDepth,
        _ => FpEnd::Unknown,
    }
}

/// A frame as encoded in `struct cfi_frame`.
pub(crate) fn cfi_frame(address: u64, cfa: u64) -> CfiFrame {
    let has = |flag: types::cfi_frame_flag| cfa & u64::from(flag.0) != 0;
    let found_by = match () {
        () if has(types::cfi_frame_flag::CFI_FRAME_BY_FP) => FoundBy::FramePointer,
        () if has(types::cfi_frame_flag::CFI_FRAME_AT_END) => FoundBy::LastWord,
        () => FoundBy::Row,
    };
    let is_instruction = has(types::cfi_frame_flag::CFI_FRAME_INSTRUCTION);
    CfiFrame { address, cfa: cfa & !7, is_instruction, found_by }
}

pub(crate) fn cfi_end(end: types::cfi_end) -> Option<CfiEnd> {
    Some(match end {
        types::cfi_end::CFI_END_UNDEFINED_RA => CfiEnd::UndefinedRa,
        types::cfi_end::CFI_END_START => CfiEnd::Start,
        types::cfi_end::CFI_END_THREAD_START => CfiEnd::ThreadStart,
        types::cfi_end::CFI_END_START_CONTEXT => CfiEnd::StartContext,
        types::cfi_end::CFI_END_GOEXIT => CfiEnd::Goexit,
        types::cfi_end::CFI_END_G0 => CfiEnd::G0,
        types::cfi_end::CFI_MISS_NO_RULE => CfiEnd::NoRule,
        types::cfi_end::CFI_MISS_NO_FILE => CfiEnd::NoFile,
        types::cfi_end::CFI_MISS_NO_MAPPING => CfiEnd::NoMapping,
        types::cfi_end::CFI_MISS_OTHER_REGISTERS => CfiEnd::OtherRegisters,
        types::cfi_end::CFI_MISS_UNREADABLE => CfiEnd::Unreadable,
        types::cfi_end::CFI_MISS_NOT_ASCENDING => CfiEnd::NotAscending,
        types::cfi_end::CFI_MISS_RED_ZONE => CfiEnd::RedZone,
        types::cfi_end::CFI_MISS_MAX_DEPTH => CfiEnd::MaxDepth,
        types::cfi_end::CFI_MISS_ABI32 => CfiEnd::Abi32,
        types::cfi_end::CFI_MISS_NO_CALLER => CfiEnd::NoCaller,
        _ => return None,
    })
}

fn stack_end(address: u64, source: u8) -> Option<StackEnd> {
    let source = match types::stack_end_source(u32::from(source)) {
        types::stack_end_source::STACK_END_START_STACK => StackEndSource::StartStack,
        types::stack_end_source::STACK_END_THREAD_BASE => StackEndSource::ThreadBase,
        types::stack_end_source::STACK_END_ALT_STACK => StackEndSource::AltStack,
        types::stack_end_source::STACK_END_MAPPING => StackEndSource::Mapping,
        _ => return None,
    };
    Some(StackEnd { address, source })
}

/// Converts a bitmap with a bit for each page of the chunk to ranges of the chunk; adjacent ones are joined.
fn append_holes(bitmap: &[u8], chunk_start: u64, chunk_bytes: u32, holes: &mut Vec<ChunkHole>) {
    const PAGE: u64 = types::limit::PAGE_BYTES.0 as u64;
    let in_page = chunk_start % PAGE;
    let pages = words(bitmap).flat_map(|word| (0..64).map(move |bit| word >> bit & 1 != 0));
    for (page, _) in (0u64..).zip(pages).filter(|&(_, is_hole)| is_hole) {
        let start = (page * PAGE).saturating_sub(in_page);
        let end = ((page + 1) * PAGE - in_page).min(u64::from(chunk_bytes));
        let (Ok(offset), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else { return };
        if offset >= end {
            return;
        }
        match holes.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len = end - last.offset,
            _ => holes.push(ChunkHole { offset, len: end - offset }),
        }
    }
}

#[cfg(test)]
mod tests;
