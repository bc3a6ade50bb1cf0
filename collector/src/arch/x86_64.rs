//! x86-64.

use super::entry::EntryStage;
use crate::bpf::types;
use fpprof_recording::model::Arch;

/// What is recorded here.
pub(crate) const NATIVE: Arch = Arch::X86_64;

/// The selector of 32-bit code.
const USER32_CS: u64 = 0x23;

/// Whether they are those of 32-bit code.
pub(crate) fn is_32(regs: &types::user_regs) -> bool {
    regs.cs & 0xffff == USER32_CS
}

/// From the kernel's order to DWARF's.
///
/// # Sources
/// System V psABI for AMD64, figure 3.36.
pub(crate) fn values(regs: &types::user_regs) -> [u64; 17] {
    [
        regs.ax, regs.dx, regs.cx, regs.bx, regs.si, regs.di, regs.bp, regs.sp, regs.r8, regs.r9, regs.r10, regs.r11,
        regs.r12, regs.r13, regs.r14, regs.r15, regs.ip,
    ]
}

/// Return addresses are addresses and nothing else.
pub(crate) fn return_address_mask() -> u64 {
    u64::MAX
}

/// Nothing is to be set.
pub(crate) fn configure(_: &mut types::rodata) {}

/// perf's number of the stack pointer, to be asked for as an interrupt has found it.
pub(crate) const INTERRUPTED_SP: Option<u8> = Some(7);

/// What the stack pointer that an interrupt has found in the kernel says. Non-maskable ones, which counters use, come at any
/// instruction.
///
/// # Sources
/// `ARE_REGS_UNSAVED` in `bpf/arch_x86.bpf.h`, of which the kernel itself heeds what is called [`EntryStage::Saving`] here.
/// Registers are saved at the end of the thread's stack, which is aligned to its 16 KiB (`THREAD_SIZE`), below at most 16 bytes
/// (`TOP_OF_KERNEL_STACK_PADDING`).
pub(crate) fn entry_stage(sp: u64) -> EntryStage {
    const CPU_ENTRY_AREA: u64 = 0xffff_fe00_0000_0000;
    const CPU_ENTRY_AREA_BYTES: u64 = 1 << 39;
    const THREAD_SIZE: u64 = 16 << 10;
    const SAVED_BYTES: u64 = 21 * 8 + 16;
    let below_end = sp.wrapping_neg() % THREAD_SIZE;
    match sp {
        _ if sp >> 63 == 0 || sp.wrapping_sub(CPU_ENTRY_AREA) < CPU_ENTRY_AREA_BYTES => EntryStage::Before,
        _ if below_end < SAVED_BYTES => EntryStage::Saving,
        _ => EntryStage::Inside,
    }
}
