//! The files a worker may ask the broker for.

use super::process::memory_file;
use crate::debuginfod::Fetcher;
use fpprof_collector::BlockingCalls;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The files that a command's worker may ask for besides ELF files, and its limits.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    /// Files opened for reading, of any kind. `-` is standard input.
    pub(crate) inputs: Vec<PathBuf>,
    /// Files opened for writing.
    pub(crate) outputs: Vec<PathBuf>,
    /// The worker opens files for reading itself: the libraries of the strategies `elfutils` and `libunwind` do.
    pub(crate) reads: bool,
    /// The worker calls [`confine`](super::confine()) itself, after the system calls that it needs first.
    pub(crate) confines_itself: bool,
    /// Missing modules are fetched from debuginfod servers.
    pub(crate) debuginfod: Option<Fetcher>,
    /// A copy of `/proc/kallsyms`, shared by successive workers.
    pub(crate) kernel_names: Option<Arc<KernelNames>>,
    /// Opens modules within a limit of time; shared by successive workers. `None`: however long it takes.
    pub(crate) calls: Option<Arc<Mutex<BlockingCalls>>>,
    /// The most bytes that the worker may write into a file; `None` for no limit.
    pub(crate) max_file_bytes: Option<u64>,
    /// The worker has no limit of CPU time: it runs as long as a recording, which may be forever.
    pub(crate) goes_on: bool,
}

/// A cached copy of `/proc/kallsyms`: the kernel takes tens of milliseconds to write it.
#[derive(Debug, Default)]
pub(crate) struct KernelNames {
    copied: Mutex<Option<(Instant, File)>>,
}

/// The kernel's symbol table.
pub(super) const KERNEL_NAMES: &str = "/proc/kallsyms";
/// How long a copy is used: kernel modules may be loaded.
const COPY_LASTS: Duration = Duration::from_secs(600);

impl KernelNames {
    /// Opens the copy, renewed from `original` if missing or too old. Each returned file has its own position.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub(super) fn open(&self, mut original: &File) -> io::Result<File> {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = match copied.take() {
            Some((at, copy)) if at.elapsed() < COPY_LASTS => (at, copy),
            _ => {
                let mut copy = memory_file("fpprof-kallsyms")?;
                io::copy(&mut original, &mut copy)?;
                (Instant::now(), copy)
            }
        };
        let opened = File::open(format!("/proc/self/fd/{}", copy.1.as_raw_fd()));
        *copied = Some(copy);
        opened
    }
}

impl Files {
    /// Allows these inputs and outputs.
    pub(crate) fn new<'a>(
        inputs: impl IntoIterator<Item = &'a Path>,
        outputs: impl IntoIterator<Item = &'a Path>,
    ) -> Self {
        let owned = |path: &Path| path.to_owned();
        Self {
            inputs: inputs.into_iter().map(owned).collect(),
            outputs: outputs.into_iter().map(owned).collect(),
            ..Self::default()
        }
    }

    /// Allows no files, for a worker that calls [`confine`](super::confine()) itself.
    pub(crate) fn confined_by_itself() -> Self {
        Self { confines_itself: true, goes_on: true, ..Self::default() }
    }
}
