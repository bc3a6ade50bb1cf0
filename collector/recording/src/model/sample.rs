//! One sample.

use super::machine::{Arch, MAX_REGISTERS};

/// Process and thread number in samples of an exiting thread that had already given up its number. perf reports such
/// samples, with −1.
///
/// # Sources
/// `perf_event_pid_type` in `kernel/events/core.c` of Linux 6.18.
pub const NO_PROCESS: u32 = u32::MAX;

/// One tick of the sampling event in a profiled thread.
///
/// A reader fills the same value again and again; its vectors keep their capacity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// Time, `CLOCK_MONOTONIC` nanoseconds. For a wait ([`super::Measure::Blocked`]), its end.
    pub time_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// Process ID; [`NO_PROCESS`] if not known.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Index into [`super::Meta::events`].
    pub event: u16,
    /// What the sample stands for, in units of the event (nanoseconds for `cpu-clock` and `off-cpu`).
    pub weight: u64,
    /// Ticks of its event that had fired on this CPU since the start of the recording, including this one.
    pub cpu_fired: u64,
    /// Samples of its event that this CPU had lost before this one, for any cause.
    pub cpu_lost: u64,
    /// The thread ran in the kernel when the tick fired; the user registers are those at kernel entry.
    pub in_kernel: bool,
    /// The thread was inside `execve`, between two programs: its address space was already the new one, its registers
    /// still those of the old one. It had no user stack, so [`Self::user_regs`] is `None`.
    pub in_exec: bool,
    /// The thread was entering the kernel, which had not saved its registers yet: [`Self::user_regs`] is `None`, and
    /// its user stack is not known. Only possible for events whose interrupts cannot be masked.
    pub entering_kernel: bool,
    /// The process's memory must not be copied, since the process is not dumpable: there are no bytes of the stack, and
    /// only the instruction, stack and frame pointers and a return address of the registers. Not in `fp` mode, which
    /// never has more.
    pub withheld: bool,
    /// User registers; `None` for a kernel thread. In `fp` mode, `None` if calls push the return address on the stack;
    /// with a link register (aarch64), that register and the frame, stack and instruction pointers, the others being
    /// zero. In `cfi` mode, `None` if the walk was complete and is not to be verified. In a mode that copies some stacks
    /// only ([`super::CaptureMode::copies_some`]), the others have the registers of `fp` mode.
    pub user_regs: Option<UserRegs>,
    /// User frame-pointer chain, leaf first: the sampled instruction first, then (return address, frame address) pairs.
    /// Empty in `dwarf` mode.
    pub user_fp: Vec<FpFrame>,
    /// Why the frame-pointer chain ended; meaningless without a chain.
    pub fp_end: FpEnd,
    /// Frames of the kernel's walk by call frame information, leaf first; empty if it was given up. Their CFAs ascend,
    /// except where a signal interrupted code on another stack; that of the last may be 0.
    pub cfi_frames: Vec<CfiFrame>,
    /// How that walk ended; `None` in other modes, and if none was tried.
    pub cfi_end: Option<CfiEnd>,
    /// Kernel chain, leaf first, the sampled instruction first.
    pub kernel: Vec<u64>,
    /// The chunk: bytes from [`Self::bytes_below_sp`] below the stack pointer ([`UserRegs::sp`]) on. Bytes of holes are
    /// zero.
    pub stack: Vec<u8>,
    /// How far below the stack pointer the chunk begins, to include the red zone.
    pub bytes_below_sp: u8,
    /// Parts of the chunk that could not be read, ascending.
    pub stack_holes: Vec<ChunkHole>,
    /// The true end of the stack, which shows whether the chunk is truncated.
    pub stack_end: Option<StackEnd>,
    /// For a thread on its alternate signal stack: the stack that the signal interrupted.
    pub interrupted: Option<Interrupted>,
    /// The size the chunk would have had, from the stack pointer up, if the collector shortened it because its ring
    /// buffer was filling up (load shedding). To an unwinder the chunk looks truncated. The bytes of an interrupted
    /// stack are included.
    pub shed_from: Option<u32>,
}

impl Sample {
    /// Whether the stack was copied, or would have been if it were allowed: what strategies that need the copy are
    /// judged by where some stacks only are copied.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        !self.stack.is_empty() || self.withheld || self.shed_from.is_some()
    }

    /// Address of the chunk's first byte; 0 without registers, in which case there should be no chunk.
    #[must_use]
    pub fn stack_start(&self) -> u64 {
        self.user_regs.as_ref().map_or(0, |regs| regs.sp().wrapping_sub(u64::from(self.bytes_below_sp)))
    }

    /// The chunk from the stack pointer up.
    #[must_use]
    pub fn stack_from_sp(&self) -> &[u8] {
        self.stack.get(usize::from(self.bytes_below_sp)..).unwrap_or(&[])
    }

    /// Bytes copied of both stacks, from their stack pointers up.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let interrupted = self.interrupted.as_ref().map_or(0, |interrupted| interrupted.stack_from_sp().len());
        self.stack_from_sp().len() as u64 + interrupted as u64
    }
}

/// The copied bytes of a stack interrupted by a signal whose handler runs on an alternate stack (`sigaltstack`).
///
/// Both chunks together have no more bytes from their stack pointers up than requested. This one gets what the other
/// leaves, which may be nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupted {
    /// The stack pointer when the signal arrived, from what the kernel saved at the upper end of the alternate stack.
    pub sp: u64,
    /// Bytes from [`Self::bytes_below_sp`] below the stack pointer on. Bytes of holes are zero.
    pub stack: Vec<u8>,
    /// As [`Sample::bytes_below_sp`].
    pub bytes_below_sp: u8,
    /// Parts that could not be read, ascending.
    pub stack_holes: Vec<ChunkHole>,
    /// The end of this stack.
    pub stack_end: Option<StackEnd>,
}

impl Interrupted {
    /// Address of the first byte.
    #[must_use]
    pub fn stack_start(&self) -> u64 {
        self.sp.wrapping_sub(u64::from(self.bytes_below_sp))
    }

    /// The bytes from the stack pointer up.
    #[must_use]
    pub fn stack_from_sp(&self) -> &[u8] {
        self.stack.get(usize::from(self.bytes_below_sp)..).unwrap_or(&[])
    }
}

/// User registers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRegs {
    /// Their architecture.
    pub arch: Arch,
    /// 32-bit code or 64-bit code.
    pub abi: Abi,
    /// In DWARF order, as many as the architecture has, then zeros.
    ///
    /// x86-64: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, then the instruction pointer. aarch64: x0..x30, sp, pc.
    ///
    /// # Sources
    /// System V psABI for AMD64, figure 3.36; DWARF for the Arm 64-bit Architecture, §4.1.
    pub values: [u64; MAX_REGISTERS],
}

impl UserRegs {
    /// Creates registers with these values, one for each register of the architecture.
    #[must_use]
    pub fn new(arch: Arch, abi: Abi, own: &[u64]) -> Self {
        let mut values = [0; MAX_REGISTERS];
        for (value, own) in values.iter_mut().zip(own.iter().take(arch.n_registers())) {
            *value = *own;
        }
        Self { arch, abi, values }
    }

    /// The values of the registers that the architecture has.
    #[must_use]
    pub fn own(&self) -> &[u64] {
        self.values.get(..self.arch.n_registers()).unwrap_or(&[])
    }

    /// Instruction pointer.
    #[must_use]
    pub fn ip(&self) -> u64 {
        self.get(self.arch.ip())
    }

    /// Stack pointer.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.get(self.arch.sp())
    }

    /// Frame pointer.
    #[must_use]
    pub fn fp(&self) -> u64 {
        self.get(self.arch.fp())
    }

    /// Bytes below the stack pointer that the current function may use; 32-bit code has none.
    #[must_use]
    pub fn red_zone_bytes(&self) -> u8 {
        if self.abi == Abi::Bits64 { self.arch.red_zone_bytes() } else { 0 }
    }

    /// The registers kept in mode `fp`, see [`Sample::user_regs`].
    #[must_use]
    pub fn of_leaf(&self) -> Option<Self> {
        self.arch.lr().map(|_| self.pointers())
    }

    /// Keeps only the instruction, stack and frame pointers and the link register, if there is one. All others, which
    /// may hold data, are zeroed.
    #[must_use]
    pub fn pointers(&self) -> Self {
        let mut kept = Self { values: [0; MAX_REGISTERS], ..*self };
        for number in [self.arch.fp(), self.arch.sp(), self.arch.ip()].into_iter().chain(self.arch.lr()) {
            if let Some(value) = kept.values.get_mut(number) {
                *value = self.get(number);
            }
        }
        kept
    }

    fn get(&self, number: usize) -> u64 {
        self.values.get(number).copied().unwrap_or(0)
    }
}

/// The kind of code a thread was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// 64-bit code.
    Bits64,
    /// 32-bit code in compatibility mode; its stack holds 4-byte words.
    Bits32,
}

/// One step of a frame-pointer chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FpFrame {
    /// The sampled instruction for the first entry, a return address for all others.
    pub address: u64,
    /// Address of the saved frame pointer that leads to this entry (the return address is 8 bytes above);
    /// 0 for the first entry, and if the collector does not know it (`fp` mode).
    pub frame_address: u64,
}

/// Why a frame-pointer chain ended, according to the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FpEnd {
    /// Not known (`bpf_get_stack` does not return it).
    #[default]
    Unknown,
    /// The frame pointer was zero: the outermost frame.
    Zero,
    /// Memory at the frame pointer could not be read.
    Unreadable,
    /// The next frame pointer was not above the current one, or not aligned.
    NotAscending,
    /// The return address was zero.
    ZeroReturnAddress,
    /// The collector's limit of frames was reached.
    MaxDepth,
}

/// One frame of a walk by call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CfiFrame {
    /// The sampled instruction for the first frame, the interrupted one after a signal frame, else a return address.
    pub address: u64,
    /// Canonical frame address; 0 for the outermost frame.
    pub cfa: u64,
    /// Whether [`Self::address`] is an instruction, sampled or interrupted by a signal, and not a return address. True
    /// for the first frame.
    pub is_instruction: bool,
    /// How it was found; by a row for the first frame.
    pub found_by: FoundBy,
}

/// How a walk by call frame information found a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoundBy {
    /// By a row of call frame information, or by the registers of the sample or of a signal frame.
    #[default]
    Row,
    /// By the frame pointer of JIT-compiled code, or of code without rows that such code had called.
    FramePointer,
    /// By its place, the last word of the stack: the entry point, which called code without rows.
    LastWord,
}

impl FoundBy {
    /// All values, indexed by their number in a recording.
    pub(crate) const ALL: [Self; 3] = [Self::Row, Self::FramePointer, Self::LastWord];

    pub(crate) const fn number(self) -> u64 {
        self as u64
    }
}

/// How the kernel's walk by call frame information ended, or why it was given up; then its frames are discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CfiEnd {
    /// Complete: the return address is undefined.
    UndefinedRa,
    /// Complete: the program's entry point.
    Start,
    /// Complete: the start of a thread.
    ThreadStart,
    /// Complete: the start of a context (`makecontext`).
    StartContext,
    /// Complete: the start of a goroutine.
    Goexit,
    /// Complete: Go's system stack.
    G0,
    /// Given up: the maps have no rule for the address yet.
    NoRule,
    /// Given up: executable memory without a file, of a process that may describe it in a jitdump.
    NoFile,
    /// Given up: the address is not in an executable mapping.
    NoMapping,
    /// Given up: the frame needs more than the instruction, stack and frame pointers (expressions).
    OtherRegisters,
    /// Given up: stack memory could not be read.
    Unreadable,
    /// Given up: the CFA is not above the stack pointer, or not aligned.
    NotAscending,
    /// Given up: the frame pointer was saved below the stack pointer, and is lost.
    RedZone,
    /// Given up: the collector's limit of frames was reached.
    MaxDepth,
    /// Given up: 32-bit code.
    Abi32,
    /// Given up: the code has no call frame information, and which frame called it is not certain.
    NoCaller,
}

impl CfiEnd {
    /// All values, indexed by their number in a recording: new ones are appended.
    pub const ALL: [Self; 16] = [
        Self::UndefinedRa,
        Self::Start,
        Self::ThreadStart,
        Self::StartContext,
        Self::Goexit,
        Self::G0,
        Self::NoRule,
        Self::NoFile,
        Self::NoMapping,
        Self::OtherRegisters,
        Self::Unreadable,
        Self::NotAscending,
        Self::RedZone,
        Self::MaxDepth,
        Self::Abi32,
        Self::NoCaller,
    ];

    /// Whether the walk reached the outermost frame.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(
            self,
            Self::UndefinedRa | Self::Start | Self::ThreadStart | Self::StartContext | Self::Goexit | Self::G0
        )
    }

    /// Name, such as `no_rule`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UndefinedRa => "undefined_ra",
            Self::Start => "start",
            Self::ThreadStart => "thread_start",
            Self::StartContext => "start_context",
            Self::Goexit => "goexit",
            Self::G0 => "g0",
            Self::NoRule => "no_rule",
            Self::NoFile => "no_file",
            Self::NoMapping => "no_mapping",
            Self::OtherRegisters => "other_registers",
            Self::Unreadable => "unreadable",
            Self::NotAscending => "not_ascending",
            Self::RedZone => "red_zone",
            Self::MaxDepth => "max_depth",
            Self::Abi32 => "abi32",
            Self::NoCaller => "no_caller",
        }
    }
}

/// Part of a chunk that could not be read (a page never touched).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHole {
    /// Offset from the start of the chunk.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// The upper end of the stack that contains the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackEnd {
    /// First address above the stack.
    pub address: u64,
    /// How it was determined.
    pub source: StackEndSource,
}

/// How the end of a stack was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackEndSource {
    /// `mm->start_stack`: only arguments, environment and auxiliary vector are above it.
    StartStack,
    /// The thread's control block, which pthreads place above a thread's stack.
    ThreadBase,
    /// The end of the mapping that contains the stack pointer.
    Mapping,
    /// The thread's alternate signal stack (`sigaltstack`), which contains the stack pointer.
    AltStack,
}
