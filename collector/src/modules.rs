//! Files that may be gone when the recording is analysed.
//!
//! Every file that is mapped executable is opened once, when its mapping is made. At the end those whose path no longer
//! leads to them (deleted, replaced, memfd, another mount namespace) are put into the recording.

use crate::jit_dumps::JitDumps;
use crate::kernel_symbols::KernelSymbols;
use crate::perf_maps::PerfMaps;
use crate::proc::{Opened, open_mapped, read_build_id, still_at};
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Files kept open at a time.
const MAX_OPEN: usize = 4096;
/// Files remembered at all; a process that makes more and runs each of them is up to no good.
const MAX_FILES: usize = 65_536;
/// Largest file that is put into a recording.
const MAX_FILE_BYTES: u64 = 40 << 20;
/// Bytes of all files that are put into a recording.
const MAX_TOTAL_BYTES: u64 = 512 << 20;

/// The files mapped executable by profiled processes.
#[derive(Debug)]
pub(crate) struct Modules {
    files: FxHashMap<Key, Kept>,
    max_open: usize,
    n_open: usize,
    not_kept: u64,
    perf_maps: PerfMaps,
    jit_dumps: JitDumps,
    kernel: KernelSymbols,
}

/// A file without its build id, which is only known once it was read.
type Key = (u32, u32, u64, u64);

/// What would be needed by its bytes and is not in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotKept {
    pub(crate) files: u64,
    /// Tables and dumps of compiled code.
    pub(crate) tables: u64,
    /// Dumps of compiled code of which only a part is.
    pub(crate) cut_dumps: u64,
}

#[derive(Debug)]
struct Kept {
    opened: Option<Opened>,
    path: Vec<u8>,
    identity: FileIdentity,
}

impl Modules {
    /// Keeps at most half of the `open_files` that this process may have.
    pub(crate) fn new(open_files: u64) -> Self {
        let half = usize::try_from(open_files / 2).unwrap_or(MAX_OPEN);
        Self {
            files: FxHashMap::default(),
            max_open: half.min(MAX_OPEN),
            n_open: 0,
            not_kept: 0,
            perf_maps: PerfMaps::default(),
            jit_dumps: JitDumps::default(),
            kernel: KernelSymbols::default(),
        }
    }

    /// Takes note of a mapping, and adds the build id of its file, read from it when it is first mapped.
    pub(crate) fn note(&mut self, mmap: &mut Mmap) {
        let identity = &mmap.identity;
        if mmap.prot & libc::PROT_EXEC.cast_unsigned() == 0 {
            return;
        }
        self.perf_maps.note(mmap);
        if identity.inode == 0 || self.jit_dumps.note(mmap) {
            return;
        }
        // The generation is only known of mappings the kernel told of.
        let key = (identity.dev_major, identity.dev_minor, identity.inode, identity.inode_generation);
        if let Some(kept) = self.files.get_mut(&key) {
            if mmap.identity.build_id.is_none() {
                mmap.identity.build_id = kept.identity.build_id;
            }
            return;
        }
        if self.files.len() >= MAX_FILES {
            self.not_kept += 1;
            return;
        }
        let may_open = self.n_open < self.max_open;
        let end = mmap.start.saturating_add(mmap.len);
        let opened = may_open.then(|| open_mapped(mmap.pid, mmap.start, end, &mmap.path, identity)).flatten();
        self.n_open += usize::from(opened.is_some());
        if mmap.identity.build_id.is_none() {
            mmap.identity.build_id = opened.as_ref().and_then(|opened| read_build_id(&opened.file));
        }
        self.files.insert(key, Kept { opened, path: mmap.path.clone(), identity: mmap.identity });
    }

    /// Takes note of a stack of the kernel's.
    pub(crate) fn note_kernel(&mut self, chain: &[u64]) {
        self.kernel.note(chain);
    }

    /// Hands on the names of the kernel's functions, the bytes of all files that cannot be found by their path any more and
    /// the tables of compiled code, and says of how many that was impossible.
    pub(crate) fn finish(mut self, mut emit: impl FnMut(ModuleBytes)) -> NotKept {
        self.kernel.finish().into_iter().for_each(&mut emit);
        let tables = self.perf_maps.finish(&mut emit);
        let dumps = self.jit_dumps.finish(&mut emit);
        let mut files: Vec<Kept> = self.files.drain().map(|(_, kept)| kept).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut total = 0u64;
        for kept in files {
            if still_at(&kept.path, &kept.identity) {
                continue;
            }
            let room = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - total);
            match kept.opened.as_ref().filter(|opened| opened.bytes <= room).and_then(read_all) {
                Some(bytes) => {
                    total += bytes.len() as u64;
                    emit(ModuleBytes { path: kept.path, identity: kept.identity, bytes });
                }
                None => self.not_kept += 1,
            }
        }
        NotKept { files: self.not_kept, tables: tables.saturating_add(dumps.refused), cut_dumps: dumps.cut }
    }
}

/// As many bytes as the file had when it was opened; `None` if it has become shorter.
fn read_all(opened: &Opened) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(opened.bytes).ok()?];
    opened.file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// The vDSO, which is the same in all 64-bit processes and in no file.
pub(crate) fn vdso() -> Option<ModuleBytes> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let entry = crate::proc::parse_maps(&maps).find(|entry| entry.path == b"[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    let mut bytes = vec![0; usize::try_from(entry.end - entry.start).ok()?];
    memory.read_exact_at(&mut bytes, entry.start).ok()?;
    Some(ModuleBytes { path: entry.path, identity: FileIdentity::default(), bytes })
}
