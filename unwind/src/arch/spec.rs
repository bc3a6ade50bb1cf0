//! The items every architecture defines.

use crate::stack::Root;

/// Bytes of code that tell a root.
pub(crate) const ROOT_CODE_BYTES: usize = 16;
/// Bytes of code before a return address that tell whether a thread starts there. In musl's `clone` the system call's number
/// stands 45 bytes before.
pub(crate) const START_CODE_BYTES: usize = 64;
/// Bytes of code before a return address that tell whether a call has left it.
pub const CALL_BYTES: usize = ROOT_CODE_BYTES;

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

/// Where registers lie: DWARF numbers, and bytes from the stack pointer.
pub(crate) type SavedRegisters = &'static [(u16, i64)];

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
    /// Bytes below the stack pointer that belong to the running function and that a signal handler leaves alone.
    pub(crate) red_zone_bytes: u64,
    /// Bits of an address.
    pub(crate) address_mask: u64,
    /// Bits of a return address that are address; the others are a signature.
    pub(crate) return_address_mask: u64,
    /// Whose vendor instructions a CFI program may hold.
    pub(crate) vendor: gimli::Vendor,
    /// The root whose code stands at an outermost return address.
    pub(crate) root_of: fn(&[u8; ROOT_CODE_BYTES]) -> Option<Root>,
    /// Whether the code before a return address is the call with which a C library's `clone` starts a thread: right behind
    /// the system call that has made it.
    pub(crate) starts_thread: fn(&[u8; START_CODE_BYTES]) -> bool,
    /// Whether the code before a return address ends with a call.
    pub(crate) ends_with_call: fn(&[u8; ROOT_CODE_BYTES]) -> bool,
    /// Whether the code before an instruction ends with a system call.
    pub(crate) ends_with_system_call: fn(&[u8; ROOT_CODE_BYTES]) -> bool,
    /// Where the kernel puts the registers of an interrupted thread, in bytes from the stack pointer at which code
    /// like this gives them back.
    pub(crate) signal_frame: fn(&[u8; ROOT_CODE_BYTES]) -> Option<SavedRegisters>,
}

/// Whether code has one of these instructions, which load the number of a system call, and behind it the call.
pub(super) fn has_system_call(code: &[u8], numbers: &[&[u8]], call: &[u8]) -> bool {
    let behind = |bytes: &[u8], code: &[u8]| code.windows(bytes.len()).position(|window| window == bytes);
    let rest = numbers.iter().filter_map(|number| code.get(behind(number, code)?..));
    rest.into_iter().any(|rest| behind(call, rest).is_some())
}
