//! Opens the files of modules, directly or through the broker.

use super::client::client;
use super::message::MAX_PATH_BYTES;
use crate::debuginfod::Fetcher;
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::modules::{Candidate, FileModules, Inode, KERNEL_FILES, Missing, Opened, Resolver};
use fpprof_recording::model::BuildId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Resolves modules in the file system; in a worker, the broker opens them.
#[derive(Debug, Clone)]
pub(crate) struct Modules {
    files: FileModules,
    debuginfod: Option<Fetcher>,
    owners: Owners,
}

/// The owners of the ELF files that are read: those of others may take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Owners {
    #[default]
    All,
    /// Only root. Files whose bytes are in the recording may be anybody's.
    Root,
    Nobody,
}

impl Owners {
    /// Their name, unless these are all.
    pub(crate) fn limited(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Root => Some("root"),
            Self::Nobody => Some("nobody"),
        }
    }
}

impl Modules {
    pub(crate) fn new(files: FileModules) -> Self {
        Self { files, debuginfod: None, owners: Owners::All }
    }

    /// Uses no files of other owners.
    pub(crate) fn with_owners(mut self, owners: Owners) -> Self {
        self.owners = owners;
        self
    }

    /// Also fetches missing modules from debuginfod servers. Does nothing in a worker, whose broker fetches.
    pub(crate) fn with_debuginfod(mut self, fetcher: Option<Fetcher>) -> Self {
        self.debuginfod = fetcher.filter(|_| client().is_none());
        self
    }

    /// Opens a file whose owner may be any that [`Self::owners`] names.
    fn of_owners(&self, path: &Path, open: impl FnOnce() -> Result<Opened, Missing>) -> Result<Opened, Missing> {
        match self.owners {
            Owners::Nobody if !KERNEL_FILES.iter().any(|file| path == Path::new(file)) => Err(Missing::Unreadable),
            Owners::Root => {
                open().and_then(|opened| if opened.stat.owner == 0 { Ok(opened) } else { Err(Missing::Unreadable) })
            }
            Owners::All | Owners::Nobody => open(),
        }
    }

    fn fetch(&self, path: &Path) {
        self.debuginfod.iter().for_each(|debuginfod| debuginfod.fetch(path));
    }
}

impl Resolver for Modules {
    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        self.fetch(path);
        self.of_owners(path, || client().map_or_else(|| self.files.open(path), |client| client.module(path, None)))
    }

    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        self.fetch(path);
        self.of_owners(path, || {
            client().map_or_else(|| self.files.open_inode(path, inode), |client| client.module(path, Some(inode)))
        })
    }

    fn open_first(&self, paths: &[PathBuf]) -> Option<(usize, Opened)> {
        let n_bytes: usize = paths.iter().map(|path| path.as_os_str().len()).sum();
        match client().filter(|_| self.owners == Owners::All && n_bytes <= MAX_PATH_BYTES) {
            Some(client) => client.first_module(paths),
            None => paths.iter().enumerate().find_map(|(at, path)| Some((at, self.open(path).ok()?))),
        }
    }

    /// Of the vDSO, they are the recorder's own.
    fn uses_recorded_bytes(&self, file: &MappedFile) -> bool {
        self.owners == Owners::All || file.path.starts_with(b"[vdso")
    }

    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        self.files.candidates(file)
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.files.debug_candidates(build_id)
    }

    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        self.files.link_candidates(path, name)
    }

    fn kernel_tables(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.files.kernel_tables(build_id)
    }
}
