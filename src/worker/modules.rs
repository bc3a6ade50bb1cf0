//! The files of modules, wherever this process may open them.

use super::client::client;
use crate::debuginfod::Debuginfod;
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::modules::{Candidate, FileModules, Inode, Missing, Opened, Resolver};
use fpprof_recording::model::BuildId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The modules of the file system, which a worker asks the broker for.
#[derive(Debug, Clone)]
pub(crate) struct Modules {
    files: FileModules,
    debuginfod: Option<Arc<Debuginfod>>,
}

impl Modules {
    pub(crate) fn new(files: FileModules) -> Self {
        Self { files, debuginfod: None }
    }

    /// Fetches what is missing. In a worker the broker does.
    pub(crate) fn with_debuginfod(mut self) -> Self {
        self.debuginfod = Debuginfod::new().filter(|_| client().is_none()).map(Arc::new);
        self
    }

    fn fetch(&self, path: &Path) {
        self.debuginfod.iter().for_each(|debuginfod| debuginfod.fetch(path));
    }
}

impl Resolver for Modules {
    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        self.fetch(path);
        client().map_or_else(|| self.files.open(path), |client| client.module(path, None))
    }

    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        self.fetch(path);
        client().map_or_else(|| self.files.open_inode(path, inode), |client| client.module(path, Some(inode)))
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
}
