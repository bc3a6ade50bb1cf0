//! All modules of a recording, each read on first use.

use super::identity::{Verified, verify};
use super::unwind_sections::{UnwindSections, sframe_sections, unwind_sections};
use super::{Candidate, ElfFile, FileStat, Image, Missing, Resolver, debug_file};
use crate::address_space::{Embedded, FileIx, MappedFile, Timeline};
use crate::symbols::{JitCodes, JitUnwinding};
use fpprof_recording::model::{self, BuildId, FileIdentity, Meta};
use fpprof_unwind::{Arch, Mapping, Module, ModuleId, ModuleSections, Modules, Section, TruncatedReason};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The modules of a recording. Shared between threads; the first thread to need a module reads it.
///
/// [`ModuleId`] and [`FileIx`] are the same numbers, followed by the modules of JIT-compiled code with call frame
/// information.
#[derive(Debug)]
pub struct ModuleTable<'a> {
    files: &'a [MappedFile],
    embedded: &'a [Embedded],
    /// The first of those with each identity; `None` if that does not tell which one.
    embedded_by_identity: FxHashMap<FileIdentity, Option<usize>>,
    resolver: &'a dyn Resolver,
    /// Offset from the recording's clock to the time since 1970, in nanoseconds, if known.
    unix_offset_ns: Option<i128>,
    slots: Vec<Slot>,
    jit_codes: &'a JitCodes,
    arch: Arch,
    compiled: Vec<OnceLock<Box<Module>>>,
    /// Unwind information of files whose bytes are in the recording, by the address of these bytes, which files may
    /// share.
    of_bytes: Mutex<FxHashMap<usize, Arc<Unwinding>>>,
    /// Code that was requested, `None` if not available: stacks of all processes end at the same few places.
    code: RwLock<FxHashMap<Code, Option<Box<[u8]>>>>,
    /// The file whose code was read last.
    last_code: Mutex<Option<(FileIx, Option<ElfFile>)>>,
}

/// A module, an SVMA and a length.
type Code = (ModuleId, u64, usize);

/// The most pieces of code cached, about 80 bytes each.
const MAX_CODE: usize = 1 << 15;

/// The location of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// In a file.
    Path(&'a Path),
    /// In the recording.
    Bytes(&'a [u8]),
}

/// Most files are never read, so this is small.
#[derive(Debug, Default)]
struct Slot {
    found: OnceLock<Result<Box<Found>, Missing>>,
    unwinding: OnceLock<Result<Arc<Unwinding>, TruncatedReason>>,
    by_sframe: OnceLock<Result<Box<Module>, TruncatedReason>>,
    /// A stack passed through it.
    is_used: AtomicBool,
    /// Its debug file was looked for, and there is none.
    has_no_debug: AtomicBool,
}

/// The unwind information of a module.
#[derive(Debug)]
struct Unwinding {
    module: Module,
    /// The module has more call frame information than the limit.
    is_too_much: bool,
}

/// A verified module.
#[derive(Debug)]
struct Found {
    image: Image,
    source: Source,
    verified: Verified,
}

#[derive(Debug)]
enum Source {
    Embedded(usize),
    File { path: PathBuf, stat: FileStat },
}

/// The numbers of the first modules with each identity. Also without build ID, since a mapping has none if the file could not be
/// read at that time: then only if there is one version of the file.
fn by_identity(embedded: &[Embedded]) -> FxHashMap<FileIdentity, Option<usize>> {
    let build_id = |number: usize| embedded.get(number).and_then(|module| module.identity.build_id);
    let mut numbers = FxHashMap::default();
    for (number, Embedded { identity, .. }) in embedded.iter().enumerate() {
        numbers.entry(*identity).or_insert(Some(number));
        let unread = numbers.entry(FileIdentity { build_id: None, ..*identity }).or_insert(Some(number));
        *unread = unread.filter(|&first| build_id(first) == identity.build_id);
    }
    numbers
}

impl<'a> ModuleTable<'a> {
    /// The modules mapped in `timeline`, found by `resolver`. Nothing is opened yet.
    #[must_use]
    pub fn new(timeline: &'a Timeline, meta: &Meta, resolver: &'a dyn Resolver) -> Self {
        let files = timeline.files();
        let embedded = timeline.embedded();
        Self {
            files,
            embedded,
            embedded_by_identity: by_identity(embedded),
            resolver,
            unix_offset_ns: (meta.start_unix_ns != 0)
                .then(|| i128::from(meta.start_unix_ns).saturating_sub(i128::from(meta.start_ns))),
            slots: files.iter().map(|_| Slot::default()).collect(),
            jit_codes: timeline.jit_codes(),
            arch: match meta.host.processor() {
                model::Arch::X86_64 => Arch::X86_64,
                model::Arch::Aarch64 => Arch::Aarch64,
            },
            compiled: timeline.jit_codes().unwinding().iter().map(|_| OnceLock::new()).collect(),
            of_bytes: Mutex::default(),
            code: RwLock::default(),
            last_code: Mutex::new(None),
        }
    }

    /// The mapped file.
    #[must_use]
    pub fn file(&self, ix: FileIx) -> Option<&'a MappedFile> {
        self.files.get(ix.0 as usize)
    }

    /// The headers of a module, once it is found and verified.
    ///
    /// # Errors
    /// Why the module is not available.
    pub fn image(&self, ix: FileIx) -> Result<&Image, Missing> {
        self.found(ix).map(|found| &found.image)
    }

    /// Opens a verified module again, to read more of it.
    ///
    /// # Errors
    /// Why the module is not available; [`Missing::Modified`] if it changed since it was verified.
    pub fn open(&self, ix: FileIx) -> Result<ElfFile, Missing> {
        match &self.found(ix)?.source {
            Source::Embedded(embedded) => self.open_embedded(*embedded),
            Source::File { path, stat } => {
                let opened = self.resolver.open(path)?;
                if opened.stat == *stat { ElfFile::new(opened) } else { Err(Missing::Modified) }
            }
        }
    }

    /// The location of a verified module's bytes.
    ///
    /// # Errors
    /// Why the module is not available.
    pub fn location(&self, ix: FileIx) -> Result<Location<'_>, Missing> {
        match &self.found(ix)?.source {
            Source::Embedded(embedded) => {
                self.embedded.get(*embedded).map(|module| Location::Bytes(&module.bytes)).ok_or(Missing::NotFound)
            }
            Source::File { path, .. } => Ok(Location::Path(path)),
        }
    }

    /// Opens the debug file of a module: the one with its build ID, else the one that the module names.
    #[must_use]
    pub fn open_debug(&self, ix: FileIx) -> Option<ElfFile> {
        let (found, slot) = (self.found(ix).ok()?, self.slots.get(ix.0 as usize)?);
        if slot.has_no_debug.load(Ordering::Relaxed) {
            return None;
        }
        let by_build_id = found.image.build_id.and_then(|build_id| self.open_debug_file(build_id));
        let debug = by_build_id.or_else(|| match &found.source {
            Source::Embedded(_) => None,
            Source::File { path, .. } => debug_file::by_link(self.resolver, &self.open(ix).ok()?, path),
        });
        slot.has_no_debug.store(debug.is_none(), Ordering::Relaxed);
        debug
    }

    /// Opens the debug file with a build ID. A file with another build ID is not accepted.
    #[must_use]
    pub fn open_debug_file(&self, build_id: BuildId) -> Option<ElfFile> {
        debug_file::by_build_id(self.resolver, build_id)
    }

    /// Opens the supplementary file of the debug information in a module.
    pub(crate) fn open_supplementary(&self, ix: FileIx, module: &ElfFile) -> Option<ElfFile> {
        let path = match self.location(ix).ok()? {
            Location::Path(path) => path,
            // The link may still be absolute.
            Location::Bytes(_) => Path::new("/"),
        };
        debug_file::supplementary(self.resolver, module, path)
    }

    /// Opens the package with the split DWARF of all units of a module, which is next to it.
    pub(crate) fn open_package(&self, ix: FileIx) -> Option<ElfFile> {
        let Location::Path(path) = self.location(ix).ok()? else { return None };
        debug_file::package(self.resolver, path)
    }

    /// Opens the file with the split DWARF of a module's unit, given by its name and the folder it was compiled in.
    pub(crate) fn open_split(&self, ix: FileIx, folder: &[u8], name: &[u8]) -> Option<ElfFile> {
        let beside = match self.location(ix).ok()? {
            Location::Path(path) => path.parent(),
            Location::Bytes(_) => None,
        };
        debug_file::split(self.resolver, beside, folder, name)
    }

    /// The JIT-compiled code of process `pid` that has call frame information, with its modules.
    pub(crate) fn compiled_by(&self, pid: u32) -> Arc<[Mapping]> {
        let numbers = self.jit_codes.unwinding_of(pid);
        let mapping = |number: usize| {
            let Range { start, end } = self.jit_codes.unwinding().get(number)?.code.clone();
            let id = u32::try_from(self.files.len().checked_add(number)?).ok()?;
            Some(Mapping { start, end, executable: true, module: Some(ModuleId(id)), bias: 0 })
        };
        numbers.filter_map(mapping).collect()
    }

    /// The module of JIT-compiled code, by its number.
    fn compiled_module(&self, number: usize) -> Result<&Module, TruncatedReason> {
        let own = self.compiled.get(number).zip(self.jit_codes.unwinding().get(number));
        let (module, JitUnwinding { eh_frame_at, eh_frame, .. }) = own.ok_or(TruncatedReason::ModuleUnavailable)?;
        Ok(module.get_or_init(|| {
            let eh_frame = Some(Section { svma: *eh_frame_at, bytes: eh_frame.clone() });
            Box::new(Module::new(ModuleSections { eh_frame, arch: self.arch, ..ModuleSections::default() }))
        }))
    }

    /// What is missing from modules on the stacks, as text, sorted.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let used = self.files.iter().zip(&self.slots).filter(|(_, slot)| slot.is_used.load(Ordering::Relaxed));
        let warnings = used.filter_map(|(file, slot)| {
            let path = String::from_utf8_lossy(&file.path);
            if slot.unwinding.get().is_some_and(|found| found.as_ref().is_ok_and(|unwinding| unwinding.is_too_much)) {
                return Some(format!("{path}: too much call frame information; stacks end there"));
            }
            match slot.found.get()? {
                Err(missing) => Some(format!("{path}: {}; its frames have no function names", missing.text())),
                Ok(found) if found.verified == Verified::NothingToCompare => {
                    Some(format!("{path}: cannot check that this is the recorded file; function names may be wrong"))
                }
                Ok(_) => None,
            }
        });
        warnings.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Marks a module as used by a stack, so that missing parts are worth a warning.
    pub(crate) fn mark_used(&self, ix: FileIx) {
        if let Some(slot) = self.slots.get(ix.0 as usize) {
            slot.is_used.store(true, Ordering::Relaxed);
        }
    }

    fn found(&self, ix: FileIx) -> Result<&Found, Missing> {
        let (Some(file), Some(slot)) = (self.file(ix), self.slots.get(ix.0 as usize)) else {
            return Err(Missing::NotFound);
        };
        slot.found.get_or_init(|| self.find(file).map(Box::new)).as_deref().map_err(|&missing| missing)
    }

    fn find(&self, file: &MappedFile) -> Result<Found, Missing> {
        if let Some(embedded) = self.find_embedded(file).filter(|_| self.resolver.uses_recorded_bytes(file)) {
            let image = self.open_embedded(embedded)?.image().clone();
            return Ok(Found { image, source: Source::Embedded(embedded), verified: Verified::Yes });
        }
        let mut missing = Missing::NotFound;
        for candidate in self.resolver.candidates(file) {
            match self.try_candidate(file, candidate) {
                Ok(found) => return Ok(found),
                Err(why) => missing = missing.max(why),
            }
        }
        Err(missing)
    }

    /// The number of the first embedded module that is this file.
    fn find_embedded(&self, file: &MappedFile) -> Option<usize> {
        // Without an inode the identity alone does not tell.
        if file.identity.inode == 0 {
            return self.embedded.iter().position(|embedded| embedded.is(file));
        }
        let number = (*self.embedded_by_identity.get(&file.identity)?)?;
        let embedded = self.embedded.get(number)?;
        (embedded.identity == file.identity || embedded.path == file.path).then_some(number)
    }

    fn try_candidate(&self, file: &MappedFile, candidate: Candidate) -> Result<Found, Missing> {
        let Candidate { path, has_recorded_inodes } = candidate;
        let identity = &file.identity;
        // A build ID decides alone, and is only known from the file.
        let opened = if has_recorded_inodes && identity.inode != 0 && identity.build_id.is_none() {
            self.resolver.open_inode(&path, (identity.dev_major, identity.dev_minor, identity.inode))?
        } else {
            self.resolver.open(&path)?
        };
        let stat = opened.stat;
        let mapped_unix_ns = self.unix_offset_ns.map(|offset| i128::from(file.first_mapped_ns).saturating_add(offset));
        let elf = ElfFile::new(opened);
        let build_id = elf.as_ref().ok().and_then(|elf| elf.image().build_id);
        let verified = verify(file, mapped_unix_ns, stat, build_id, has_recorded_inodes)?;
        let image = elf?.image().clone();
        Ok(Found { image, source: Source::File { path, stat }, verified })
    }

    fn open_embedded(&self, embedded: usize) -> Result<ElfFile, Missing> {
        let module = self.embedded.get(embedded).ok_or(Missing::NotFound)?;
        debug_file::from_bytes(Arc::clone(&module.bytes))
    }

    /// The unwind information of a module. Files with the same bytes share it.
    fn unwinding(&self, ix: FileIx) -> Result<Arc<Unwinding>, TruncatedReason> {
        let Ok(Location::Bytes(bytes)) = self.location(ix) else { return self.load_unwinding(ix).map(Arc::new) };
        let at = bytes.as_ptr().addr();
        let of_bytes = || self.of_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = of_bytes().get(&at) {
            return Ok(Arc::clone(known));
        }
        let loaded = Arc::new(self.load_unwinding(ix)?);
        // Another thread may have been faster.
        Ok(Arc::clone(of_bytes().entry(at).or_insert(loaded)))
    }

    fn load_unwinding(&self, ix: FileIx) -> Result<Unwinding, TruncatedReason> {
        let elf = self.open(ix).map_err(Missing::truncated_reason)?;
        let arch = elf.image().arch.ok_or(TruncatedReason::ModuleUnavailable)?;
        let UnwindSections { sections, is_too_much } = unwind_sections(&elf, arch, || self.open_debug(ix));
        Ok(Unwinding { module: Module::new(sections), is_too_much })
    }

    fn load_sframe(&self, ix: FileIx) -> Result<Module, TruncatedReason> {
        let elf = self.open(ix).map_err(Missing::truncated_reason)?;
        let arch = elf.image().arch.ok_or(TruncatedReason::ModuleUnavailable)?;
        sframe_sections(&elf, arch).map(Module::new).ok_or(TruncatedReason::NoSframe)
    }

    fn read_code(&self, ix: FileIx, svma: u64, code: &mut [u8]) -> bool {
        let mut last = self.last_code.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(known, _)| *known != ix) {
            *last = Some((ix, self.open(ix).ok()));
        }
        last.as_ref().and_then(|(_, elf)| elf.as_ref()).is_some_and(|elf| elf.copy_code(svma, code))
    }
}

impl Modules for ModuleTable<'_> {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        let ix = FileIx(id.0);
        let Some(slot) = self.slots.get(id.0 as usize) else {
            return self.compiled_module((id.0 as usize).saturating_sub(self.slots.len()));
        };
        let unwinding = slot.unwinding.get_or_init(|| {
            let unwinding = self.unwinding(ix)?;
            if unwinding.is_too_much {
                self.mark_used(ix);
            }
            Ok(unwinding)
        });
        unwinding.as_ref().map(|unwinding| &unwinding.module).map_err(|&reason| reason)
    }

    /// For a file that is missing or does not fit the mapping, AVMA − file offset stays, so that an address can at least be
    /// shown as an offset in the file.
    fn bias(&self, mapping: &Mapping) -> u64 {
        let Mapping { start, end, module: Some(id), bias, .. } = *mapping else { return mapping.bias };
        let image = self.image(FileIx(id.0)).ok();
        image.and_then(|image| image.bias(start, start.wrapping_sub(bias), end.wrapping_sub(start))).unwrap_or(bias)
    }

    fn code(&self, id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        let key = (id, svma, code.len());
        if let Some(known) = self.code.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.as_ref().map(|known| code.copy_from_slice(known)).is_some();
        }
        let is_there = self.read_code(FileIx(id.0), svma, code);
        let mut all = self.code.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_CODE {
            all.clear();
        }
        all.insert(key, is_there.then(|| Box::from(&*code)));
        is_there
    }
}

/// The same modules, unwound by their `.sframe` sections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BySframe<'a>(pub(crate) &'a ModuleTable<'a>);

impl Modules for BySframe<'_> {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        let slot = self.0.slots.get(id.0 as usize).ok_or(TruncatedReason::NoSframe)?;
        let module = slot.by_sframe.get_or_init(|| self.0.load_sframe(FileIx(id.0)).map(Box::new));
        module.as_deref().map_err(|&reason| reason)
    }

    fn bias(&self, mapping: &Mapping) -> u64 {
        self.0.bias(mapping)
    }

    fn code(&self, id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        self.0.code(id, svma, code)
    }
}
