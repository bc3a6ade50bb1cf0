//! AMD64.
//!
//! # Sources
//! System V psABI for AMD64, figures 3.4 (preserved registers) and 3.36 (DWARF numbers), §3.2.2 (red zone). Roots: glibc
//! `sysdeps/unix/sysv/linux/x86_64/{clone,clone3,__start_context}.S`; musl `src/thread/x86_64/clone.s`. Signal frames: the
//! kernel's `arch/x86/include/uapi/asm/{ucontext,sigcontext}.h`, glibc `sigaction.c`, musl `src/signal/x86_64/restore.s`.

use super::spec::has_system_call;
use super::{CodeAt, ROOT_CODE_BYTES, START_CODE_BYTES, SavedRegisters, Spec};
use crate::stack::Root;

/// rbx, rbp, rsp and r12–r15 are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

/// Registers of `struct sigcontext`, by offset in `struct ucontext`, which `rt_sigreturn` finds at the stack pointer.
const UCONTEXT: SavedRegisters = &[
    (8, 40),
    (9, 48),
    (10, 56),
    (11, 64),
    (12, 72),
    (13, 80),
    (14, 88),
    (15, 96),
    (5, 104),
    (4, 112),
    (6, 120),
    (3, 128),
    (1, 136),
    (0, 144),
    (2, 152),
    (7, 160),
    (16, 168),
];

/// The x86-64 description.
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
    red_zone_bytes: 128,
    address_mask: u64::MAX,
    return_address_mask: u64::MAX,
    vendor: gimli::Vendor::Default,
    root_of,
    starts_thread,
    ends_with_call,
    // syscall
    ends_with_system_call: |before| matches!(before, [.., 0x0f, 0x05]),
    signal_frame,
    plt_cfa,
};

fn root_of(code: &[u8; ROOT_CODE_BYTES]) -> Option<Root> {
    match code {
        // mov %rax,%rdi; mov $SYS_exit,%eax; syscall; musl takes two instructions to load the number.
        [0x48, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, ..] | [0x89, 0xc7, 0x31, 0xc0, 0xb0, 60, 0x0f, 0x05, ..] => {
            Some(Root::ThreadStart)
        }
        // mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi: no other code loads its stack pointer from rbx this way.
        [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, ..] => Some(Root::StartContext),
        _ => None,
    }
}

/// `pop %rax; pop %rdi; call *%rax` and `mov %r8,%rdi; call *%rdx` of glibc, `pop %rdi; call *%r9` of musl, after a
/// `clone` or `clone3` system call.
fn starts_thread(before: &[u8; START_CODE_BYTES]) -> bool {
    const CLONE: &[&[u8]] = &[&[0xb8, 56, 0, 0, 0], &[0xb0, 56], &[0xb8, 0xb3, 1, 0, 0]];
    matches!(before, [.., 0x58, 0x5f, 0xff, 0xd0] | [.., 0x4c, 0x89, 0xc7, 0xff, 0xd2] | [.., 0x5f, 0x41, 0xff, 0xd1])
        && has_system_call(before, CLONE, &[0x0f, 0x05])
}

/// `mov $SYS_rt_sigreturn,%rax` or `%eax`; `syscall`.
fn signal_frame(code: &[u8; ROOT_CODE_BYTES]) -> Option<(usize, SavedRegisters)> {
    match code {
        [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05, ..] => Some((9, UCONTEXT)),
        [0xb8, 15, 0, 0, 0, 0x0f, 0x05, ..] => Some((7, UCONTEXT)),
        _ => None,
    }
}

/// The stubs of `.plt`, `.plt.sec` and `.plt.got`. Those for lazy calls push an index, and go on to the first one of `.plt`,
/// which pushes an address.
///
/// # Sources
/// lld `ELF/Arch/X86_64.cpp` (`writePltHeader`, `writePlt`, `writeIBTPlt`), mold `src/arch-x86-64.cc` (`write_plt_entry`,
/// `write_pltgot_entry`).
fn plt_cfa(svma: u64, code_at: CodeAt<'_>) -> Option<i64> {
    let at = svma % ROOT_CODE_BYTES as u64;
    let (pushed_before, push_ends) = match code_at(svma.wrapping_sub(at))? {
        // push slot(%rip); jmp *slot(%rip); nopl 0(%rax)
        [0xff, 0x35, _, _, _, _, 0xff, 0x25, _, _, _, _, 0x0f, 0x1f, 0x40, 0] => (8, Some(6)),
        // jmp *slot(%rip); push $index; jmp
        [0xff, 0x25, _, _, _, _, 0x68, _, _, _, _, 0xe9, ..] => (0, Some(11)),
        // endbr64; push $index; jmp; xchg %ax,%ax
        [0xf3, 0x0f, 0x1e, 0xfa, 0x68, _, _, _, _, 0xe9, _, _, _, _, 0x66, 0x90] => (0, Some(9)),
        // endbr64; mov $index,%r11d; jmp *slot(%rip)
        [0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, _, _, _, _, 0xff, 0x25, ..]
        // endbr64; jmp *slot(%rip)
        | [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..] => (0, None),
        _ => return None,
    };
    let pushed = if push_ends.is_some_and(|end| at >= end) { 8 } else { 0 };
    Some(8 + pushed_before + pushed)
}

/// A `call`, direct or through a register or memory, of any encoded length.
///
/// # Sources
/// Intel SDM volume 2, "CALL" (opcodes E8 and FF /2) and tables 2-2 and 2-3 (bytes of an operand in memory).
pub(super) fn ends_with_call(before: &[u8; ROOT_CODE_BYTES]) -> bool {
    if before[ROOT_CODE_BYTES - 5] == 0xe8 {
        return true;
    }
    (2..=7).any(|len| match before.get(ROOT_CODE_BYTES - len..) {
        Some(&[0xff, operand, ref rest @ ..]) if operand >> 3 & 7 == 2 => {
            len == 2 + operand_bytes(operand, rest.first())
        }
        _ => false,
    })
}

/// Number of bytes (SIB and displacement) that follow the `ModRM` byte `operand`.
fn operand_bytes(operand: u8, next: Option<&u8>) -> usize {
    let (mode, is_scaled) = (operand >> 6, operand & 7 == 4);
    let scale = usize::from(is_scaled);
    match mode {
        0 if operand & 7 == 5 || is_scaled && next.is_some_and(|next| next & 7 == 5) => scale + 4,
        0 => scale,
        1 => scale + 1,
        2 => scale + 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOT_CODE_BYTES, ends_with_call};

    /// Check that calls of every length are recognised, and that similar bytes are not.
    #[test]
    fn calls_are_known_by_their_ends() {
        let ends = |bytes: &[u8]| {
            let mut code = [0x90; ROOT_CODE_BYTES];
            code[ROOT_CODE_BYTES - bytes.len()..].copy_from_slice(bytes);
            ends_with_call(&code)
        };
        let calls: [&[u8]; 11] = [
            &[0xe8, 0, 0, 0, 0],
            &[0xff, 0xd0],                         // call *%rax
            &[0x41, 0xff, 0xd4],                   // call *%r12
            &[0x3e, 0xff, 0xd2],                   // notrack call *%rdx
            &[0xff, 0x13],                         // call *(%rbx)
            &[0xff, 0x14, 0xc3],                   // call *(%rbx,%rax,8)
            &[0xff, 0x50, 0x18],                   // call *0x18(%rax)
            &[0xff, 0x54, 0x24, 0x08],             // call *8(%rsp)
            &[0xff, 0x15, 1, 2, 3, 4],             // call *0x4030201(%rip)
            &[0xff, 0x92, 0, 1, 0, 0],             // call *0x100(%rdx)
            &[0x41, 0xff, 0x94, 0xc4, 0, 1, 0, 0], // call *0x100(%r12,%rax,8)
        ];
        for call in calls {
            assert!(ends(call), "{call:x?}");
        }
        assert!(ends(&[0xff, 0x14, 0xc5, 1, 2, 3, 4]), "call *0x4030201(,%rax,8)");
        let others: [&[u8]; 6] = [
            &[0x90],
            &[0xe9, 0, 0, 0, 0],
            &[0xff, 0xe0],          // jmp *%rax
            &[0xff, 0x14],          // one byte is missing
            &[0xff, 0x15, 1, 2, 3], // also truncated
            &[0xe8, 0, 0, 0],
        ];
        for other in others {
            assert!(!ends(other), "{other:x?}");
        }
    }
}
