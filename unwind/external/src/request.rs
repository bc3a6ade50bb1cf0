//! The input of an external unwinder, and its interface.

use fpprof_unwind::{Chunk, Chunks, Stack, TruncatedReason};
use std::path::Path;

/// One recorded sample and the address space it was taken in.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The modules mapped when the sample was taken, each once, in any order.
    ///
    /// A module without addresses, and one that overlaps a module before it in the list, counts as not mapped:
    /// frames in it end the stack with [`TruncatedReason::NoModule`].
    pub modules: &'a [ModuleRef<'a>],
    /// Identifies the list: the same id means the same modules, so that state built for it is reused.
    pub modules_id: u64,
    /// The registers in DWARF order (x86-64 psABI fig. 3.36): rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, ip.
    pub regs: &'a [u64; 17],
    /// The copied stack bytes.
    pub stack: Chunk<'a>,
    /// The chunk of the interrupted stack, if a signal handler runs on an alternate stack.
    pub interrupted: Option<&'a Chunk<'a>>,
    /// The most frames to return, the leaf included.
    pub max_depth: u32,
}

impl<'a> Request<'a> {
    /// All copied stack bytes.
    pub(crate) fn memory(&self) -> Chunks<'a> {
        Chunks { current: self.stack, interrupted: self.interrupted }
    }
}

/// One loaded ELF file.
#[derive(Debug, Clone, Copy)]
pub struct ModuleRef<'a> {
    /// The file.
    pub file: ModuleFile<'a>,
    /// AVMA of the first byte of its first mapping.
    pub start: u64,
    /// First AVMA above its last mapping.
    pub end: u64,
    /// AVMA − SVMA (load bias), wrapping: 0 for a position-dependent program.
    pub bias: u64,
}

/// The file of a module.
#[derive(Debug, Clone, Copy)]
pub enum ModuleFile<'a> {
    /// A path.
    Path(&'a Path),
    /// The whole ELF image, as for the vDSO.
    Bytes(&'a [u8]),
    /// Not available; a stack that reaches the module ends with this reason.
    Missing(TruncatedReason),
}

/// An external unwinding library.
pub trait ExternalUnwinder {
    /// The name of the strategy: `elfutils`, `libunwind`.
    fn name(&self) -> &'static str;

    /// Unwinds one sample into `out`, which is overwritten.
    ///
    /// # Errors
    ///
    /// If the library itself fails; `out` then has no frames. Faults of the sample or a module are not errors but
    /// [stop reasons](Stack::stop).
    fn unwind(&mut self, request: &Request<'_>, out: &mut Stack) -> Result<(), Error>;
}

/// A failure of a library itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library could not create an address space; it was out of memory.
    #[error("{library} could not create an address space")]
    NoAddressSpace {
        /// The library.
        library: &'static str,
    },
    /// The library refused a sample before its first frame.
    #[error("{library} refused to start (code {code})")]
    Refused {
        /// The library.
        library: &'static str,
        /// Its own error number.
        code: i32,
    },
}
