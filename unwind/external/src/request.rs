//! What is asked, and of whom.

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
    /// Names the list: the same id means the same modules, so that what was built for it is used again.
    pub modules_id: u64,
    /// The registers in DWARF order (x86-64 psABI fig. 3.36): rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, ip.
    pub regs: &'a [u64; 17],
    /// The copied stack bytes.
    pub stack: Chunk<'a>,
    /// Those of the stack that a signal has interrupted whose handler runs on a stack of its own.
    pub interrupted: Option<&'a Chunk<'a>>,
    /// The most frames to return, the leaf included.
    pub max_depth: u32,
}

impl<'a> Request<'a> {
    /// All that was copied.
    pub(crate) fn memory(&self) -> Chunks<'a> {
        Chunks { current: self.stack, interrupted: self.interrupted }
    }
}

/// One loaded ELF file.
#[derive(Debug, Clone, Copy)]
pub struct ModuleRef<'a> {
    /// Where its bytes are.
    pub file: ModuleFile<'a>,
    /// AVMA of the first byte of its first mapping.
    pub start: u64,
    /// AVMA behind the last byte of its last mapping.
    pub end: u64,
    /// AVMA − SVMA, wrapping: 0 for a program that is linked at its addresses.
    pub bias: u64,
}

/// Where the bytes of a module are.
#[derive(Debug, Clone, Copy)]
pub enum ModuleFile<'a> {
    /// A file.
    Path(&'a Path),
    /// The whole ELF image, as for the vDSO.
    Bytes(&'a [u8]),
    /// Nowhere, and why: a stack that reaches it ends with this reason.
    Missing(TruncatedReason),
}

/// A library that unwinds.
pub trait ExternalUnwinder {
    /// The name of the strategy: `elfutils`, `libunwind`.
    fn name(&self) -> &'static str;

    /// Unwinds one sample into `out`, whose old content is dropped.
    ///
    /// # Errors
    ///
    /// When the library itself fails; `out` then holds no frames. Whatever the sample or a module does wrong is no
    /// error but the [stop reason](Stack::stop).
    fn unwind(&mut self, request: &Request<'_>, out: &mut Stack) -> Result<(), Error>;
}

/// A library that could not work at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library could not make the object that holds an address space; it was out of memory.
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
