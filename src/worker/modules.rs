//! Opens the files of modules, directly or through the broker.

use super::client::client;
use crate::debuginfod::Fetcher;
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::modules::{Candidate, FileModules, Inode, Missing, Opened, Resolver};
use fpprof_recording::model::BuildId;
use std::path::{Path, PathBuf};

/// Resolves modules in the file system; in a worker, the broker opens them.
#[derive(Debug, Clone)]
pub(crate) struct Modules {
    files: FileModules,
    debuginfod: Option<Fetcher>,
}

impl Modules {
    pub(crate) fn new(files: FileModules) -> Self {
        Self { files, debuginfod: None }
    }

    /// Also fetches missing modules from debuginfod servers. Does nothing in a worker, whose broker fetches.
    pub(crate) fn with_debuginfod(mut self, fetcher: Option<Fetcher>) -> Self {
        self.debuginfod = fetcher.filter(|_| client().is_none());
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
