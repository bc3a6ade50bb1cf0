//! The facts of every architecture.

use super::spec::{Arch, CALL_BYTES, Spec};
use super::{aarch64, i386, x86_64};
use crate::stack::Root;

impl Arch {
    /// The facts about this architecture.
    pub(crate) const fn spec(self) -> &'static Spec {
        match self {
            Self::X86_64 => &x86_64::SPEC,
            Self::Aarch64 => &aarch64::SPEC,
            Self::I386 => &i386::SPEC,
        }
    }

    /// Whether code ends with a call instruction, so that what follows it can be a return address. By chance other
    /// code may seem to.
    #[must_use]
    pub fn ends_with_call(self, before: &[u8; CALL_BYTES]) -> bool {
        (self.spec().ends_with_call)(before)
    }

    /// Whether code is what signal handlers return to, or what the function of a context returns to. Nothing calls
    /// what stands before either: the kernel and `makecontext` have put its address on the stack.
    #[must_use]
    pub fn is_returned_to_without_call(self, code: &[u8; CALL_BYTES]) -> bool {
        (self.spec().signal_frame)(code).is_some() || (self.spec().root_of)(code) == Some(Root::StartContext)
    }

    /// The name of the register with this DWARF number.
    #[must_use]
    pub fn register_name(self, register: u16) -> Option<&'static str> {
        self.spec().names.get(usize::from(register)).copied()
    }

    /// How many registers are followed: DWARF numbers 0 up to this.
    #[must_use]
    pub fn n_registers(self) -> usize {
        self.spec().names.len()
    }
}
