//! The figures of an audit.

use serde::Serialize;
use std::ops::AddAssign;

/// What one file was found to hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileAudit {
    /// Whose code it is.
    pub machine: Machine,
    /// Build id, lower-case hexadecimal digits; empty when the file has none.
    pub build_id: String,
    /// The figures.
    pub tally: CodeTally,
    /// Where the rows came from.
    pub source: Source,
    /// Version of `.sframe`; `None` without the section.
    pub sframe: Option<SframeVersion>,
    /// The file is a Go program: its code keeps frame pointers by Go's own convention and has no `.eh_frame`.
    pub go: bool,
    /// Compilers named by `.comment`, as they name themselves. Debian strips the section.
    pub compilers: Vec<String>,
    /// Compilers and flags recorded by `DW_AT_producer`; empty without debug information.
    pub producers: Vec<Producer>,
    /// What a decoder saw; `None` unless asked for.
    pub disassembled: Option<Disassembled>,
    /// The functions one by one; empty unless asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<FunctionRecord>,
    /// The class of every byte that rows cover, ascending; empty unless asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<ByteRange>,
    /// What stands out, and what could not be read.
    pub remarks: Vec<Remark>,
}

/// What a frame-pointer walk does that starts at a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It is right.
    Ok,
    /// It goes on without the function's caller.
    DropsCaller,
    /// It reads a register that holds something else.
    BreaksChain,
}

/// Neighbouring bytes of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByteRange {
    /// First address (SVMA).
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// What a walk does there.
    pub class: Class,
}

/// The class of a byte; `None` where no row covers it. `ranges` ascend.
#[must_use]
pub fn class_at(ranges: &[ByteRange], svma: u64) -> Option<Class> {
    let above = ranges.partition_point(|range| range.start <= svma);
    let range = ranges.get(above.checked_sub(1)?)?;
    (svma < range.end).then_some(range.class)
}

/// Architectures whose code is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    /// AMD64.
    X86_64,
    /// 64-bit Arm, little-endian.
    Aarch64,
}

/// Which section the rows came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`, because `.eh_frame` holds no entry. The program cannot be unwound once it is stripped.
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
    /// Code of an architecture that is not judged, with its `e_machine`.
    #[error("unsupported machine {0}")]
    Machine(u16),
    /// An object file or kernel module: its unwind information has no addresses before it is linked.
    #[error("an object file that is not linked")]
    Relocatable,
    /// A core dump.
    #[error("a core dump")]
    CoreDump,
    /// Debug information split off from a program: the code itself is not in the file.
    #[error("split debug information without the code")]
    DebugOnly,
    /// No section headers, so that code cannot be told from data.
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

/// Counts of functions, one for each frame description entry that starts as a function does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Functions {
    /// Functions: all of those below but `parts`, `stubs` and `others`.
    pub total: u64,
    /// Functions that set up a frame pointer.
    pub framed: u64,
    /// Functions that call.
    pub non_leaf: u64,
    /// Functions that call and set up a frame pointer.
    pub non_leaf_framed: u64,
    /// Functions that call nothing (they may jump away at their end).
    pub leaf: u64,
    /// Functions that call nothing and set up a frame pointer all the same.
    pub leaf_framed: u64,
    /// Functions whose code could not be read to its end, so that nobody knows whether they call.
    pub unread: u64,
    /// Functions that set up a frame pointer only more than 16 bytes after their start (shrink-wrapped prologues).
    pub late: u64,
    /// Functions that realign their stack and keep the frame pointer chain intact (a dynamic argument pointer).
    pub realigned: u64,
    /// Functions that save another callee-saved register than the frame pointer. Compilers that do not optimise
    /// hardly ever do.
    pub saves_others: u64,
    /// Parts split off from functions (`.cold`): they begin inside a frame, and are no functions.
    pub parts: u64,
    /// Linkage stubs (`.plt`), by entry.
    pub stubs: u64,
    /// Entry points, signal trampolines, and entries whose rows could not be evaluated.
    pub others: u64,
}

/// Bytes of executable sections. `executable` is the sum of the others, exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    /// All of them.
    pub executable: u64,
    /// A frame-pointer walk that starts here is right.
    pub ok: u64,
    /// It goes on, but without the caller of this function.
    pub drops_caller: u64,
    /// It reads a register that holds something else.
    pub breaks_chain: u64,
    /// Space of less than 64 bytes between two functions, the second of which is aligned.
    pub padding: u64,
    /// Code of Go programs: framed by Go's convention, without rows.
    pub go: u64,
    /// No row covers them: assembly, or unwind information left out.
    pub no_cfi: u64,
}

impl Code {
    /// Bytes covered by rows.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.ok.saturating_add(self.drops_caller).saturating_add(self.breaks_chain)
    }
}

/// Bytes of sections, as in the file.
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

/// A compiler and the flags that matter to unwinding, as `DW_AT_producer` has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Producer {
    /// The compiler, without flags.
    pub compiler: String,
    /// Flags about optimisation, frame pointers and unwind tables, in their order. Only GCC records flags by default.
    pub flags: Vec<String>,
    /// Compilation units.
    pub units: u64,
}

/// What a decoder saw in the functions of a file, beside what the rows say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Disassembled {
    /// Functions decoded.
    pub functions: u64,
    /// Functions with `push %rbp` and later `mov %rsp,%rbp`, neither register written between.
    pub prologues: u64,
    /// Those of them that the rows call framed, too.
    pub prologues_framed: u64,
    /// Functions the rows call framed in which no such pair was seen.
    pub framed_only: u64,
    /// Functions that write the frame pointer register where the rows say it is untouched: a walk breaks in them.
    pub writes_untouched: u64,
}

/// What a frame description entry covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// A function.
    Function,
    /// A part split off from one.
    Part,
    /// Linkage stubs.
    Stubs,
    /// Code without a caller, such as `_start`.
    Root,
    /// A signal trampoline.
    Signal,
    /// Its rows could not be evaluated.
    Unreadable,
}

/// One entry, and what its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FunctionRecord {
    /// First address (SVMA).
    pub start: u64,
    /// Bytes of code.
    pub len: u64,
    /// What it covers.
    pub kind: FunctionKind,
    /// Whether it calls nothing; `None` when that is unknown or makes no sense.
    pub leaf: Option<bool>,
    /// Whether it sets up a frame pointer.
    pub framed: bool,
    /// Whether it does so late.
    pub late: bool,
    /// Whether it realigns its stack.
    pub realigned: bool,
    /// Whether it saves other callee-saved registers.
    pub saves_others: bool,
    /// Bytes where a walk is right.
    pub ok: u64,
    /// Bytes where it drops the caller.
    pub drops_caller: u64,
    /// Bytes where it breaks.
    pub breaks_chain: u64,
}

/// What stands out in a file, or could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remark {
    /// Its leaf functions keep frame pointers and nothing uses other registers: it looks compiled without
    /// optimisation.
    LooksUnoptimised,
    /// Code, but no unwind information: neither this audit nor unwinding by DWARF can see into it.
    NoUnwindInformation,
    /// Entries whose rows could not be evaluated.
    BadEntries(u64),
    /// Entries that cover code another entry covers already; counted once.
    Overlaps(u64),
    /// A section that reaches beyond the file, or is larger than what is read.
    SectionLeftOut(String),
    /// Code could not be read to its end: the file is shorter than its headers say.
    CodeCut,
    /// `.debug_info` is compressed: flags were not read.
    CompressedDebugInfo,
    /// Only so many compilation units were asked for their flags.
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

/// Sums field by field; figures of hostile files may saturate.
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
