//! Frames without call frame information at the very end of a stack: nothing in memory can be their return address, or
//! only the one word where the kernel's layout has it.
//!
//! ```text
//! stack end ──▶ argc, argv[0] … argv[argc - 1], 0, environment …      as the kernel leaves it
//!               return address of what `_start` has called
//!               what that has pushed                                  no word that a call has left
//!        sp ──▶
//! ```
//!
//! # Sources
//! System V psABI for AMD64, figure 3.9 (initial process stack).

use super::code::Code;
use super::resolve::is_after_call;
use crate::arch::Spec;
use crate::memory::Memory;
use crate::space::{Modules, Space};
use crate::stack::Root;

/// How far below the end of its stack the frame of start code may be. musl's `libc_start_main_stage2` has 64 bytes.
const MAX_START_BYTES: u64 = 512;
/// Most arguments of a program whose stack end is looked for.
const MAX_ARGUMENTS: u64 = 1 << 16;

/// What lies above a frame without call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Above {
    /// Nothing: it is the outermost frame.
    Nothing(Root),
    /// The entry point, which has called it with this return address in the last word of the stack.
    Entry {
        /// What is in the word.
        return_address: u64,
        /// The stack's end.
        sp: u64,
    },
}

/// The end of the stack, if `sp` is right below it.
pub(super) fn near_end<Y: Memory>(spec: &Spec, memory: &Y, sp: u64) -> Option<u64> {
    match memory.stack_end(sp) {
        // Above the end are the arguments of `ld.so` that it has taken off.
        Some(end) => (end.saturating_sub(sp) <= MAX_START_BYTES).then_some(end.max(sp)),
        None => (sp..sp.saturating_add(MAX_START_BYTES))
            .step_by(usize::from(spec.word_bytes))
            .find(|&at| at % 16 == 0 && is_argument_count(spec, memory, at)),
    }
}

/// Whether this is how the kernel has left the stack of a program: the number of arguments, pointers to them, zero.
fn is_argument_count<Y: Memory>(spec: &Spec, memory: &Y, at: u64) -> bool {
    let word = |index: u64| {
        let place = index.checked_mul(spec.word_bytes.into()).and_then(|offset| at.checked_add(offset))?;
        super::caller::read_word(memory, spec, place).ok()
    };
    let Some(n) = word(0).filter(|n| (1..MAX_ARGUMENTS).contains(n)) else { return false };
    let (first, last, end) = (word(1), word(n), word(n.saturating_add(1)));
    first.is_some_and(|first| first > at && last.is_some_and(|last| first <= last)) && end == Some(0)
}

/// What lies above a frame without call frame information whose stack pointer is `sp`; `None` where that cannot be told.
pub(super) fn above<M: Modules + ?Sized, Y: Memory>(
    modules: &M,
    space: &Space,
    code: &Code<'_>,
    memory: &Y,
    sp: u64,
) -> Option<Above> {
    let spec = code.module.arch().spec();
    let end = near_end(spec, memory, sp)?;
    let word_bytes = u64::from(spec.word_bytes);
    let mut found = None;
    let mut slot = sp;
    while slot < end {
        let word = super::caller::read_word(memory, spec, slot).ok()? & spec.return_address_mask;
        if is_after_call(modules, space, spec, word) {
            // Two may be a return address and what is left of another; only one can be what the entry point has called.
            match found.replace(word) {
                None if slot.saturating_add(word_bytes) == end => {}
                _ => return None,
            }
        }
        slot = slot.checked_add(word_bytes)?;
    }
    // Elsewhere than in the entry point, what lies above may be a return address into code that is not known.
    let is_entry = code.module.is_entry_code(code.svma);
    match found {
        None if is_entry => Some(Above::Nothing(Root::Start)),
        None if sp == end => Some(Above::Nothing(Root::StackEnd)),
        Some(return_address) if !is_entry && is_in_entry(modules, space, return_address) => {
            Some(Above::Entry { return_address, sp: end })
        }
        _ => None,
    }
}

fn is_in_entry<M: Modules + ?Sized>(modules: &M, space: &Space, return_address: u64) -> bool {
    let lookup = return_address.wrapping_sub(1);
    let Some(mapping) = space.find(lookup) else { return false };
    let module = mapping.module.and_then(|id| modules.module(id).ok());
    module.is_some_and(|module| module.is_entry_code(lookup.wrapping_sub(mapping.bias)))
}
