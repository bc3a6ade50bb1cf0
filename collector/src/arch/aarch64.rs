//! 64-bit ARM.

use crate::bpf::types;
use crate::sys;
use fpprof_recording::model::Arch;

/// The architecture recorded on this machine.
pub(crate) const NATIVE: Arch = Arch::Aarch64;

/// `PSR_MODE32_BIT` in the kernel's `arch/arm64/include/uapi/asm/ptrace.h`.
const PSR_MODE32_BIT: u64 = 0x10;

/// Whether these are the registers of 32-bit code.
pub(crate) fn is_32(regs: &types::user_regs) -> bool {
    regs.pstate & PSR_MODE32_BIT != 0
}

/// DWARF register values. The kernel's register order is DWARF's.
///
/// # Sources
/// DWARF for the Arm 64-bit Architecture, §4.1.
pub(crate) fn values(regs: &types::user_regs) -> [u64; 33] {
    let mut values = [0; 33];
    let own = regs.regs.iter().chain([&regs.sp, &regs.pc]);
    for (value, own) in values.iter_mut().zip(own) {
        *value = *own;
    }
    values
}

/// Mask of the address bits of a return address.
pub(crate) fn return_address_mask() -> u64 {
    sys::code_address_bits()
}

/// Sets the address mask of return addresses in the BPF programs.
pub(crate) fn configure(rodata: &mut types::rodata) {
    rodata.code_mask = return_address_mask();
}
