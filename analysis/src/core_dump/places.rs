//! Represents a core's mappings as recording events, so that modules are found and verified as for a recording.

use super::{Core, Load, MappedRange};
use crate::address_space::MappedFile;
use crate::modules::{Candidate, ElfFile, FileStat, Inode, Missing, Opened, Resolver};
use fpprof_recording::model::{
    BuildId, CaptureMode, Collector, FileIdentity, Host, Meta, Mmap, ModuleBytes, Sideband, Target,
};
use fpprof_unwind::Memory;
use rustc_hash::FxHashMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The pid of all events.
pub(super) const PID: u32 = 1;
const READ_EXECUTE: u32 = 5;
const VDSO: &[u8] = b"[vdso]";
const PAGE: usize = 4096;
/// The most bytes of a module that are searched for its build ID, and of the vDSO.
const MAX_HEAD_BYTES: u64 = 64 << 10;

/// Events for the executable mappings of a core.
pub(super) fn events<'a>(core: &'a Core, memory: &'a dyn Memory) -> Vec<Sideband> {
    let mut ids = BuildIds::new(core, memory);
    let mut events = Vec::new();
    // A debugger leaves out mappings that are unchanged from their files, above all code. Their protection is not known
    // then, so they are assumed to be executable.
    for file in core.files.iter().filter(|file| core.load_at(file.start).is_none()) {
        let len = file.end.saturating_sub(file.start);
        events.push(mapped(file.start, len, file.file_offset, &file.path, ids.of(&file.path)));
    }
    for load in core.loads.iter().filter(|load| load.executable) {
        if core.vdso == Some(load.start) {
            let bytes = head(memory, load);
            events.push(Sideband::Module(ModuleBytes { path: VDSO.into(), identity: FileIdentity::default(), bytes }));
            events.push(mapping(load, 0, VDSO, None));
        } else if let Some(file) = core.file_at(load.start) {
            let skipped = load.start.wrapping_sub(file.start);
            let build_id = ids.of(&file.path);
            events.push(mapping(load, file.file_offset.wrapping_add(skipped), &file.path, build_id));
        } else {
            events.push(mapping(load, 0, b"//anon", None));
        }
    }
    events
}

pub(super) fn mapped(start: u64, len: u64, file_offset: u64, path: &[u8], build_id: Option<BuildId>) -> Sideband {
    Sideband::Mmap(Mmap {
        time_ns: 0,
        pid: PID,
        tid: PID,
        start,
        len,
        file_offset,
        prot: READ_EXECUTE,
        flags: 0,
        path: path.to_vec(),
        identity: FileIdentity { build_id, ..FileIdentity::default() },
        synthesized: true,
    })
}

fn mapping(load: &Load, file_offset: u64, path: &[u8], build_id: Option<BuildId>) -> Sideband {
    mapped(load.start, load.end.saturating_sub(load.start), file_offset, path, build_id)
}

/// Build IDs from the process's own copies of its files' first pages, if they are in the core.
struct BuildIds<'a> {
    core: &'a Core,
    memory: &'a dyn Memory,
    /// The first mapping of each file.
    heads: FxHashMap<&'a [u8], &'a MappedRange>,
    known: FxHashMap<&'a [u8], Option<BuildId>>,
}

impl<'a> BuildIds<'a> {
    fn new(core: &'a Core, memory: &'a dyn Memory) -> Self {
        let heads = core.files.iter().rev().filter(|file| file.file_offset == 0);
        Self {
            core,
            memory,
            heads: heads.map(|file| (file.path.as_slice(), file)).collect(),
            known: FxHashMap::default(),
        }
    }

    fn of(&mut self, path: &'a [u8]) -> Option<BuildId> {
        if let Some(&known) = self.known.get(path) {
            return known;
        }
        let found = self.read(path);
        self.known.insert(path, found);
        found
    }

    fn read(&self, path: &[u8]) -> Option<BuildId> {
        let first = self.heads.get(path)?;
        let load = self.core.load_at(first.start)?;
        let bytes = head(self.memory, &Load { start: first.start, end: first.end.min(load.end), ..*load });
        let stat = FileStat { len_bytes: bytes.len() as u64, ..FileStat::default() };
        ElfFile::new(Opened { reader: Box::new(Cursor::new(bytes)), stat }).ok()?.image().build_id
    }
}

/// The first bytes of a mapping, as far as they are available.
fn head(memory: &dyn Memory, load: &Load) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = load.end.saturating_sub(load.start).min(MAX_HEAD_BYTES);
    for offset in (0..len).step_by(PAGE) {
        let mut page = [0; PAGE];
        if memory.read(load.start.wrapping_add(offset), &mut page).is_err() {
            break;
        }
        bytes.extend_from_slice(&page);
    }
    bytes
}

/// Metadata of a recording, in which only the clock is meaningful.
pub(super) fn meta() -> Meta {
    Meta {
        tool_version: String::new(),
        start_ns: 0,
        start_unix_ns: 0,
        host: Host::default(),
        collector: Collector::Ebpf,
        events: Vec::new(),
        mode: CaptureMode::Fp,
        kernel_stacks: false,
        scrubbed: false,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

/// Finds the files of a core: its executable as given by the caller, the others below a root if one is given.
#[derive(Debug)]
pub(super) struct CoreFiles<'a> {
    pub(super) inner: &'a dyn Resolver,
    /// Path of the executable in the core, and the file to use for it.
    pub(super) executable: Option<(Vec<u8>, PathBuf)>,
    /// Files are looked up only below this directory.
    pub(super) root: Option<&'a Path>,
}

impl Resolver for CoreFiles<'_> {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        if let Some((_, path)) = self.executable.as_ref().filter(|(mapped, _)| *mapped == file.path) {
            return vec![Candidate { path: path.clone(), has_recorded_inodes: false }];
        }
        let mut candidates = self.inner.candidates(file);
        candidates.retain(|candidate| self.root.is_none_or(|root| candidate.path.starts_with(root)));
        candidates
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.inner.debug_candidates(build_id)
    }

    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        self.inner.link_candidates(path, name)
    }

    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        self.inner.open(path)
    }

    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        self.inner.open_inode(path, inode)
    }
}
