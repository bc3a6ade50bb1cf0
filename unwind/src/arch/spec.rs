//! The items every architecture defines.

use super::{aarch64, i386, x86_64};
use crate::stack::Root;

/// Bytes of code that tell a root.
pub(crate) const ROOT_CODE_BYTES: usize = 16;

/// A processor architecture whose stacks can be unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Arch {
    /// AMD64.
    #[default]
    X86_64,
    /// 64-bit ARM, little-endian.
    Aarch64,
    /// 32-bit x86: 4-byte words.
    I386,
}

/// The facts about one architecture.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Register names by DWARF number; as many as there are registers we follow.
    pub(crate) names: &'static [&'static str],
    /// DWARF number of the stack pointer.
    pub(crate) sp: u16,
    /// DWARF number of the frame pointer.
    pub(crate) fp: u16,
    /// DWARF number of the instruction pointer.
    pub(crate) ip: u16,
    /// Where a call leaves the return address: `None` is the stack.
    pub(crate) lr: Option<u16>,
    /// Registers a callee preserves, as a bit set of DWARF numbers: no rule means the same value.
    pub(crate) callee_saved: u64,
    /// Bytes of a stack word, of an address and of the alignment a CFA has.
    pub(crate) word_bytes: u8,
    /// Bits of an address.
    pub(crate) address_mask: u64,
    /// Bits of a return address that are address; the others are a signature.
    pub(crate) return_address_mask: u64,
    /// Whose vendor instructions a CFI program may hold.
    pub(crate) vendor: gimli::Vendor,
    /// The root whose code stands at an outermost return address.
    pub(crate) root_of: fn(&[u8; ROOT_CODE_BYTES]) -> Option<Root>,
    /// Whether this is the call of `main` by start code without rows: the code before its return address, and behind.
    pub(crate) calls_main: fn(&[u8; ROOT_CODE_BYTES], &[u8; ROOT_CODE_BYTES]) -> bool,
}

impl Arch {
    /// The facts about this architecture.
    pub(crate) const fn spec(self) -> &'static Spec {
        match self {
            Self::X86_64 => &x86_64::SPEC,
            Self::Aarch64 => &aarch64::SPEC,
            Self::I386 => &i386::SPEC,
        }
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
