//! The registers of a processor, and the encoding of its return addresses.

/// A processor architecture that can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arch {
    /// AMD64, and 32-bit x86 code on it.
    #[default]
    X86_64,
    /// 64-bit ARM, and 32-bit ARM code on it.
    Aarch64,
}

/// The largest number of registers of any architecture.
pub const MAX_REGISTERS: usize = 33;

impl Arch {
    /// The architecture with this name in `uname -m`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::X86_64, Self::Aarch64].into_iter().find(|arch| arch.name() == name)
    }

    /// The architecture this program was built for; `None` if it cannot be recorded.
    #[must_use]
    pub fn native() -> Option<Self> {
        Self::by_name(std::env::consts::ARCH)
    }

    /// The name in `uname -m`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Number of registers in a sample.
    #[must_use]
    pub const fn n_registers(self) -> usize {
        match self {
            Self::X86_64 => 17,
            Self::Aarch64 => 33,
        }
    }

    /// Index of the instruction pointer.
    #[must_use]
    pub const fn ip(self) -> usize {
        self.n_registers() - 1
    }

    /// Index of the stack pointer.
    #[must_use]
    pub const fn sp(self) -> usize {
        match self {
            Self::X86_64 => 7,
            Self::Aarch64 => 31,
        }
    }

    /// Index of the frame pointer.
    #[must_use]
    pub const fn fp(self) -> usize {
        match self {
            Self::X86_64 => 6,
            Self::Aarch64 => 29,
        }
    }

    /// Bytes below the stack pointer that a function may use without moving it.
    ///
    /// # Sources
    /// System V psABI for AMD64, §3.2.2. AAPCS64 (Procedure Call Standard for the Arm 64-bit Architecture), §6.4.5, has none.
    #[must_use]
    pub const fn red_zone_bytes(self) -> u8 {
        match self {
            Self::X86_64 => 128,
            Self::Aarch64 => 0,
        }
    }

    /// Index of the link register, in which a call leaves the return address; `None` if it is pushed on the stack.
    #[must_use]
    pub const fn lr(self) -> Option<usize> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some(30),
        }
    }
}

impl Arch {
    /// perf's numbers of the registers, in our order.
    ///
    /// # Sources
    /// `arch/x86/include/uapi/asm/perf_regs.h`; `arch/arm64/include/uapi/asm/perf_regs.h`, which has DWARF's order.
    #[must_use]
    pub const fn perf_registers(self) -> &'static [u8] {
        match self {
            Self::X86_64 => &[0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8],
            Self::Aarch64 => &[
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                28, 29, 30, 31, 32,
            ],
        }
    }
}

/// How the words of a recording are interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) arch: Arch,
    /// See [`super::Host::return_address_mask`].
    pub(crate) return_address_mask: u64,
}
