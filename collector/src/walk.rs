//! The kernel's walk in mode `cfi`, made in user space.

use crate::bpf::types::limit;
use crate::decode::cfi_end;
use crate::sys::{HostCode, host_walk};
use fpprof_recording::model::{Abi, CfiEnd, Sample};

/// The rule of executable memory that belongs to no file, see [`walk_copied_stack`].
pub const JIT_RULE: u64 = limit::RULE_JIT.0 as u64;

/// Walks the copied stacks of an x86-64 sample by call frame information with the same code as the kernel's walk, and
/// stores the frames and the end of the walk in the sample, as if the kernel had made it. 32-bit code is not walked.
///
/// `rule` returns the rule of the code at an address, as made by `fpprof_unwind::Unwinder::function_rules`, or
/// [`JIT_RULE`]. `code_before` returns the eight bytes of a file's code before a return address: `None` if the address is
/// not one of executable memory, and `Some(None)` if they are not known.
pub fn walk_copied_stack(
    sample: &mut Sample,
    rule: impl FnMut(u64) -> Option<u64>,
    code_before: impl FnMut(u64) -> Option<Option<[u8; 8]>>,
) {
    let Some(regs) = &sample.user_regs else { return };
    if regs.abi != Abi::Bits64 {
        (sample.cfi_end, sample.cfi_frames) = (Some(CfiEnd::Abi32), Vec::new());
        return;
    }
    let interrupted = sample.interrupted.as_ref().map_or((0, &[][..]), |own| (own.stack_start(), &*own.stack));
    let stacks = [(sample.stack_start(), &*sample.stack), interrupted];
    let ends = [sample.stack_end, sample.interrupted.as_ref().and_then(|own| own.stack_end)];
    let ends = ends.map(|end| end.map_or(0, |end| end.address));
    let mut code = HostCode { rule, before: code_before };
    let (end, frames) = host_walk([regs.ip(), regs.sp(), regs.fp()], stacks, ends, &mut code);
    (sample.cfi_end, sample.cfi_frames) = (cfi_end(end), frames);
}
