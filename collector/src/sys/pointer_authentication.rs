//! The position of the signature in a return address.

/// The address bits of a user address: those that the processor keeps when it strips the signature from a return
/// address whose bits are all set. On a processor without pointer authentication, all but the tag in the top byte.
///
/// # Sources
/// Arm Architecture Reference Manual, `XPACLRI`, a hint that does nothing without pointer authentication; Linux
/// `Documentation/arch/arm64/pointer-authentication.rst` and `tagged-address-abi.rst`. Bit 55 marks kernel addresses.
pub(crate) fn code_address_bits() -> u64 {
    const ALL: u64 = (1 << 55) - 1;
    let mut address = ALL;
    // SAFETY: the instruction changes the link register alone, which is named as changed.
    unsafe {
        core::arch::asm!(
            "mov x30, {address}",
            "hint #7",
            "mov {address}, x30",
            address = inout(reg) address,
            out("x30") _,
            options(nomem, nostack, preserves_flags)
        );
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that code addresses are within the bits, and that these are the lowest ones and no more than without a
    /// tag.
    #[test]
    fn code_lies_within_the_bits() {
        let bits = code_address_bits();
        assert_eq!(code_lies_within_the_bits as usize as u64 & !bits, 0);
        assert!((bits + 1).is_power_of_two() && (36..=55).contains(&bits.count_ones()), "{bits:#x}");
    }
}
