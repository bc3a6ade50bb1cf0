//! 64-bit ARM.
//!
//! # Sources
//! DWARF for the Arm 64-bit Architecture (AADWARF64) §4.1 (numbers); Procedure Call Standard (AAPCS64) §6.1.1
//! (x19–x29 preserved); Linux `Documentation/arch/arm64/pointer-authentication.rst` (where the signature lies). Roots:
//! glibc `sysdeps/unix/sysv/linux/aarch64/{clone,clone3,setcontext}.S`. Signal frames: the kernel's
//! `arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h` and `struct rt_sigframe` in `arch/arm64/kernel/signal.c`, musl
//! `src/signal/aarch64/restore.s`.

use super::spec::has_system_call;
use super::{CodeAt, ROOT_CODE_BYTES, START_CODE_BYTES, SavedRegisters, Spec};
use crate::stack::Root;

/// x19–x29 are preserved.
const CALLEE_SAVED: u64 = 0x7ff << 19;

/// Registers of `struct sigcontext`, by offset in `struct rt_sigframe`, which `rt_sigreturn` finds at the stack pointer.
const SIGFRAME: SavedRegisters = &[
    (0, 312),
    (1, 320),
    (2, 328),
    (3, 336),
    (4, 344),
    (5, 352),
    (6, 360),
    (7, 368),
    (8, 376),
    (9, 384),
    (10, 392),
    (11, 400),
    (12, 408),
    (13, 416),
    (14, 424),
    (15, 432),
    (16, 440),
    (17, 448),
    (18, 456),
    (19, 464),
    (20, 472),
    (21, 480),
    (22, 488),
    (23, 496),
    (24, 504),
    (25, 512),
    (26, 520),
    (27, 528),
    (28, 536),
    (29, 544),
    (30, 552),
    (31, 560),
    (32, 568),
];

/// The aarch64 description. User addresses have 48 bits; the bits above them in a return address are its signature
/// (PAC).
pub(super) const SPEC: Spec = Spec {
    names: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
    ],
    sp: 31,
    fp: 29,
    ip: 32,
    lr: Some(30),
    callee_saved: CALLEE_SAVED,
    word_bytes: 8,
    red_zone_bytes: 0,
    address_mask: u64::MAX,
    return_address_mask: (1 << 48) - 1,
    vendor: gimli::Vendor::AArch64,
    root_of,
    starts_thread,
    ends_with_call,
    // svc #0
    ends_with_system_call: |before| matches!(before, [.., 0x01, 0, 0, 0xd4]),
    // mov x8, #SYS_rt_sigreturn; svc #0
    signal_frame: |code| matches!(code, [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4, ..]).then_some((8, SIGFRAME)),
    plt_cfa,
};

/// A stub that jumps through a slot: the return address is still in x30. Not the first one of `.plt`, which stores it.
///
/// # Sources
/// ELF for the Arm 64-bit Architecture, §9.1; lld `ELF/Arch/AArch64.cpp` (`writePlt`); binutils `bfd/elfnn-aarch64.c`.
fn plt_cfa(svma: u64, code_at: CodeAt<'_>) -> Option<i64> {
    // adrp x16; ldr x17, [x16, #low]; add x16, x16, #low; br x17
    let is_stub = |code: [u8; ROOT_CODE_BYTES]| {
        let [adrp, ldr, add, br] = [0, 4, 8, 12].map(|at| match code.get(at..) {
            Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
            _ => 0,
        });
        adrp & 0x9f00_001f == 0x9000_0010
            && ldr & 0xffc0_03ff == 0xf940_0211
            && add & 0xffc0_03ff == 0x9100_0210
            && br == 0xd61f_0220
    };
    // A return address, less one, is in no stub.
    if !svma.is_multiple_of(4) {
        return None;
    }
    let starts = [0, 4, 8, 12].map(|before| svma.wrapping_sub(before));
    let start = starts.into_iter().find(|&start| code_at(start).is_some_and(is_stub)).or_else(|| {
        // bti c
        let is_before = matches!(code_at(svma)?, [0x5f, 0x24, 0x03, 0xd5, ..]);
        let start = svma.wrapping_add(4);
        (is_before && is_stub(code_at(start)?)).then_some(start)
    })?;
    // stp x16, x30, [sp, #-16]!
    let is_first = matches!(code_at(start.wrapping_sub(4)), Some([0xf0, 0x7b, 0xbf, 0xa9, ..]));
    (!is_first).then_some(0)
}

/// `blr` after `mov x8, #SYS_clone` or `#SYS_clone3`, and `svc #0`.
fn starts_thread(before: &[u8; START_CODE_BYTES]) -> bool {
    const CLONE: &[&[u8]] = &[&[0x88, 0x1b, 0x80, 0xd2], &[0x68, 0x36, 0x80, 0xd2]];
    matches!(before, [.., _, 0x3f, 0xd6]) && has_system_call(before, CLONE, &[0x01, 0, 0, 0xd4])
}

fn root_of(code: &[u8; ROOT_CODE_BYTES]) -> Option<Root> {
    match code {
        // mov x8, #SYS_exit; svc #0
        [0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4, ..] => Some(Root::ThreadStart),
        // nop or bti; mov x0, x19; cbnz x0, setcontext; b exit
        [_, _, 0x03, 0xd5, 0xe0, 0x03, 0x13, 0xaa, _, _, _, 0xb5, _, _, _, 0x14..0x18] => Some(Root::StartContext),
        _ => None,
    }
}

/// `bl`, `blr`, or `blr` of a signed pointer.
fn ends_with_call(before: &[u8; ROOT_CODE_BYTES]) -> bool {
    matches!(before, [.., 0x94..=0x97] | [.., 0x3f, 0xd6 | 0xd7])
}
