//! Recognises code that returns from a signal handler but has no call frame information, such as musl's `__restore_rt`.

use super::code::{Code, CodeRow};
use crate::arch::{ROOT_CODE_BYTES, SavedRegisters};
use crate::cfi::{CfaRule, RegisterRule, State};
use crate::module::SectionKind;
use crate::space::Modules;
use crate::stack::Root;

/// The row such code would have, if `code` is the return address into it, or an address in it: also the one just behind its
/// system call, which no row covers. The kernel saved the registers above the stack pointer that the handler returns with.
pub(super) fn row<M: Modules + ?Sized>(modules: &M, code: &Code<'_>) -> Option<CodeRow> {
    let spec = code.module.arch().spec();
    let saved = match (spec.signal_frame)(&code.code_after(modules)?) {
        Some((_, saved)) => saved,
        None => around(modules, code)?,
    };
    let mut state = State { cfa: CfaRule::RegisterOffset { register: spec.sp, offset: 0 }, ..State::NEW };
    for &(register, offset) in saved {
        if let Some(rule) = state.rules.get_mut(usize::from(register)) {
            *rule = RegisterRule::Offset(offset);
        }
    }
    Some(CodeRow {
        section: SectionKind::EhFrame,
        return_address_register: spec.ip,
        is_signal_frame: true,
        root: Root::UndefinedRa,
        state,
    })
}

/// Where registers are saved, if the address is in such code or just behind it.
fn around<M: Modules + ?Sized>(modules: &M, code: &Code<'_>) -> Option<SavedRegisters> {
    const BEFORE: usize = ROOT_CODE_BYTES - 1;
    let spec = code.module.arch().spec();
    let around: [u8; BEFORE + ROOT_CODE_BYTES] = code.bytes_at(modules, code.svma.wrapping_sub(BEFORE as u64))?;
    around.windows(ROOT_CODE_BYTES).zip((0..=BEFORE).rev()).find_map(|(window, before)| {
        let (bytes, saved) = (spec.signal_frame)(window.first_chunk()?)?;
        (before <= bytes).then_some(saved)
    })
}
