//! The result of unwinding: frames and stop reasons.

use alloc::vec::Vec;
use core::fmt;

/// The frames of one sample, and why there are no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// Why the walk ended.
    pub stop: StopReason,
}

impl Default for Stack {
    /// No frames, as of a chunk without bytes.
    fn default() -> Self {
        Self { frames: Vec::new(), stop: StopReason::Truncated(TruncatedReason::ChunkEmpty) }
    }
}

impl<'a> IntoIterator for &'a Stack {
    type Item = &'a Frame;
    type IntoIter = core::slice::Iter<'a, Frame>;

    /// The frames, leaf first.
    fn into_iter(self) -> Self::IntoIter {
        self.frames.iter()
    }
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The sampled instruction, an interrupted instruction (the caller of a signal frame), or a return address. AVMA.
    pub address: u64,
    /// Canonical frame address: the caller's stack pointer after the return (DWARF 5 §6.4.1). Frame-pointer walks set
    /// it to the address of the saved frame pointer plus 16. 0 if not known.
    pub cfa: u64,
    /// How the frame was found.
    pub source: FrameSource,
    /// Flags.
    pub flags: FrameFlags,
}

impl Frame {
    /// The address to look up rows and symbols with: a return address minus one, since the call may be the last
    /// instruction of its function; an instruction address unchanged.
    #[must_use]
    pub fn lookup(&self) -> u64 {
        if self.flags.is_instruction { self.address } else { self.address.wrapping_sub(1) }
    }
}

/// How a frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameSource {
    /// The sampled registers: the leaf.
    Registers,
    /// The call frame information of its callee.
    Cfi,
    /// The frame-pointer chain.
    FramePointer,
    /// The kernel's unwinder.
    Kernel,
    /// A heuristic of this crate, where there is no unwind information.
    Heuristic,
}

/// Flags of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameFlags {
    /// [`Frame::address`] is an instruction, not a return address: the leaf, or a frame that a signal interrupted.
    pub is_instruction: bool,
    /// Found with the frame pointer although the strategy does not follow frame pointers.
    pub fp_fallback: bool,
    /// Found with the frame pointer of JIT-compiled code. If that keeps no frame pointers, frames below this one are
    /// missing.
    pub fp_in_jit: bool,
    /// Leaf of a frame-pointer chain that had not set up its own frame yet: its caller is missing from the chain.
    pub leaf_skip_suspect: bool,
}

/// Why a walk ended. Every stack has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The outermost frame was reached.
    Complete(Root),
    /// There are more frames, but they cannot be seen.
    Truncated(TruncatedReason),
    /// What was found cannot be right.
    Broken(BrokenReason),
    /// There was no user stack to unwind, so the sample says nothing about unwinding.
    NoStack(NoStackReason),
}

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in reports and files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// How the outermost frame was recognised.
    Root {
        /// The row says the return address is undefined.
        UndefinedRa = "undefined_ra",
        /// The entry point of a program or of its loader.
        Start = "_start",
        /// The start of a thread.
        ThreadStart = "thread_start",
        /// The start of a `makecontext` context.
        StartContext = "__start_context",
        /// The start of a goroutine: `runtime.goexit`.
        Goexit = "goexit",
        /// The stack of Go's scheduler: its start, or where the run-time library switched to it from another.
        G0 = "g0",
        /// Code without rows at the very end of its stack, where there is no room for a return address.
        StackEnd = "stack_end",
        /// A kernel thread, which has no user stack.
        KernelThread = "kernel_thread",
        /// A frame-pointer chain that ended with a zero frame pointer in a start function.
        ZeroFp = "zero_fp",
    }
}

named! {
    /// Why more frames cannot be seen.
    TruncatedReason {
        /// The walk passed the upper end of the copied chunk, below the end of the stack.
        ChunkEnd = "chunk_end",
        /// As [`Self::ChunkEnd`], of a chunk that the recorder cut short as its ring buffer was filling up. Whoever knows
        /// that has to say so: to an unwinder both look alike.
        Shed = "shed",
        /// No byte of the stack was copied.
        ChunkEmpty = "chunk_empty",
        /// The walk continued on another stack, which was not copied.
        StackSwitch = "stack_switch",
        /// The walk needs a register that a function has saved in its red zone, below the stack pointer, which was not
        /// copied.
        RedZone = "red_zone",
        /// The limit of frames was reached.
        MaxDepth = "max_depth",
        /// The module has no unwind information for this instruction.
        NoCfi = "no_cfi",
        /// No module is known at this executable address: generated code, or a sampled instruction in a mapping that
        /// was not reported.
        NoModule = "no_module",
        /// The module was to be unwound by `.sframe` and has no such section.
        NoSframe = "no_sframe",
        /// The module's file cannot be read.
        ModuleUnavailable = "module_unavailable",
        /// The file is not the one that was mapped.
        BuildIdMismatch = "build_id_mismatch",
        /// No executable mapping of the process is known: it had exited, or could not be read, before its mappings
        /// were.
        ProcessGone = "process_gone",
        /// 32-bit code.
        Abi32 = "abi32",
        /// The sample's budget of steps was used up.
        Budget = "budget",
    }
}

named! {
    /// Why a thread of a program had no user stack, or no known one.
    NoStackReason {
        /// It was exiting, and had given up its address space.
        Exiting = "exiting",
        /// It was inside `execve`, between two programs.
        InExec = "in_exec",
        /// It was entering the kernel, and its registers were not saved yet.
        EnteringKernel = "entering_kernel",
    }
}

named! {
    /// What is wrong with a stack.
    BrokenReason {
        /// The return address is not in an executable mapping.
        RaNotExec = "ra_not_exec",
        /// The frame's CFA is not above that of its callee.
        CfaNotIncreasing = "cfa_not_increasing",
        /// A stack or frame pointer is not a multiple of 8.
        Misaligned = "misaligned",
        /// The same frame appears twice.
        Loop = "loop",
        /// The call frame information cannot be parsed or followed.
        BadCfi = "bad_cfi",
        /// A DWARF expression exceeds its limit of steps.
        ExprLimit = "expr_limit",
    }
}

/// Writes class and name, such as `complete (_start)` or `truncated (chunk_end)`.
impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.class(), self.name())
    }
}

impl StopReason {
    /// The reason with this class and name, as [`Self::class`] and [`Self::name`] return them; `None` if there is none.
    #[must_use]
    pub fn from_names(class: &str, name: &str) -> Option<Self> {
        let roots = Root::ALL.iter().map(|&root| Self::Complete(root));
        let truncated = TruncatedReason::ALL.iter().map(|&reason| Self::Truncated(reason));
        let broken = BrokenReason::ALL.iter().map(|&reason| Self::Broken(reason));
        let no_stack = NoStackReason::ALL.iter().map(|&reason| Self::NoStack(reason));
        let mut all = roots.chain(truncated).chain(broken).chain(no_stack);
        all.find(|stop| (stop.class(), stop.name()) == (class, name))
    }

    /// `complete`, `truncated`, `broken` or `no_stack`.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Truncated(_) => "truncated",
            Self::Broken(_) => "broken",
            Self::NoStack(_) => "no_stack",
        }
    }

    /// The name of the root or of the reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete(root) => root.name(),
            Self::Truncated(reason) => reason.name(),
            Self::Broken(reason) => reason.name(),
            Self::NoStack(reason) => reason.name(),
        }
    }
}
