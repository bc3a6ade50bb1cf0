//! The registers of a sample.

use crate::arch::Arch;

/// The largest number of registers of any architecture.
pub(crate) const MAX_REGISTERS: usize = 33;

/// Register values by DWARF number; each may be unknown.
///
/// x86-64: rax rdx rcx rbx rsi rdi rbp rsp r8–r15, 16 is rip. aarch64: x0–x30, 31 is sp, 32 is pc.
/// i386: eax ecx edx ebx esp ebp esi edi, 8 is eip.
///
/// ```
/// use fpprof_unwind::{Arch, Regs};
///
/// let regs = Regs::new(Arch::X86_64).with_ip(0x40_1136).with_sp(0x7ffc_0000).with_fp(0x7ffc_0010);
/// assert_eq!((regs.get(16), regs.get(7), regs.get(0)), (Some(0x40_1136), Some(0x7ffc_0000), None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regs {
    arch: Arch,
    known: u64,
    values: [u64; MAX_REGISTERS],
}

impl Regs {
    /// A set in which no register is known yet.
    #[must_use]
    pub const fn new(arch: Arch) -> Self {
        Self { arch, known: 0, values: [0; MAX_REGISTERS] }
    }

    /// All registers of x86-64 in DWARF order, the instruction pointer last.
    #[must_use]
    #[inline]
    pub fn x86_64(values: &[u64; 17]) -> Self {
        let mut all = [0; MAX_REGISTERS];
        if let Some(first) = all.first_chunk_mut() {
            *first = *values;
        }
        Self { arch: Arch::X86_64, known: (1 << values.len()) - 1, values: all }
    }

    /// Sets the instruction pointer and returns the registers.
    #[must_use]
    pub fn with_ip(mut self, ip: u64) -> Self {
        self.set(self.arch.spec().ip, ip);
        self
    }

    /// Sets the stack pointer and returns the registers.
    #[must_use]
    pub fn with_sp(mut self, sp: u64) -> Self {
        self.set(self.arch.spec().sp, sp);
        self
    }

    /// Sets the frame pointer (rbp, x29, ebp) and returns the registers.
    #[must_use]
    pub fn with_fp(mut self, fp: u64) -> Self {
        self.set(self.arch.spec().fp, fp);
        self
    }

    /// The architecture of the registers.
    #[must_use]
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// The value of a register by DWARF number; `None` if it is not known or does not exist.
    #[must_use]
    #[inline]
    pub fn get(&self, register: u16) -> Option<u64> {
        let value = *self.values.get(usize::from(register))?;
        (self.known >> register & 1 != 0).then_some(value)
    }

    /// Sets a register by DWARF number. Numbers the architecture does not have (vector registers) are ignored.
    #[inline]
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(register)) {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    /// Marks a register as unknown.
    #[inline]
    pub fn clear(&mut self, register: u16) {
        if usize::from(register) < MAX_REGISTERS {
            self.known &= !(1 << register);
        }
    }

    /// Instruction pointer.
    #[must_use]
    #[inline]
    pub fn ip(&self) -> Option<u64> {
        self.get(self.arch.spec().ip)
    }

    /// Stack pointer.
    #[must_use]
    #[inline]
    pub fn sp(&self) -> Option<u64> {
        self.get(self.arch.spec().sp)
    }

    /// Frame pointer.
    #[must_use]
    #[inline]
    pub fn fp(&self) -> Option<u64> {
        self.get(self.arch.spec().fp)
    }
}
