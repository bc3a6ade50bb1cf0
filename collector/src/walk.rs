//! The kernel's walk in mode `cfi`, made in user space.

use crate::bpf::types::rule_layout;
use crate::decode::cfi_end;
use crate::sys::{HostCode, host_walk};
use fpprof_recording::model::{Abi, CfiEnd, Sample};

/// The rule of executable memory that belongs to no file, see [`walk_copied_stack`].
pub const JIT_RULE: u64 = rule_layout::RULE_JIT.0 as u64;

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

#[cfg(test)]
mod tests {
    use crate::bpf::types::{cfi_end, limit, rule_layout};
    use fpprof_unwind::{StopReason, TruncatedReason, rules};

    /// Check that the kernel's walk reads rules as the unwinder writes them, and has the same limits.
    #[test]
    fn rules_are_those_of_the_unwinder() {
        let kinds = [
            (rule_layout::RULE_PLT, rules::PLT),
            (rule_layout::RULE_FULL, rules::FULL),
            (rule_layout::RULE_STOP, rules::STOP),
            (rule_layout::RULE_SIGNAL, rules::SIGNAL),
            (rule_layout::RULE_SIMPLE, rules::SIMPLE),
        ];
        let bits = [
            (rule_layout::RULE_KIND_MASK, rules::KIND_MASK),
            (rule_layout::RULE_BY_FP, rules::BY_FP),
            (rule_layout::RULE_FP_SAVED, rules::FP_SAVED),
            (rule_layout::RULE_FP_RESTORED, rules::FP_RESTORED),
            (rule_layout::RULE_AT_ENTRY, rules::AT_ENTRY),
            (rule_layout::RULE_STOP_SHIFT, rules::STOP_SHIFT.into()),
            (rule_layout::RULE_FP_SHIFT, rules::FP_SHIFT.into()),
            (rule_layout::RULE_CFA_SHIFT, rules::CFA_SHIFT.into()),
        ];
        for (ours, theirs) in kinds.into_iter().chain(bits) {
            assert_eq!(u64::from(ours.0), theirs);
        }
        assert!(
            kinds.iter().all(|(ours, _)| *ours != rule_layout::RULE_JIT)
                && rule_layout::RULE_JIT.0 & rule_layout::RULE_SIMPLE.0 == 0
        );
        assert_eq!(limit::MAX_BETWEEN.0 as usize, rules::MAX_BETWEEN);
        assert_eq!(u64::from(limit::MAX_START_BYTES.0), rules::MAX_START_BYTES);
        assert_eq!(u64::from(limit::MAX_ARGUMENT_BYTES.0), rules::MAX_ARGUMENT_BYTES);
    }

    /// Check that both number the reasons why walks end alike.
    #[test]
    fn ends_are_those_of_the_unwinder() {
        for (code, stop) in (0..).zip(rules::STOPS) {
            let end =
                super::cfi_end(cfi_end(code + 1)).filter(|_| code < rule_layout::RULE_ROOTS.0).map(|end| end.name());
            let root = match stop {
                // Some names of roots begin with underscores there.
                StopReason::Complete(root) => Some(root.name().trim_start_matches('_')),
                _ => None,
            };
            assert_eq!(end, root, "{code}");
        }
        let no_cfi = rules::STOPS.get(rule_layout::RULE_NO_CFI.0 as usize);
        assert_eq!(no_cfi, Some(&StopReason::Truncated(TruncatedReason::NoCfi)));
    }
}
