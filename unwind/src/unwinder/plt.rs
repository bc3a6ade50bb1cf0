//! Recognises the stubs by which linkers call other modules, where they have no call frame information: those of lld and mold,
//! and all for aarch64. For x86-64, GNU ld and gold describe theirs.

use super::code::{Code, CodeRow};
use crate::cfi::{CfaRule, RegisterRule, State};
use crate::module::SectionKind;
use crate::space::Modules;
use crate::stack::Root;

/// The row such code would have: it pushes nothing but what the resolver of lazy calls needs.
pub(super) fn row<M: Modules + ?Sized>(modules: &M, code: &Code<'_>) -> Option<CodeRow> {
    let spec = code.module.arch().spec();
    let offset = (spec.plt_cfa)(code.svma, &|svma| code.bytes_at(modules, svma))?;
    let mut state = State { cfa: CfaRule::RegisterOffset { register: spec.sp, offset }, ..State::NEW };
    if spec.lr.is_none() {
        *state.rules.get_mut(usize::from(spec.ip))? = RegisterRule::Offset(-i64::from(spec.word_bytes));
    }
    Some(CodeRow {
        section: SectionKind::EhFrame,
        return_address_register: spec.lr.unwrap_or(spec.ip),
        is_signal_frame: false,
        root: Root::UndefinedRa,
        state,
    })
}
