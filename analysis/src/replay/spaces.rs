//! Address spaces in the unwinder's form.

use crate::address_space::{Contents, FileIx, MomentCache, SpaceKey, SpaceMapping, Timeline};
use crate::modules::ModuleTable;
use crate::symbols::JitCodes;
use fpprof_unwind::{CALL_BYTES, Mapping, ModuleId, Modules, Space};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An address space with its modules.
#[derive(Debug)]
pub struct PlacedSpace {
    /// The unwinder's space. The bias of a mapping with a file is AVMA − file offset, so that no file has to be opened
    /// for it: [`ModuleTable`] makes AVMA − SVMA of it, as the unwinder's [`Modules::bias`].
    pub space: Space,
    placed: OnceLock<Vec<PlacedModule>>,
    /// The process whose table or dump names the code compiled here, if the recording has one. A forked process runs
    /// its parent's code.
    pub compiled_by: Option<u32>,
    /// JIT-compiled code from the processes' dumps.
    pub jit_codes: Arc<JitCodes>,
}

impl PlacedSpace {
    /// A space without JIT-compiled code.
    #[must_use]
    pub fn new(space: Space) -> Self {
        Self { space, placed: OnceLock::new(), compiled_by: None, jit_codes: Arc::default() }
    }

    /// Each module once, ascending by address: all mappings of a file with the same load bias. Opens all files.
    #[must_use]
    pub fn modules(&self, modules: &impl Modules) -> &[PlacedModule] {
        self.placed.get_or_init(|| {
            let mut placed: Vec<PlacedModule> = Vec::new();
            let mut numbers = FxHashMap::default();
            for mapping in self.space.mappings() {
                let Some(ModuleId(file)) = mapping.module else { continue };
                let (file, bias, Mapping { start, end, .. }) = (FileIx(file), modules.bias(mapping), *mapping);
                let n = *numbers.entry((file, bias)).or_insert(placed.len());
                match placed.get_mut(n) {
                    Some(module) => module.end = end,
                    None => placed.push(PlacedModule { file, bias, start, end }),
                }
            }
            placed
        })
    }

    /// Whether there is a dump of the code compiled here, which has times.
    pub(crate) fn has_dump(&self) -> bool {
        self.compiled_by.is_some_and(|pid| self.jit_codes.is_of(pid))
    }

    /// The eight bytes of a file's code before a return address: `None` if the address is not one of executable memory,
    /// and `Some(None)` if they are not known.
    #[must_use]
    pub fn code_before(&self, modules: &impl Modules, address: u64) -> Option<Option<[u8; 8]>> {
        let lookup = address.wrapping_sub(1);
        let mapping = self.space.find(lookup).filter(|mapping| mapping.executable)?;
        // The unwinder looks at 16 bytes, and knows nothing if they are not all there.
        let mut code = [0; CALL_BYTES];
        let start = address.wrapping_sub(modules.bias(mapping)).wrapping_sub(CALL_BYTES as u64);
        let is_read = mapping.module.is_some_and(|id| modules.code(id, start, &mut code));
        Some(code.last_chunk().copied().filter(|_| is_read))
    }
}

/// A module in an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedModule {
    /// The file.
    pub file: FileIx,
    /// AVMA − SVMA, wrapping.
    pub bias: u64,
    /// First address of its first executable mapping.
    pub start: u64,
    /// First address above its last executable mapping.
    pub end: u64,
}

/// Builds address spaces when samples need them, and caches them.
#[derive(Debug)]
pub struct Spaces<'a> {
    timeline: &'a Timeline,
    modules: &'a ModuleTable<'a>,
    contents: Contents,
    /// Processes with a table or dump of compiled code, by the log of their spaces.
    compiled_by: FxHashMap<u32, u32>,
    /// Their JIT-compiled code with call frame information.
    compiled: Mutex<FxHashMap<u32, Arc<[Mapping]>>>,
    next_id: AtomicU32,
    cache: Mutex<MomentCache<Arc<PlacedSpace>>>,
    nothing: Arc<PlacedSpace>,
}

impl<'a> Spaces<'a> {
    /// The spaces of a timeline, with modules from `modules`. None is built yet.
    #[must_use]
    pub fn new(timeline: &'a Timeline, modules: &'a ModuleTable<'a>) -> Self {
        Self {
            timeline,
            modules,
            contents: Contents::default(),
            compiled_by: timeline.compiled_by(),
            compiled: Mutex::default(),
            next_id: AtomicU32::new(1),
            cache: Mutex::default(),
            nothing: Arc::new(PlacedSpace::new(Space::new(0, Vec::new()))),
        }
    }

    /// The space with this key; an empty one for `None`.
    #[must_use]
    pub fn get(&self, key: Option<SpaceKey>) -> Arc<PlacedSpace> {
        let Some(key) = key else { return Arc::clone(&self.nothing) };
        if let Some(space) = self.cache().get(key) {
            return space;
        }
        let space = Arc::new(self.make(key));
        self.cache().insert(key, Arc::clone(&space), space.space.mappings().len());
        space
    }

    fn cache(&self) -> MutexGuard<'_, MomentCache<Arc<PlacedSpace>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, key: SpaceKey) -> PlacedSpace {
        let content = self.contents.get(self.timeline, key);
        let mapping = |&SpaceMapping { start, end, file, file_offset, .. }: &SpaceMapping| {
            let bias = file.map_or(0, |_| start.wrapping_sub(file_offset));
            Mapping { start, end, executable: true, module: file.map(|file| ModuleId(file.0)), bias }
        };
        let mappings = content.iter().map(mapping).collect();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let compiled_by = self.compiled_by.get(&key.log).copied();
        let space = Space::new(id, mappings);
        PlacedSpace {
            space: match compiled_by.map(|pid| self.compiled(pid)) {
                Some(pieces) if !pieces.is_empty() => space.with_compiled(pieces),
                _ => space,
            },
            placed: OnceLock::new(),
            compiled_by,
            jit_codes: Arc::clone(self.timeline.jit_codes()),
        }
    }

    fn compiled(&self, pid: u32) -> Arc<[Mapping]> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(compiled.entry(pid).or_insert_with(|| self.modules.compiled_by(pid)))
    }
}
