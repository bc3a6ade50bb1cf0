//! 64-bit ARM.

use crate::bpf::types;
use crate::sys;
use fpprof_recording::model::Arch;

/// What is recorded here.
pub(crate) const NATIVE: Arch = Arch::Aarch64;

/// `PSR_MODE32_BIT` in the kernel's `arch/arm64/include/uapi/asm/ptrace.h`.
const PSR_MODE32_BIT: u64 = 0x10;

/// Whether they are those of 32-bit code.
pub(crate) fn is_32(regs: &types::user_regs) -> bool {
    regs.pstate & PSR_MODE32_BIT != 0
}

/// The kernel's order is DWARF's.
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

/// The bits of a return address that are the address.
pub(crate) fn return_address_mask() -> u64 {
    sys::code_address_bits()
}

/// Tells the programs which bits of a return address are the address.
pub(crate) fn configure(rodata: &mut types::rodata) {
    rodata.code_mask = return_address_mask();
}
