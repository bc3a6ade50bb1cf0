//! Removes data that unwinding cannot need.
//!
//! A copied stack contains passwords, keys and file contents beside its frames. Only words that point somewhere can
//! matter to unwinding, so every word that points into no mapping of its process is written as zero. Registers are
//! treated the same, except for the instruction and the stack pointer.

use crate::mapping_ranges::MappingRanges;
use crate::model::{Abi, UserRegs};

/// Scrubs the words of one sample; keeps everything if there are no ranges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scrubber<'a> {
    ranges: Option<&'a MappingRanges>,
    chunk: (u64, u64),
    /// The other chunk; empty if there is none.
    other: (u64, u64),
    /// For a chunk that begins below the stack pointer: from the stack pointer to the end of the stack, or of the chunk
    /// if the former is not known.
    above: (u64, u64),
    four_byte_words: bool,
    /// Mask of the address bits of a word: a signed return address is judged without its signature.
    mask: u64,
}

impl<'a> Scrubber<'a> {
    /// `chunk` is the address range of the sample's own chunk.
    pub(crate) fn new(ranges: Option<&'a MappingRanges>, chunk: (u64, u64), abi: Option<Abi>, mask: u64) -> Self {
        Self { ranges, chunk, other: (0, 0), above: (0, 0), four_byte_words: abi == Some(Abi::Bits32), mask }
    }

    /// Adds the other chunk of a sample with two.
    pub(crate) fn with_other(self, other: (u64, u64)) -> Self {
        Self { other, ..self }
    }

    /// Adjusts the scrubber for a chunk that begins below the stack pointer.
    ///
    /// What unwinding needs from there are saved registers that locate a caller's frame, and they point into the stack.
    /// The rest is left over from earlier calls, and takes a tenth of a recording if it is kept, but a fortieth if it
    /// is not.
    pub(crate) fn with_red_zone(self, sp: u64, stack_end: Option<u64>) -> Self {
        Self { above: (sp, stack_end.unwrap_or(self.chunk.1)), ..self }
    }

    /// The word if it may be kept, otherwise zero.
    pub(crate) fn word(&self, word: u64) -> u64 {
        let Some(ranges) = self.ranges else { return word };
        let address = word & self.mask;
        let is_in = |(start, end): (u64, u64)| start <= address && address < end;
        let points = is_in(self.chunk) || is_in(self.other) || ranges.contains(address);
        if address != 0 && points { word } else { 0 }
    }

    /// Scrubs the 8 bytes at `address`, a multiple of 8, of which `covered` (a mask of bytes) are in the chunk. Words
    /// that are only partly in the chunk cannot be judged and become zero.
    pub(crate) fn granule(&self, address: u64, bytes: u64, covered: u64) -> u64 {
        if self.ranges.is_none() {
            return bytes & covered;
        }
        let (sp, end) = self.above;
        if address < sp {
            return if covered == u64::MAX && (sp..end).contains(&bytes) { bytes } else { 0 };
        }
        if !self.four_byte_words {
            return if covered == u64::MAX { self.word(bytes) } else { 0 };
        }
        [0xffff_ffff, 0xffff_ffff_0000_0000u64]
            .into_iter()
            .filter(|half| covered & half == *half)
            .map(|half| {
                let shift = half.trailing_zeros();
                self.word((bytes & half) >> shift) << shift
            })
            .fold(0, |all, half| all | half)
    }

    /// Scrubs registers, except for the instruction and the stack pointer.
    pub(crate) fn regs(&self, regs: &mut UserRegs) {
        let (ip, sp) = (regs.ip(), regs.sp());
        regs.values = regs.values.map(|value| if value == ip || value == sp { value } else { self.word(value) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Arch, MAX_REGISTERS};

    /// Check that the two halves of a granule are judged separately in 32-bit code and together in 64-bit code.
    #[test]
    fn word_size_follows_the_abi() {
        let ranges: MappingRanges = [(0x0804_8000, 0x0805_0000)].into_iter().collect();
        let both = 0x0804_9000_0804_8010;
        let narrow = Scrubber::new(Some(&ranges), (0, 0), Some(Abi::Bits32), u64::MAX);
        assert_eq!(narrow.granule(0, both, u64::MAX), both);
        assert_eq!(narrow.granule(0, 0xdead_beef_0804_8010, u64::MAX), 0x0804_8010);
        assert_eq!(narrow.granule(0, both, 0xffff_ffff_0000_0000), 0x0804_9000_0000_0000);
        let wide = Scrubber::new(Some(&ranges), (0, 0), Some(Abi::Bits64), u64::MAX);
        assert_eq!(wide.granule(0, both, u64::MAX), 0);
        assert_eq!(wide.granule(0, 0x0804_8010, u64::MAX), 0x0804_8010);
        assert_eq!(wide.granule(0, 0x0804_8010, u64::MAX >> 8), 0);
    }

    /// Check that registers that are not pointers are zeroed, but never the instruction and the stack pointer.
    #[test]
    fn registers_keep_pointers_and_the_two_that_always_count() {
        let ranges: MappingRanges = [(0x1000, 0x2000)].into_iter().collect();
        let mut regs = UserRegs::new(Arch::X86_64, Abi::Bits64, &[0xfeed; 17]);
        regs.values[3] = 0x1008;
        regs.values[6] = 0x7008;
        regs.values[7] = 0x7000;
        regs.values[16] = 0x9999;
        Scrubber::new(Some(&ranges), (0x7000, 0x7010), None, u64::MAX).regs(&mut regs);
        let mut expected = [0; MAX_REGISTERS];
        expected[3] = 0x1008;
        expected[6] = 0x7008;
        expected[7] = 0x7000;
        expected[16] = 0x9999;
        assert_eq!(regs.values, expected);
    }

    /// Check that a signed return address is judged by its address and kept with its signature, in a word of the stack
    /// and in a register, and that without a mask it does not count as an address.
    #[test]
    fn signatures_are_no_part_of_an_address() {
        const SIGNED: u64 = 0x0035_0000_0000_1008;
        let ranges: MappingRanges = [(0x1000, 0x2000)].into_iter().collect();
        let scrubber = |mask| Scrubber::new(Some(&ranges), (0, 0), Some(Abi::Bits64), mask);
        let mut regs = UserRegs::new(Arch::Aarch64, Abi::Bits64, &[0; 33]);
        regs.values[30] = SIGNED;
        scrubber((1 << 48) - 1).regs(&mut regs);
        assert_eq!((scrubber((1 << 48) - 1).word(SIGNED), regs.values[30]), (SIGNED, SIGNED));
        assert_eq!(scrubber((1 << 48) - 1).word(SIGNED + 0x1000), 0);
        assert_eq!(scrubber(u64::MAX).word(SIGNED), 0);
    }
}
