//! AMD64.
//!
//! # Sources
//! System V psABI for AMD64, figures 3.4 (preserved registers) and 3.36 (DWARF numbers). Roots: glibc
//! `sysdeps/unix/sysv/linux/x86_64/{clone,clone3,__start_context}.S`; musl `src/thread/x86_64/clone.s`,
//! `src/env/__libc_start_main.c`.

use super::{ROOT_CODE_BYTES, Spec};
use crate::stack::Root;

/// rbx, rbp, rsp and r12–r15 are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

/// Numbers of registers in instructions.
const RDX: u8 = 2;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// `mov %eax,%edi` and the first byte of a call.
const MOV_EAX_EDI_CALL: &[u8] = &[0x89, 0xc7, 0xe8];

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
    calls_main,
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

/// `exit(main(argc, argv, envp))`, as musl's `libc_start_main_stage2` has it, which is built without call frame
/// information: copies of registers to edi, rsi and rdx in any order; a call through a register; `mov %eax,%edi`; a call.
fn calls_main(before: &[u8; ROOT_CODE_BYTES], behind: &[u8; ROOT_CODE_BYTES]) -> bool {
    let mut rest = match before.as_slice() {
        [rest @ .., 0x41, 0xff, 0xd0..=0xd7] | [rest @ .., 0xff, 0xd0..=0xd7]
            if behind.starts_with(MOV_EAX_EDI_CALL) =>
        {
            rest
        }
        _ => return false,
    };
    let mut written = [false; 8];
    for _ in 0..3 {
        // The register that is written is in the last three bits.
        let (shorter, is_wide, to) = match *rest {
            [ref shorter @ .., 0x48 | 0x4c, 0x89, to @ 0xc0..=0xff] => (shorter, true, to & 7),
            [ref shorter @ .., 0x44, 0x89, to @ 0xc0..=0xff] => (shorter, false, to & 7),
            [ref shorter @ .., 0x89, to @ 0xc0..=0xff] => (shorter, false, to & 7),
            _ => return false,
        };
        let ((RSI | RDX, true) | (RDI, false)) = (to, is_wide) else { return false };
        if let Some(written) = written.get_mut(usize::from(to)) {
            *written = true;
        }
        rest = shorter;
    }
    // Three registers that differ are all of them.
    written.iter().filter(|written| **written).count() == 3
}
