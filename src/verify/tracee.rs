//! Reads registers and memory of a stopped thread.

use anyhow::Context as _;
use fpprof_analysis::oracle::SIGNAL_FRAME_SP;
use fpprof_recording::model::{Abi, Arch, UserRegs};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// The code segment of 64-bit user code.
///
/// # Sources
/// `__USER_CS` in the kernel's `arch/x86/include/asm/segment.h`.
const USER_CS_64: u64 = 0x33;
/// The registers that stepping needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    pub(super) user: UserRegs,
    /// `ax`: the number of the system call, at a `syscall` instruction.
    pub(super) ax: u64,
    /// `orig_ax`: the number of the current system call, at its stops.
    pub(super) system_call: u64,
}

/// Indices of the general registers in [`UserRegs`], by their number in instruction encodings: ax, cx, dx, bx, sp, bp,
/// si, di, then r8 to r15.
///
/// # Sources
/// Intel SDM vol. 2, table 2-4; the order in `UserRegs` is that of DWARF.
const BY_NUMBER: [usize; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// Indices of the instruction pointer and of the stack pointer in [`UserRegs`].
const IP: usize = 16;
const SP: usize = 7;

impl Registers {
    /// Reads the registers of a stopped thread.
    ///
    /// # Errors
    /// If the thread is gone, or runs 32-bit code.
    pub(super) fn of(tid: Pid) -> anyhow::Result<Self> {
        let r = ptrace::getregs(tid).with_context(|| format!("reading the registers of thread {tid}"))?;
        anyhow::ensure!(r.cs == USER_CS_64, "32-bit code is not supported");
        let values = [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15, r.rip,
        ];
        Ok(Self { user: UserRegs::new(Arch::X86_64, Abi::Bits64, &values), ax: r.rax, system_call: r.orig_rax })
    }

    pub(super) fn ip(&self) -> u64 {
        self.user.ip()
    }

    pub(super) fn sp(&self) -> u64 {
        self.user.sp()
    }

    /// A general register by its number in instruction encodings.
    pub(super) fn by_number(&self, number: usize) -> Option<u64> {
        self.user.values.get(*BY_NUMBER.get(number)?).copied()
    }

    /// Whether the thread has left a system call that the kernel is going to repeat, unless a signal handler comes first:
    /// it moves the instruction pointer back to the call then, wherever that points.
    ///
    /// # Sources
    /// `arch_do_signal_or_restart` in the kernel's `arch/x86/kernel/signal.c`; `include/linux/errno.h`.
    pub(super) fn will_restart(&self) -> bool {
        /// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
        const CODES: [i64; 4] = [-512, -513, -514, -516];
        self.system_call.cast_signed() >= 0 && CODES.contains(&self.ax.cast_signed())
    }

    /// Sets the instruction pointer and the stack pointer.
    pub(super) fn go(&mut self, ip: u64, sp: u64) {
        self.user.values[IP] = ip;
        self.user.values[SP] = sp;
    }

    /// Writes only the instruction pointer and stack pointer to a stopped thread.
    ///
    /// # Errors
    /// If its registers cannot be written.
    pub(super) fn write_place(&self, tid: Pid) -> anyhow::Result<()> {
        let mut regs = match ptrace::getregs(tid) {
            Ok(regs) => regs,
            // Killed while it was stopped: its exit is reported next.
            Err(Errno::ESRCH) => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("reading the registers of thread {tid}")),
        };
        regs.rip = self.ip();
        regs.rsp = self.sp();
        match ptrace::setregs(tid, regs) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("writing the registers of thread {tid}")),
        }
    }
}

/// Reads as many bytes as possible from `address` into `buf`; returns their number.
pub(super) fn read(pid: Pid, address: u64, buf: &mut [u8]) -> usize {
    let Ok(base) = usize::try_from(address) else { return 0 };
    if buf.is_empty() {
        return 0;
    }
    let remote = RemoteIoVec { base, len: buf.len() };
    process_vm_readv(pid, &mut [IoSliceMut::new(buf)], &[remote]).unwrap_or(0)
}

/// The word at `address`.
pub(super) fn read_u64(pid: Pid, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    (read(pid, address, &mut word) == word.len()).then(|| u64::from_le_bytes(word))
}

/// The interrupted registers in a signal frame, at the entry of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignalFrame {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) restorer: u64,
}

/// Reads the signal frame at a stack pointer.
pub(super) fn signal_frame(pid: Pid, sp: u64) -> Option<SignalFrame> {
    let restorer = read_u64(pid, sp)?;
    let at = sp.checked_add(SIGNAL_FRAME_SP)?;
    Some(SignalFrame { sp: read_u64(pid, at)?, ip: read_u64(pid, at.checked_add(8)?)?, restorer })
}
