//! AMD64.
//!
//! # Sources
//! System V psABI for AMD64, figures 3.4 (preserved registers) and 3.36 (DWARF numbers). Roots: glibc
//! `sysdeps/unix/sysv/linux/x86_64/{clone,clone3,__start_context}.S`; musl `src/thread/x86_64/clone.s`.

use super::{ROOT_CODE_BYTES, Spec};
use crate::stack::Root;

/// rbx, rbp, rsp and r12–r15 are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

/// The facts.
pub(super) const SPEC: Spec = Spec {
    names: &[
        "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "rip",
    ],
    sp: 7,
    fp: 6,
    ip: 16,
    lr: None,
    callee_saved: CALLEE_SAVED,
    word_bytes: 8,
    address_mask: u64::MAX,
    return_address_mask: u64::MAX,
    vendor: gimli::Vendor::Default,
    root_of,
};

fn root_of(code: &[u8; ROOT_CODE_BYTES]) -> Option<Root> {
    match code {
        // mov %rax,%rdi; mov $SYS_exit,%eax; syscall, and as musl has it with two instructions for the number.
        [0x48, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, ..] | [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05, ..] => {
            Some(Root::ThreadStart)
        }
        // mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi: nothing else takes its stack from there.
        [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, ..] => Some(Root::StartContext),
        _ => None,
    }
}
