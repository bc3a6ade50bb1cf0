//! Address spaces: which module is mapped where.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::module::Module;
use crate::stack::TruncatedReason;

/// A module's place in the caller's table. The same number means the same module as long as an unwinder lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// One mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address, AVMA.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// Code may run here.
    pub executable: bool,
    /// What is mapped; `None` for memory of no file, such as generated code.
    pub module: Option<ModuleId>,
    /// AVMA − SVMA of the module, wrapping.
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
    /// Takes mappings in any order. They must not overlap, as those of a process do not; where they do all the same, an
    /// address belongs to the one that starts last below it, or to none.
    ///
    /// `id` names the contents: within the life of one unwinder two spaces of the same id must be equal, since rules
    /// are remembered by id and address.
    #[must_use]
    pub fn new(id: u32, mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| mapping.start);
        Self { id, mappings, compiled: None }
    }

    /// The same with code that the process has compiled, where it lies in executable mappings of no module: each piece with
    /// the module that has its rows. Pieces ascend and do not overlap.
    #[must_use]
    pub fn with_compiled(self, pieces: Arc<[Mapping]>) -> Self {
        Self { compiled: Some(pieces), ..self }
    }

    /// The name of the contents.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The mapping an address lies in.
    #[must_use]
    pub fn find(&self, avma: u64) -> Option<&Mapping> {
        find(&self.mappings, avma)
    }

    /// The same; of a mapping of no module the piece of compiled code, where there is one.
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
    /// The module of this id. The answer must be the same as long as an unwinder lives.
    ///
    /// # Errors
    /// Why there is none: [`TruncatedReason::ModuleUnavailable`] or [`TruncatedReason::BuildIdMismatch`].
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason>;

    /// Copies a module's code from this SVMA on; false where not all of it can be had, as by default. Asked for only
    /// where a walk ends, at most once for each place, to tell what it has ended in. The answer must be the same as
    /// long as an unwinder lives.
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
