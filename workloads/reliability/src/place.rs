//! The program under test and its environment.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sizes of the measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) storm_seconds: u64,
    pub(crate) soak_seconds: u64,
    pub(crate) mutants: u32,
}

/// The program under test and the directories.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) fpprof: PathBuf,
    /// This program, which is started again for parts of a measurement.
    this: PathBuf,
    /// The root of the project's sources.
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) sizes: Sizes,
}

impl Place {
    pub(crate) fn new(fpprof: Option<&Path>, sizes: Sizes) -> anyhow::Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "this needs root, as all that records the whole machine");
        let this = std::env::current_exe()?;
        // The program is in the folder of a cargo profile, such as `release`, in the target directory.
        let target = this.ancestors().nth(2).context("this program has no target directory")?.to_owned();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no sources")?.to_owned();
        let fpprof = fpprof.map_or_else(|| target.join("release/fpprof"), Path::to_owned);
        let fpprof = fpprof.canonicalize().with_context(|| format!("finding {}; build it first", fpprof.display()))?;
        fs::create_dir_all(target.join("reliability"))?;
        Ok(Self { fpprof, this, root, target, sizes })
    }

    /// A temporary directory, removed on drop.
    pub(crate) fn dir(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(self.target.join("reliability"))?)
    }

    pub(crate) fn this(&self) -> &Path {
        &self.this
    }

    pub(crate) fn fpprof(&self) -> Command {
        Command::new(&self.fpprof)
    }

    /// A command that runs this program as a part of a measurement; the caller adds the arguments.
    pub(crate) fn part(&self, name: &str) -> Command {
        let mut command = Command::new(&self.this);
        command.args(["--part", name, "--"]);
        command
    }
}
