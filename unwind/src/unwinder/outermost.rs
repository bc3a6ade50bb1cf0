//! Frames without call frame information at the very end of a stack: either no word above can be their return address,
//! or only the one just below what the kernel put there.
//!
//! ```text
//! stack end ──▶ argc, argv[0] … argv[argc - 1], 0, environment …      as set up by the kernel
//!               return address of the function `_start` called
//!               what that function pushed                             no word here is a return address
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

/// How far below the end of its stack a frame of start code may be. musl's `libc_start_main_stage2` has 64 bytes.
pub const MAX_START_BYTES: u64 = 512;
/// The most arguments a program may have for its stack end to be recognised.
const MAX_ARGUMENTS: u64 = 1 << 16;

/// What is above a frame without call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Above {
    /// Nothing: it is the outermost frame.
    Nothing(Root),
    /// The entry point, which called it: the return address is in the last word of the stack.
    Entry {
        /// That word.
        return_address: u64,
        /// The stack's end.
        sp: u64,
    },
}

/// The end of the stack, if `sp` is just below it.
pub(super) fn near_end<Y: Memory>(spec: &Spec, memory: &Y, sp: u64) -> Option<u64> {
    match memory.stack_end(sp) {
        // sp may be above the end: `ld.so`, run as a program, pops its own arguments.
        Some(end) => (end.saturating_sub(sp) <= MAX_START_BYTES).then_some(end.max(sp)),
        None => (sp..sp.saturating_add(MAX_START_BYTES))
            .step_by(usize::from(spec.word_bytes))
            .find(|&at| at % 16 == 0 && is_argument_count(spec, memory, at)),
    }
}

/// Whether `at` is the argument count the kernel put there: followed by that many pointers and a zero.
fn is_argument_count<Y: Memory>(spec: &Spec, memory: &Y, at: u64) -> bool {
    let word = |index: u64| {
        let place = index.checked_mul(spec.word_bytes.into()).and_then(|offset| at.checked_add(offset))?;
        super::caller::read_word(memory, spec, place).ok()
    };
    let Some(n) = word(0).filter(|n| (1..MAX_ARGUMENTS).contains(n)) else { return false };
    let (first, last, end) = (word(1), word(n), word(n.saturating_add(1)));
    first.is_some_and(|first| first > at && last.is_some_and(|last| first <= last)) && end == Some(0)
}

/// What is above a frame without call frame information whose stack pointer is `sp`; `None` if not certain.
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
            // One of two candidates is stale, and it is unknown which. A single one must be in the entry point's slot.
            match found.replace(word) {
                None if slot.saturating_add(word_bytes) == end => {}
                _ => return None,
            }
        }
        slot = slot.checked_add(word_bytes)?;
    }
    // Outside the entry point, a word above may be a return address into unknown code.
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
    module.is_some_and(|module| module.is_entry_code(lookup.wrapping_sub(modules.bias(mapping))))
}
