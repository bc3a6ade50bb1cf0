//! The model of an audit.

use serde::Serialize;
use std::ops::AddAssign;

/// The findings in one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileAudit {
    /// The architecture of the code.
    pub machine: Machine,
    /// Build ID, lower-case hexadecimal digits; empty if the file has none.
    pub build_id: String,
    /// The figures.
    pub tally: CodeTally,
    /// The section the rows came from.
    pub source: Source,
    /// Version of `.sframe`; `None` without the section.
    pub sframe: Option<SframeVersion>,
    /// The file is a Go program: its code keeps frame pointers by Go's own convention and has no `.eh_frame`.
    pub go: bool,
    /// Compilers named in `.comment`. Debian strips the section.
    pub compilers: Vec<String>,
    /// Compilers and flags from `DW_AT_producer`; empty without debug information.
    pub producers: Vec<Producer>,
    /// Results of decoding; `None` unless asked for.
    pub disassembled: Option<Disassembled>,
    /// The functions one by one; empty unless asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<FunctionRecord>,
    /// The class of every byte that rows cover, ascending; empty unless asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ByteRange>,
    /// Peculiarities, and what could not be read.
    pub remarks: Vec<Remark>,
}

/// What a frame-pointer walk that starts at a byte does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It finds the caller.
    Ok,
    /// It continues without the function's caller.
    DropsCaller,
    /// It reads a register that holds something else.
    BreaksChain,
}

/// Adjacent bytes of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByteRange {
    /// First address (SVMA).
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// What a walk does there.
    pub class: Class,
}

/// The class of a byte; `None` if no row covers it. `ranges` must be ascending.
#[must_use]
pub fn class_at(ranges: &[ByteRange], svma: u64) -> Option<Class> {
    let above = ranges.partition_point(|range| range.start <= svma);
    let range = ranges.get(above.checked_sub(1)?)?;
    (svma < range.end).then_some(range.class)
}

/// Architectures that can be audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    /// AMD64.
    X86_64,
    /// 64-bit Arm, little-endian.
    Aarch64,
}

/// The section the rows came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`, because `.eh_frame` has no entry. Once stripped, the program cannot be unwound.
    DebugFrame,
    /// Neither: nothing is known about the code.
    None,
}

/// Why a file was not audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Not an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// 32-bit code.
    #[error("32-bit ELF")]
    ThirtyTwoBit,
    /// Big-endian code.
    #[error("big-endian ELF")]
    BigEndian,
    /// Code of an unsupported architecture, with its `e_machine`.
    #[error("unsupported machine {0}")]
    Machine(u16),
    /// An object file or kernel module: before linking, its unwind information has no addresses.
    #[error("an object file that is not linked")]
    Relocatable,
    /// A core dump.
    #[error("a core dump")]
    CoreDump,
    /// Debug information split off from a program: the file does not contain the code.
    #[error("split debug information without the code")]
    DebugOnly,
    /// No section headers, so code cannot be distinguished from data.
    #[error("no section headers")]
    NoSections,
    /// The headers contradict the file.
    #[error("damaged headers")]
    Damaged,
}

/// Figures that can be summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CodeTally {
    /// Functions by kind.
    pub functions: Functions,
    /// Bytes of executable sections by what a frame-pointer walk does there.
    pub code: Code,
    /// Bytes of executable sections that `.sframe` has rows for.
    pub sframe_code: u64,
    /// Bytes of sections.
    pub sizes: Sizes,
}

/// Counts of functions, one for each FDE that starts as a function does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Functions {
    /// All functions: those below except `parts`, `stubs` and `others`.
    pub total: u64,
    /// Functions that set up a frame pointer.
    pub framed: u64,
    /// Functions that call.
    pub non_leaf: u64,
    /// Functions that call and set up a frame pointer.
    pub non_leaf_framed: u64,
    /// Functions that call nothing (they may end with a jump elsewhere).
    pub leaf: u64,
    /// Functions that call nothing but set up a frame pointer.
    pub leaf_framed: u64,
    /// Functions whose code could not be read to its end, so that it is not known whether they call.
    pub unread: u64,
    /// Functions that set up a frame pointer only more than 16 bytes after their start (shrink-wrapped prologues).
    pub late: u64,
    /// Functions that realign their stack and keep the frame pointer chain intact (a dynamic argument pointer).
    pub realigned: u64,
    /// Functions that save a callee-saved register other than the frame pointer. Compilers hardly ever do so without
    /// optimisation.
    pub saves_others: u64,
    /// Parts split off from functions (`.cold`): they begin inside a frame and are not functions.
    pub parts: u64,
    /// PLT entries.
    pub stubs: u64,
    /// Entry points, signal trampolines, and FDEs whose rows could not be evaluated.
    pub others: u64,
}

/// Bytes of executable sections. `executable` is the sum of the others, exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    /// All bytes.
    pub executable: u64,
    /// A frame-pointer walk that starts here finds the caller.
    pub ok: u64,
    /// The walk continues, but without the caller of this function.
    pub drops_caller: u64,
    /// The walk reads a register that holds something else.
    pub breaks_chain: u64,
    /// Gaps of less than 64 bytes between two functions, the second of which is aligned.
    pub padding: u64,
    /// Code of Go programs: framed by Go's convention, without rows.
    pub go: u64,
    /// Not covered by rows: assembly, or omitted unwind information.
    pub no_cfi: u64,
}

impl Code {
    /// Bytes covered by rows.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.ok.saturating_add(self.drops_caller).saturating_add(self.breaks_chain)
    }
}

/// Sizes of sections in the file, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// `.text`.
    pub text: u64,
    /// `.eh_frame`.
    pub eh_frame: u64,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: u64,
    /// `.sframe`.
    pub sframe: u64,
    /// `.debug_frame`, as stored.
    pub debug_frame: u64,
}

/// Version of an `.sframe` section. An archive with more than one cannot be read by one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SframeVersion {
    /// The number in the section's preamble: 1 (binutils 2.40), 2 (2.41 to 2.45), 3 (2.46 and later).
    Version(u8),
    /// The section does not begin with `SFrame`'s magic number.
    Unknown,
}

/// A compiler and the flags that matter for unwinding, from `DW_AT_producer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Producer {
    /// The compiler, without flags.
    pub compiler: String,
    /// Flags for optimisation, frame pointers and unwind tables, in order. Only GCC records flags by default.
    pub flags: Vec<String>,
    /// Compilation units.
    pub units: u64,
}

/// What a decoder saw in the functions of a file, compared with the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Disassembled {
    /// Functions decoded.
    pub functions: u64,
    /// Functions with `push %rbp` and later `mov %rsp,%rbp`, with neither register written in between.
    pub prologues: u64,
    /// Those that are also framed according to their rows.
    pub prologues_framed: u64,
    /// Functions that are framed according to their rows, but without such a pair.
    pub framed_only: u64,
    /// Functions that write the frame pointer register although the rows say it is untouched: a walk breaks in them.
    pub writes_untouched: u64,
}

/// What an FDE covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// A function.
    Function,
    /// A part split off from a function.
    Part,
    /// Linkage stubs.
    Stubs,
    /// Code without a caller, such as `_start`.
    Root,
    /// A signal trampoline.
    Signal,
    /// Unknown: its rows could not be evaluated.
    Unreadable,
}

/// One FDE and the classes of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FunctionRecord {
    /// First address (SVMA).
    pub start: u64,
    /// Bytes of code.
    pub len: u64,
    /// What it covers.
    pub kind: FunctionKind,
    /// Whether it calls nothing; `None` if not known or not applicable.
    pub leaf: Option<bool>,
    /// Whether it sets up a frame pointer.
    pub framed: bool,
    /// Whether it does so late.
    pub late: bool,
    /// Whether it realigns its stack.
    pub realigned: bool,
    /// Whether it saves other callee-saved registers.
    pub saves_others: bool,
    /// Bytes where a walk finds the caller.
    pub ok: u64,
    /// Bytes where it drops the caller.
    pub drops_caller: u64,
    /// Bytes where it breaks.
    pub breaks_chain: u64,
}

/// A peculiarity of a file, or something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remark {
    /// Its leaf functions keep frame pointers and other callee-saved registers are unused: it looks compiled without
    /// optimisation.
    LooksUnoptimised,
    /// Code, but no unwind information: neither this audit nor DWARF unwinding is possible.
    NoUnwindInformation,
    /// This many bytes of code have rows in `.debug_frame` alone: once stripped, they cannot be unwound.
    OnlyDebugFrame(u64),
    /// FDEs whose rows could not be evaluated.
    BadEntries(u64),
    /// FDEs that cover code already covered by another; counted once.
    Overlaps(u64),
    /// A section that extends beyond the file, or is larger than the limit.
    SectionLeftOut(String),
    /// Code could not be read to its end: the file is shorter than its headers say.
    CodeCut,
    /// `.debug_info` is compressed: flags were not read.
    CompressedDebugInfo,
    /// The flags of this many compilation units were not read.
    UnitsLeftOut(u64),
}

impl AddAssign for CodeTally {
    fn add_assign(&mut self, other: Self) {
        self.functions += other.functions;
        self.code += other.code;
        self.sframe_code = self.sframe_code.saturating_add(other.sframe_code);
        self.sizes += other.sizes;
    }
}

/// Adds field by field, saturating, since figures of hostile files may be huge.
macro_rules! add_fields {
    ($type:ty, $($field:ident),+) => {
        impl AddAssign for $type {
            fn add_assign(&mut self, other: Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)+
            }
        }
    };
}

add_fields!(
    Functions,
    total,
    framed,
    non_leaf,
    non_leaf_framed,
    leaf,
    leaf_framed,
    unread,
    late,
    realigned,
    saves_others,
    parts,
    stubs,
    others
);
add_fields!(Code, executable, ok, drops_caller, breaks_chain, padding, go, no_cfi);
add_fields!(Sizes, text, eh_frame, eh_frame_hdr, sframe, debug_frame);
add_fields!(Disassembled, functions, prologues, prologues_framed, framed_only, writes_untouched);
