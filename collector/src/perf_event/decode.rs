//! Decoding of samples from a perf ring buffer.

use crate::arch::NATIVE;
use fpprof_recording::model::{Abi, FpEnd, FpFrame, Sample, UserRegs};
use perf_event_open_sys::bindings;

/// What samples contain; see `sys::StackEvent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleLayout {
    /// The period of all samples; `None` if each has its own.
    pub(super) period: Option<u64>,
    pub(super) has_chain: bool,
    /// The requested registers, in perf's numbering; see `sys::perf_stacks`.
    pub(super) regs: u64,
    pub(super) has_stack: bool,
    /// See `Host::return_address_mask`.
    pub(super) return_address_mask: u64,
    /// The longest chain the kernel walks, frames.
    pub(super) max_frames: u64,
}

/// A malformed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadRecord;

/// Type of a record; 0 if it has no header.
pub(super) fn kind(record: &[u8]) -> u32 {
    record.first_chunk::<4>().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Time of a record, for merging the CPUs' rings.
pub(super) fn time_ns(record: &[u8]) -> Option<u64> {
    let at = match kind(record) {
        // After header, identifier, instruction pointer and thread.
        bindings::PERF_RECORD_SAMPLE => 32,
        // Before CPU and identifier.
        _ => record.len().checked_sub(24)?,
    };
    let bytes = record.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Fills `sample` from a record; its vectors keep their capacity. Counters and the end of the stack are left to the
/// caller.
///
/// # Sources
/// The order of parts: `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h`.
pub(super) fn decode(record: &[u8], layout: SampleLayout, sample: &mut Sample) -> Result<(), BadRecord> {
    let mut fields = Fields(record);
    let (_kind, misc) = (fields.u32()?, fields.u16()?);
    let _size = fields.u16()?;
    let (_identifier, _ip) = (fields.u64()?, fields.u64()?);
    (sample.pid, sample.tid) = (fields.u32()?, fields.u32()?);
    sample.time_ns = fields.u64()?;
    sample.cpu = fields.u32()?;
    fields.u32()?;
    sample.event = 0;
    sample.weight = match layout.period {
        Some(period) => period,
        None => fields.u64()?,
    };
    let mode = u32::from(misc) & bindings::PERF_RECORD_MISC_CPUMODE_MASK;
    sample.in_kernel = mode == bindings::PERF_RECORD_MISC_KERNEL;
    sample.user_fp.clear();
    sample.kernel.clear();
    sample.fp_end = FpEnd::Unknown;
    if layout.has_chain {
        let n = fields.u64()?;
        chain(fields.words(n)?, layout.max_frames, sample);
    }
    sample.user_regs = None;
    // The kernel copies from the stack pointer on.
    sample.bytes_below_sp = 0;
    sample.stack.clear();
    sample.stack_holes.clear();
    (sample.stack_end, sample.interrupted, sample.shed_from) = (None, None, None);
    (sample.withheld, sample.entering_kernel) = (false, false);
    if layout.regs != 0 {
        sample.user_regs = user_regs(&mut fields, layout.regs)?;
    }
    if layout.has_stack {
        let bytes = fields.u64()?;
        if bytes > 0 {
            let stack = fields.bytes(bytes)?;
            let copied = usize::try_from(fields.u64()?).map_err(|_| BadRecord)?;
            sample.stack.extend_from_slice(stack.get(..copied).ok_or(BadRecord)?);
        }
        place_frames(sample, layout.return_address_mask);
    }
    Ok(())
}

/// Splits a chain at the kernel's context markers.
fn chain(addresses: impl Iterator<Item = u64>, max_frames: u64, sample: &mut Sample) {
    let mut part = 0;
    let mut n_frames = 0;
    for address in addresses {
        if address >= bindings::PERF_CONTEXT_MAX {
            part = address;
            continue;
        }
        n_frames += 1;
        match part {
            bindings::PERF_CONTEXT_KERNEL => sample.kernel.push(address),
            bindings::PERF_CONTEXT_USER => sample.user_fp.push(FpFrame { address, frame_address: 0 }),
            _ => {}
        }
    }
    if n_frames >= max_frames {
        sample.fp_end = FpEnd::MaxDepth;
    }
}

/// Converts the requested registers from the kernel's order to DWARF's.
fn user_regs(fields: &mut Fields<'_>, asked: u64) -> Result<Option<UserRegs>, BadRecord> {
    const ABI_NONE: u64 = bindings::PERF_SAMPLE_REGS_ABI_NONE as u64;
    const ABI_32: u64 = bindings::PERF_SAMPLE_REGS_ABI_32 as u64;
    let abi = match fields.u64()? {
        ABI_NONE => return Ok(None),
        ABI_32 => Abi::Bits32,
        _ => Abi::Bits64,
    };
    let mut regs = UserRegs::new(NATIVE, abi, &[]);
    for bit in (0u8..64).filter(|bit| asked >> bit & 1 != 0) {
        let value = fields.u64()?;
        let number = NATIVE.perf_registers().iter().position(|&perf| perf == bit);
        if let Some(own) = number.and_then(|number| regs.values.get_mut(number)) {
            *own = value;
        }
    }
    Ok(Some(regs))
}

/// Locates the frames of the kernel's chain in the copied stack, as far as both agree.
fn place_frames(sample: &mut Sample, mask: u64) {
    let Some(regs) = sample.user_regs else { return };
    let word_bytes = if regs.abi == Abi::Bits32 { 4 } else { 8 };
    let mut fp = regs.fp();
    let mut frames = sample.user_fp.iter_mut().skip(1);
    let is_whole = frames.all(|frame| {
        let word = |address: u64| word_at(&sample.stack, address.checked_sub(regs.sp())?, word_bytes);
        let (next, return_address) = (word(fp), fp.checked_add(word_bytes as u64).and_then(word));
        if return_address.map(|word| word & mask) != Some(frame.address) {
            return false;
        }
        frame.frame_address = fp;
        fp = next.unwrap_or(0);
        true
    });
    if is_whole && fp == 0 && !sample.user_fp.is_empty() && sample.fp_end == FpEnd::Unknown {
        sample.fp_end = FpEnd::Zero;
    }
}

fn word_at(stack: &[u8], offset: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(offset).ok()?;
    let word = stack.get(at..at.checked_add(bytes)?)?;
    match bytes {
        4 => Some(u64::from(u32::from_ne_bytes(word.try_into().ok()?))),
        _ => Some(u64::from_ne_bytes(word.try_into().ok()?)),
    }
}

/// Reads a record's fields from front to back.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: u64) -> Result<&'a [u8], BadRecord> {
        let len = usize::try_from(len).map_err(|_| BadRecord)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord)?;
        self.0 = rest;
        Ok(taken)
    }

    fn words(&mut self, n: u64) -> Result<impl Iterator<Item = u64> + use<'a>, BadRecord> {
        let bytes = self.bytes(n.checked_mul(8).ok_or(BadRecord)?)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)))
    }

    fn u16(&mut self) -> Result<u16, BadRecord> {
        Ok(u16::from_ne_bytes(self.bytes(2)?.try_into().map_err(|_| BadRecord)?))
    }

    fn u32(&mut self) -> Result<u32, BadRecord> {
        Ok(u32::from_ne_bytes(self.bytes(4)?.try_into().map_err(|_| BadRecord)?))
    }

    fn u64(&mut self) -> Result<u64, BadRecord> {
        Ok(u64::from_ne_bytes(self.bytes(8)?.try_into().map_err(|_| BadRecord)?))
    }
}

#[cfg(test)]
mod tests;
