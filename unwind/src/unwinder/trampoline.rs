//! Recognises code that returns from a signal handler but has no call frame information, such as musl's `__restore_rt`.

use super::code::{Code, CodeRow};
use crate::cfi::{CfaRule, RegisterRule, State};
use crate::module::SectionKind;
use crate::space::Modules;
use crate::stack::Root;

/// The row such code would have, if `code` is the return address into it. The kernel saved the registers above the
/// stack pointer that the handler returns with.
pub(super) fn row<M: Modules + ?Sized>(modules: &M, code: &Code<'_>) -> Option<CodeRow> {
    let spec = code.module.arch().spec();
    let saved = (spec.signal_frame)(&code.code_after(modules)?)?;
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
