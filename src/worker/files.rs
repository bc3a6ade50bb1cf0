//! What a command may ask for.

use super::process::memory_file;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a command may ask for besides ELF files.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    /// Opened for reading, whatever they are. `-` is standard input.
    pub(crate) inputs: Vec<PathBuf>,
    /// Written.
    pub(crate) outputs: Vec<PathBuf>,
    /// It opens files for reading itself: the libraries of the strategies `elfutils` and `libunwind` do.
    pub(crate) reads: bool,
    /// It calls [`confine`](super::confine()) itself, once it has run what it must.
    pub(crate) confines_itself: bool,
    /// What is missing is fetched from debuginfod servers.
    pub(crate) debuginfod: bool,
    /// A copy of the names of the kernel's functions, for workers that come one after the other.
    pub(crate) kernel_names: Option<Arc<KernelNames>>,
    /// Most bytes that it writes into a file; `None` for no limit.
    pub(crate) max_file_bytes: Option<u64>,
    /// It works as long as a recording goes on, which may be for ever.
    pub(crate) goes_on: bool,
}

/// What `/proc/kallsyms` said. The kernel takes tens of milliseconds to write it.
#[derive(Debug, Default)]
pub(crate) struct KernelNames {
    copied: Mutex<Option<(Instant, File)>>,
}

/// Where the kernel names its functions.
pub(super) const KERNEL_NAMES: &str = "/proc/kallsyms";
/// A copy is used for so long: modules may be loaded.
const COPY_LASTS: Duration = Duration::from_secs(600);

impl KernelNames {
    /// The copy, made from `original` if there is none or an old one; each file has a position of its own.
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
    /// These inputs and outputs.
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

    /// None, for a worker that calls [`confine`](super::confine()) itself.
    pub(crate) fn confined_by_itself() -> Self {
        Self { confines_itself: true, goes_on: true, ..Self::default() }
    }
}
