//! The kernel's walk in mode `cfi`, made in user space.

use crate::decode::cfi_end;
use crate::sys::host_walk;
use fpprof_recording::model::{Abi, CfiEnd, Sample};

/// Walks the copied stacks of an x86-64 sample by call frame information with the same code as the kernel's walk, and
/// stores the frames and the end of the walk in the sample, as if the kernel had made it. 32-bit code is not walked.
/// `rule` returns the rule of the code at an address, as made by `fpprof_unwind::Unwinder::function_rules`.
pub fn walk_copied_stack(sample: &mut Sample, mut rule: impl FnMut(u64) -> Option<u64>) {
    let Some(regs) = &sample.user_regs else { return };
    if regs.abi != Abi::Bits64 {
        (sample.cfi_end, sample.cfi_frames) = (Some(CfiEnd::Abi32), Vec::new());
        return;
    }
    let interrupted = sample.interrupted.as_ref().map_or((0, &[][..]), |own| (own.stack_start(), &*own.stack));
    let stacks = [(sample.stack_start(), &*sample.stack), interrupted];
    let (end, frames) = host_walk([regs.ip(), regs.sp(), regs.fp()], stacks, &mut rule);
    (sample.cfi_end, sample.cfi_frames) = (cfi_end(end), frames);
}
