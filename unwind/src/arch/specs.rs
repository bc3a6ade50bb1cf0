//! Looks up the description of an architecture.

use super::spec::{Arch, CALL_BYTES, Spec};
use super::{aarch64, i386, x86_64};
use crate::stack::Root;

impl Arch {
    /// The description of this architecture.
    pub(crate) const fn spec(self) -> &'static Spec {
        match self {
            Self::X86_64 => &x86_64::SPEC,
            Self::Aarch64 => &aarch64::SPEC,
            Self::I386 => &i386::SPEC,
        }
    }

    /// Whether the code ends with a call instruction, so that the address after it can be a return address. Other code
    /// may match by chance.
    #[must_use]
    pub fn ends_with_call(self, before: &[u8; CALL_BYTES]) -> bool {
        (self.spec().ends_with_call)(before)
    }

    /// Whether the code is that which a signal handler or the function of a `makecontext` context returns to. It has no
    /// call before it: the kernel and `makecontext` put its address on the stack.
    #[must_use]
    pub fn is_returned_to_without_call(self, code: &[u8; CALL_BYTES]) -> bool {
        (self.spec().signal_frame)(code).is_some() || (self.spec().root_of)(code) == Some(Root::StartContext)
    }

    /// The name of the register with this DWARF number.
    #[must_use]
    pub fn register_name(self, register: u16) -> Option<&'static str> {
        self.spec().names.get(usize::from(register)).copied()
    }

    /// The number of registers that are tracked: DWARF numbers 0 to this, exclusive.
    #[must_use]
    pub fn n_registers(self) -> usize {
        self.spec().names.len()
    }
}
