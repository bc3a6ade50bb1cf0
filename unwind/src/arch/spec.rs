//! The items every architecture defines.

use crate::stack::Root;

/// Bytes of code needed to recognise a root.
pub(crate) const ROOT_CODE_BYTES: usize = 16;
/// Bytes of code before a return address needed to recognise a thread's start. In musl's `clone`, the instruction that
/// loads the system call number is 45 bytes before the return address.
pub(crate) const START_CODE_BYTES: usize = 64;
/// Bytes of code before a return address needed to recognise the call.
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

/// Where registers are saved: (DWARF number, byte offset from the stack pointer).
pub(crate) type SavedRegisters = &'static [(u16, i64)];

/// Reads code at an SVMA.
pub(crate) type CodeAt<'a> = &'a dyn Fn(u64) -> Option<[u8; ROOT_CODE_BYTES]>;

/// Describes one architecture.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Register names by DWARF number; as many as there are registers we track.
    pub(crate) names: &'static [&'static str],
    /// DWARF number of the stack pointer.
    pub(crate) sp: u16,
    /// DWARF number of the frame pointer.
    pub(crate) fp: u16,
    /// DWARF number of the instruction pointer.
    pub(crate) ip: u16,
    /// The link register; `None` where a call pushes the return address on the stack.
    pub(crate) lr: Option<u16>,
    /// Registers a callee preserves, as a bit set of DWARF numbers. Without a rule they keep their value.
    pub(crate) callee_saved: u64,
    /// Size of a stack word and of an address, and the alignment of a CFA, in bytes.
    pub(crate) word_bytes: u8,
    /// Bytes below the stack pointer that belong to the running function and that a signal handler leaves alone.
    pub(crate) red_zone_bytes: u64,
    /// Mask of the bits that make up an address.
    pub(crate) address_mask: u64,
    /// Mask of the address bits of a return address; the others are a signature (pointer authentication).
    pub(crate) return_address_mask: u64,
    /// The vendor whose extensions a CFI program may use.
    pub(crate) vendor: gimli::Vendor,
    /// Recognises a root by the code at an outermost return address.
    pub(crate) root_of: fn(&[u8; ROOT_CODE_BYTES]) -> Option<Root>,
    /// Whether the code before a return address is the call by which a C library's `clone` starts a thread: right after
    /// the system call that created it.
    pub(crate) starts_thread: fn(&[u8; START_CODE_BYTES]) -> bool,
    /// Whether the code before a return address ends with a call.
    pub(crate) ends_with_call: fn(&[u8; ROOT_CODE_BYTES]) -> bool,
    /// Whether the code before an instruction ends with a system call.
    pub(crate) ends_with_system_call: fn(&[u8; ROOT_CODE_BYTES]) -> bool,
    /// If the code returns from a signal handler: its length, and where the kernel saved the registers of the interrupted
    /// thread, in bytes from the stack pointer at this code.
    pub(crate) signal_frame: fn(&[u8; ROOT_CODE_BYTES]) -> Option<(usize, SavedRegisters)>,
    /// If an address is in a stub by which a linker calls another module: the CFA, in bytes from the stack pointer. The return
    /// address is in the link register, or below the CFA if there is none.
    pub(crate) plt_cfa: fn(u64, CodeAt<'_>) -> Option<i64>,
}

/// Whether the code contains one of the instructions in `numbers`, which load a system call number, followed by `call`.
pub(super) fn has_system_call(code: &[u8], numbers: &[&[u8]], call: &[u8]) -> bool {
    let position = |bytes: &[u8], code: &[u8]| code.windows(bytes.len()).position(|window| window == bytes);
    let rest = numbers.iter().filter_map(|number| code.get(position(number, code)?..));
    rest.into_iter().any(|rest| position(call, rest).is_some())
}
