//! The layout of registers in a core, by architecture.

use fpprof_unwind::Arch;
use object::elf;

/// The layout of `NT_PRSTATUS`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrStatus {
    /// Offset of the thread ID, 32 bits.
    pub(super) tid: usize,
    /// Offset of the registers.
    pub(super) registers: usize,
    /// Size of a register in bytes.
    pub(super) word: usize,
    /// DWARF numbers in the order of the registers; `None` for registers without one.
    pub(super) numbers: &'static [Option<u16>],
}

/// Offset of the thread's signal, 16 bits, on every architecture: after `struct elf_siginfo`.
pub(super) const CURSIG: usize = 12;

const fn all<const N: usize>(numbers: [i8; N]) -> [Option<u16>; N] {
    let mut out = [None; N];
    let mut index = 0;
    while index < N {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
        let number = numbers[index];
        if number >= 0 {
            #[expect(clippy::cast_sign_loss, clippy::indexing_slicing, reason = "checked, by the compiler")]
            {
                out[index] = Some(number as u16);
            }
        }
        index += 1;
    }
    out
}

/// r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi `orig_rax` rip cs eflags rsp; segments follow.
const X86_64: [Option<u16>; 20] = all([15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5, -1, 16, -1, -1, 7]);
/// ebx ecx edx esi edi ebp eax ds es fs gs `orig_eax` eip cs eflags esp; ss follows.
const I386: [Option<u16>; 16] = all([3, 1, 2, 6, 7, 5, 0, -1, -1, -1, -1, -1, 8, -1, -1, 4]);
/// x0 to x30, sp, pc; pstate follows.
const AARCH64: [Option<u16>; 33] = all([
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    31, 32,
]);

/// The layout of an architecture.
///
/// # Sources
/// `struct elf_prstatus_common` in the kernel's `include/linux/elfcore.h`; `struct user_regs_struct` in
/// `arch/x86/include/asm/user_64.h` and `user_32.h`; `struct user_pt_regs` in `arch/arm64/include/uapi/asm/ptrace.h`.
/// DWARF numbers: psABIs, as in [`fpprof_unwind::Regs`].
pub(super) const fn prstatus(arch: Arch) -> PrStatus {
    match arch {
        Arch::X86_64 => PrStatus { tid: 32, registers: 112, word: 8, numbers: &X86_64 },
        Arch::I386 => PrStatus { tid: 24, registers: 72, word: 4, numbers: &I386 },
        Arch::Aarch64 => PrStatus { tid: 32, registers: 112, word: 8, numbers: &AARCH64 },
    }
}

/// The DWARF number of a register by its name in debuggers: `rip`, `esp`, `x29`, `pc`.
#[must_use]
pub fn register_by_name(arch: Arch, name: &str) -> Option<u16> {
    (0..40).find(|&number| arch.register_name(number) == Some(name)).or(match (arch, name) {
        (Arch::X86_64, "rip" | "ip" | "pc") => Some(16),
        (Arch::X86_64, "sp") => Some(7),
        (Arch::I386, "eip" | "ip" | "pc") => Some(8),
        (Arch::I386, "sp") => Some(4),
        (Arch::Aarch64, "pc" | "ip") => Some(32),
        (Arch::Aarch64, "sp") => Some(31),
        (Arch::Aarch64, "lr") => Some(30),
        (Arch::Aarch64, "fp") => Some(29),
        _ => None,
    })
}

/// The name of an architecture.
#[must_use]
pub const fn arch_name(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86-64",
        Arch::I386 => "i386",
        Arch::Aarch64 => "aarch64",
    }
}

/// The name of an ELF machine, for those that Linux runs on.
#[must_use]
pub fn machine_name(machine: u16) -> String {
    let known = [
        (elf::EM_X86_64, "x86-64"),
        (elf::EM_386, "i386"),
        (elf::EM_AARCH64, "aarch64"),
        (elf::EM_ARM, "arm"),
        (elf::EM_PPC, "ppc"),
        (elf::EM_PPC64, "ppc64"),
        (elf::EM_S390, "s390"),
        (elf::EM_RISCV, "riscv"),
        (elf::EM_MIPS, "mips"),
        (elf::EM_SPARC, "sparc"),
        (elf::EM_SPARCV9, "sparc64"),
        (elf::EM_LOONGARCH, "loongarch"),
        (elf::EM_ALPHA, "alpha"),
        (elf::EM_PARISC, "parisc"),
        (elf::EM_IA_64, "ia64"),
        (elf::EM_68K, "m68k"),
        (elf::EM_SH, "sh"),
    ];
    let name = known.into_iter().find(|(known, _)| known.0 == machine).map(|(_, name)| name.to_owned());
    name.unwrap_or_else(|| format!("machine {machine}"))
}
