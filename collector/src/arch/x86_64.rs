//! x86-64.

use crate::bpf::types;
use fpprof_recording::model::Arch;

/// The architecture recorded on this machine.
pub(crate) const NATIVE: Arch = Arch::X86_64;

/// The selector of 32-bit code.
const USER32_CS: u64 = 0x23;

/// Whether these are the registers of 32-bit code.
pub(crate) fn is_32(regs: &types::user_regs) -> bool {
    regs.cs & 0xffff == USER32_CS
}

/// DWARF register values, from the kernel's order.
///
/// # Sources
/// System V psABI for AMD64, figure 3.36.
pub(crate) fn values(regs: &types::user_regs) -> [u64; 17] {
    [
        regs.ax, regs.dx, regs.cx, regs.bx, regs.si, regs.di, regs.bp, regs.sp, regs.r8, regs.r9, regs.r10, regs.r11,
        regs.r12, regs.r13, regs.r14, regs.r15, regs.ip,
    ]
}

/// All bits: return addresses carry nothing else on x86-64.
pub(crate) fn return_address_mask() -> u64 {
    u64::MAX
}

/// Sets nothing: x86-64 has no settings.
pub(crate) fn configure(_: &mut types::rodata) {}
