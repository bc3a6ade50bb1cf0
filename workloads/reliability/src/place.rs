//! What is measured, and where.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) storm_seconds: u64,
    pub(crate) soak_seconds: u64,
    pub(crate) mutants: u32,
}

/// The program under test and the folders.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) fpprof: PathBuf,
    /// This program, which is started again for parts of a measurement.
    this: PathBuf,
    /// The project's sources.
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) sizes: Sizes,
}

impl Place {
    pub(crate) fn new(fpprof: Option<&Path>, sizes: Sizes) -> anyhow::Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "this needs root, as all that records the whole machine");
        let this = std::env::current_exe()?;
        // It is in `release`, or another profile's folder, of the target directory.
        let target = this.ancestors().nth(2).context("this program has no target directory")?.to_owned();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no sources")?.to_owned();
        let fpprof = fpprof.map_or_else(|| target.join("release/fpprof"), Path::to_owned);
        let fpprof = fpprof.canonicalize().with_context(|| format!("finding {}; build it first", fpprof.display()))?;
        fs::create_dir_all(target.join("reliability"))?;
        Ok(Self { fpprof, this, root, target, sizes })
    }

    /// A directory that goes when it is no longer needed.
    pub(crate) fn dir(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(self.target.join("reliability"))?)
    }

    pub(crate) fn this(&self) -> &Path {
        &self.this
    }

    pub(crate) fn fpprof(&self) -> Command {
        Command::new(&self.fpprof)
    }

    /// This program as a part of a measurement; its words follow.
    pub(crate) fn part(&self, name: &str) -> Command {
        let mut command = Command::new(&self.this);
        command.args(["--part", name, "--"]);
        command
    }
}
