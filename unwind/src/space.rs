//! Address spaces: which module is mapped where.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::module::Module;
use crate::stack::TruncatedReason;

/// A module's index in the caller's table. The same number must mean the same module for the life of an unwinder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// One mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address, AVMA.
    pub start: u64,
    /// First address above the mapping.
    pub end: u64,
    /// Whether code may run here.
    pub executable: bool,
    /// The mapped module; `None` for memory without a file, such as generated code.
    pub module: Option<ModuleId>,
    /// AVMA − SVMA of the module (load bias), wrapping. If the caller implements [`Modules::bias`]: any number, of which
    /// that makes the bias.
    pub bias: u64,
}

/// The mappings of one process at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    id: u32,
    mappings: Vec<Mapping>,
    compiled: Option<Arc<[Mapping]>>,
}

impl Space {
    /// Creates a space from mappings in any order. They must not overlap, as a process's never do; if they do, an
    /// address belongs to the mapping that starts last below it, or to none.
    ///
    /// `id` stands for the contents: for the life of an unwinder, two spaces with the same id must be equal, since
    /// rules are cached by id and address.
    #[must_use]
    pub fn new(id: u32, mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| mapping.start);
        Self { id, mappings, compiled: None }
    }

    /// Adds JIT-compiled code in executable mappings without a module: each piece with the module that has its rows.
    /// Pieces must be ascending and must not overlap.
    #[must_use]
    pub fn with_compiled(self, pieces: Arc<[Mapping]>) -> Self {
        Self { compiled: Some(pieces), ..self }
    }

    /// The id of the contents.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The mapping that contains an address.
    #[must_use]
    pub fn find(&self, avma: u64) -> Option<&Mapping> {
        find(&self.mappings, avma)
    }

    /// The same, but for a mapping without a module the piece of compiled code, if there is one.
    pub(crate) fn find_code(&self, avma: u64) -> Option<&Mapping> {
        let mapping = self.find(avma)?;
        let compiled = self.compiled.as_ref().filter(|_| mapping.executable && mapping.module.is_none());
        Some(compiled.and_then(|pieces| find(pieces, avma)).unwrap_or(mapping))
    }

    /// All mappings, ascending.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

fn find(mappings: &[Mapping], avma: u64) -> Option<&Mapping> {
    let above = mappings.partition_point(|mapping| mapping.start <= avma);
    let mapping = mappings.get(above.checked_sub(1)?)?;
    (avma < mapping.end).then_some(mapping)
}

/// The caller's modules.
pub trait Modules {
    /// The module with this id. The answer must be the same for the life of an unwinder.
    ///
    /// # Errors
    /// Why it is missing: [`TruncatedReason::ModuleUnavailable`] or [`TruncatedReason::BuildIdMismatch`].
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason>;

    /// AVMA − SVMA of a mapping's module, wrapping: by default [`Mapping::bias`]. A caller that has to read a file for
    /// it can do so here: it is asked about mappings in which frames are. The answer must be the same for the life of an
    /// unwinder.
    fn bias(&self, mapping: &Mapping) -> u64 {
        mapping.bias
    }

    /// Copies a module's code, starting at `_svma`, into `_code`; returns false if not all of it is available, as by
    /// default. Called only where a walk ends, at most once for each place, to recognise the root. The answer must be
    /// the same for the life of an unwinder.
    fn code(&self, _id: ModuleId, _svma: u64, _code: &mut [u8]) -> bool {
        false
    }
}

impl Modules for [Module] {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        usize::try_from(id.0).ok().and_then(|index| self.get(index)).ok_or(TruncatedReason::ModuleUnavailable)
    }
}

impl Modules for Vec<Module> {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        self.as_slice().module(id)
    }
}
