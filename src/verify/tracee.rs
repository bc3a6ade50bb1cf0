//! Waits for the threads of a traced process, resumes them, and reads their registers and memory.

use anyhow::Context as _;
use fpprof_analysis::oracle::SIGNAL_FRAME_SP;
use fpprof_collector::step_thread;
use fpprof_recording::model::{Abi, Arch, UserRegs};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;
use rustix::process::WaitOptions;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;

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

/// What a traced thread or a process reports. Signals are numbers: real-time signals have no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It is stopped by this signal, which it has not received yet.
    Stopped(i32),
    /// It is stopped at this `PTRACE_EVENT_*`.
    Event(i32),
    /// It is stopped at the entry or exit of a system call.
    SystemCall,
    Exited(i32),
    Killed(i32),
}

/// Waits for a report of a thread or process, or of any; `None` if there is none yet, and `is_blocking` is not set.
///
/// # Errors
/// Those of waitpid(2).
///
/// # Sources
/// ptrace(2), "Stopped states"; the system calls are those with `PTRACE_O_TRACESYSGOOD`.
pub(super) fn wait(of: Option<Pid>, is_blocking: bool) -> io::Result<Option<(Pid, Report)>> {
    /// `__WALL` (`include/uapi/linux/wait.h`): threads, too, and children with any signal.
    const ALL: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);
    /// SIGTRAP with bit 7.
    const AT_SYSTEM_CALL: i32 = 0x85;
    let options = if is_blocking { ALL } else { ALL | WaitOptions::NOHANG };
    let found = match of {
        Some(of) => rustix::process::waitpid(rustix::process::Pid::from_raw(of.as_raw()), options)?,
        None => rustix::process::wait(options)?,
    };
    let Some((pid, status)) = found else { return Ok(None) };
    let event = status.as_raw() >> 16;
    let report = match (status.stopping_signal(), status.exit_status(), status.terminating_signal()) {
        (Some(_), ..) if event != 0 => Report::Event(event),
        (Some(AT_SYSTEM_CALL), ..) => Report::SystemCall,
        (Some(signal), ..) => Report::Stopped(signal),
        (_, Some(status), _) => Report::Exited(status),
        (_, _, signal) => Report::Killed(signal.unwrap_or(0)),
    };
    Ok(Some((Pid::from_raw(pid.as_raw_nonzero().get()), report)))
}

/// What a stop by a signal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trap {
    /// The end of a step.
    Step,
    /// A breakpoint: ours, or the program's own.
    Breakpoint,
    /// A signal for the program, sent by a process or raised by an instruction.
    Sent,
}

impl Trap {
    /// Why a thread has stopped by SIGTRAP.
    ///
    /// # Sources
    /// `include/uapi/asm-generic/siginfo.h`: `SI_USER` 0, `SI_TKILL` −6, `SI_KERNEL` 0x80, which `int3` has.
    pub(super) fn of(tid: Pid) -> Self {
        const SI_KERNEL: i32 = 0x80;
        match ptrace::getsiginfo(tid).map(|info| info.si_code) {
            Ok(SI_KERNEL) => Self::Breakpoint,
            Ok(..=0) => Self::Sent,
            _ => Self::Step,
        }
    }
}

/// Whether a thread's process has a handler for a signal.
pub(super) fn is_caught(tid: Pid, signal: i32) -> bool {
    // As bytes: the name of a thread need not be UTF-8.
    let status = std::fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let caught = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> signal.saturating_sub(1) & 1 != 0)
}

/// Lets a thread execute one instruction, with a signal if there is one.
///
/// # Errors
/// If it cannot be stepped, unless it was killed.
pub(super) fn step(tid: Pid, signal: Option<i32>) -> anyhow::Result<()> {
    match step_thread(tid.as_raw(), signal.unwrap_or(0)) {
        // Killed meanwhile; its exit is reported next.
        Err(error) if error.raw_os_error() != Some(Errno::ESRCH as i32) => {
            Err(error).with_context(|| format!("stepping thread {tid}"))
        }
        _ => Ok(()),
    }
}

/// Lets a thread run to its next stop or system call.
///
/// # Errors
/// If it cannot be resumed, unless it was killed.
pub(super) fn run_on(tid: Pid) -> anyhow::Result<()> {
    match ptrace::syscall(tid, None) {
        // Killed meanwhile; its exit is reported next.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("running thread {tid}")),
    }
}

/// The memory of a process while it runs the same program. It can be read, and written wherever that is, also if it is not
/// readable, after the first thread has ended, or if the process has made itself unreadable since.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(pid: Pid) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        OpenOptions::new().read(true).write(true).open(&path).map(Self).with_context(|| format!("opening {path}"))
    }

    /// Reads as many bytes as possible from `address` into `buf`; returns their number.
    pub(super) fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut n: usize = 0;
        while let Some(rest) = buf.get_mut(n..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, address.wrapping_add(n as u64)) {
                Ok(0) => break,
                Ok(more) => n = n.saturating_add(more),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        n
    }

    /// The word at `address`.
    pub(super) fn read_u64(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        (self.read(address, &mut word) == word.len()).then(|| u64::from_le_bytes(word))
    }

    /// Writes to memory, whatever its protection. Nothing is written if the process was killed meanwhile, as by another
    /// thread that ends it: its exit is reported next.
    ///
    /// # Errors
    /// If nothing is mapped there, or it is shared.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        match self.0.write_all_at(bytes, address) {
            Err(error) if error.kind() == io::ErrorKind::WriteZero => Ok(()),
            result => result,
        }
    }
}

/// Writes a word to a thread's memory as the thread itself could; `false` if that fails.
pub(super) fn write_u64(tid: Pid, address: u64, word: u64) -> bool {
    let Ok(base) = usize::try_from(address) else { return false };
    let remote = RemoteIoVec { base, len: 8 };
    process_vm_writev(tid, &[IoSlice::new(&word.to_le_bytes())], &[remote]) == Ok(8)
}

/// The interrupted registers in a signal frame, at the entry of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignalFrame {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) restorer: u64,
}

/// Reads the signal frame at a stack pointer.
pub(super) fn signal_frame(memory: &Memory, sp: u64) -> Option<SignalFrame> {
    let restorer = memory.read_u64(sp)?;
    let at = sp.checked_add(SIGNAL_FRAME_SP)?;
    Some(SignalFrame { sp: memory.read_u64(at)?, ip: memory.read_u64(at.checked_add(8)?)?, restorer })
}
