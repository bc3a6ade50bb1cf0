//! What an unwound stack is.

use alloc::vec::Vec;
use core::fmt;

/// Frames of one sample, leaf first, and why there are no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// Why the walk ended.
    pub stop: StopReason,
}

impl Default for Stack {
    /// No frame yet, as of a chunk of which nothing was copied.
    fn default() -> Self {
        Self { frames: Vec::new(), stop: StopReason::Truncated(TruncatedReason::ChunkEmpty) }
    }
}

impl<'a> IntoIterator for &'a Stack {
    type Item = &'a Frame;
    type IntoIter = core::slice::Iter<'a, Frame>;

    /// Its frames, leaf first.
    fn into_iter(self) -> Self::IntoIter {
        self.frames.iter()
    }
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The sampled instruction, an interrupted instruction (above a signal frame), or a return address. AVMA.
    pub address: u64,
    /// Canonical frame address: the caller's stack pointer after the return (DWARF 5 §6.4.1).
    /// Frame-pointer walks give the address of the saved frame pointer plus 16. 0 where it is not known.
    pub cfa: u64,
    /// How the frame was found.
    pub source: FrameSource,
    /// What else must be said of it.
    pub flags: FrameFlags,
}

impl Frame {
    /// The address to look up rows and symbols with: a return address minus one, since the call may be the last
    /// instruction of its function; an instruction address as it is.
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
    /// A call frame information row of the frame below.
    Cfi,
    /// The frame-pointer chain.
    FramePointer,
    /// The kernel said so.
    Kernel,
    /// A rule of ours where no information exists.
    Heuristic,
}

/// Flags of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameFlags {
    /// [`Frame::address`] is an instruction, not a return address: the leaf, and the frame a signal interrupted.
    pub is_instruction: bool,
    /// Found with the frame pointer where the strategy is not about frame pointers.
    pub fp_fallback: bool,
    /// Found with the frame pointer of JIT-compiled code. If that keeps no frame pointers, callers are missing below.
    pub fp_in_jit: bool,
    /// A frame-pointer chain whose leaf had no frame of its own yet: the leaf's caller is missing above this frame.
    pub leaf_skip_suspect: bool,
}

/// Why a walk ended. Every stack has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The outermost frame was reached.
    Complete(Root),
    /// There is more, but it cannot be seen.
    Truncated(TruncatedReason),
    /// What was found cannot be right.
    Broken(BrokenReason),
    /// There was no user stack to unwind, so that the sample says nothing of unwinding.
    NoStack(NoStackReason),
}

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every value, in order.
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
        /// The stack of Go's scheduler: its start, or where the run-time library went over to it from another.
        G0 = "g0",
        /// Code without rows at the very end of its stack, where no return address can be.
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
        /// The walk left the upper end of the copied chunk, below the end of the stack.
        ChunkEnd = "chunk_end",
        /// No byte of the stack was copied.
        ChunkEmpty = "chunk_empty",
        /// The walk went on in another stack, which was not copied.
        StackSwitch = "stack_switch",
        /// A register is needed that a function has saved below the stack pointer, in its red zone, which was not copied.
        RedZone = "red_zone",
        /// As many frames as were asked for.
        MaxDepth = "max_depth",
        /// The module has no unwind information for this instruction.
        NoCfi = "no_cfi",
        /// No module is known at this executable address (generated code, or a sampled instruction in a mapping that was
        /// not told of).
        NoModule = "no_module",
        /// The module has no `.sframe` section, by which it was to be unwound.
        NoSframe = "no_sframe",
        /// The module's file cannot be read.
        ModuleUnavailable = "module_unavailable",
        /// The file is not the one that was mapped.
        BuildIdMismatch = "build_id_mismatch",
        /// Nothing executable of the process is known: it was gone, or could not be read, before its mappings were.
        ProcessGone = "process_gone",
        /// 32-bit code.
        Abi32 = "abi32",
        /// The budget of steps for one sample was used up.
        Budget = "budget",
    }
}

named! {
    /// Why a thread of a program had no user stack, or none that is known.
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
    /// What was wrong.
    BrokenReason {
        /// The return address points into no executable mapping.
        RaNotExec = "ra_not_exec",
        /// The frame's CFA is not above that of the frame below.
        CfaNotIncreasing = "cfa_not_increasing",
        /// A stack or frame pointer that is not a multiple of 8.
        Misaligned = "misaligned",
        /// The same frame twice.
        Loop = "loop",
        /// Call frame information that cannot be parsed or followed.
        BadCfi = "bad_cfi",
        /// A DWARF expression over its limit of steps.
        ExprLimit = "expr_limit",
    }
}

/// `complete (_start)`, `truncated (chunk_end)`.
impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.class(), self.name())
    }
}

impl StopReason {
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
