//! The directory of an evaluation. Finished results are kept; interrupted ones are made again.

use crate::output::{Pending, private_directory, private_log};
use crate::worker::Older;
use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A directory of results.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// The locked directory of a run, which no other run may use meanwhile.
    _lock: Option<File>,
}

impl Store {
    /// Creates the directory if it does not exist.
    pub(crate) fn create(dir: &Path) -> anyhow::Result<Self> {
        private_directory(dir, true).with_context(|| format!("cannot create {}", dir.display()))?;
        let lock = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                anyhow::bail!("another run uses {}: wait for it, or choose another directory with -o", dir.display())
            }
            result => result.with_context(|| format!("cannot lock {}", dir.display()))?,
        }
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        Ok(Self { dir, _lock: Some(lock) })
    }

    /// Opens an existing directory of results.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let store = Self { dir: dir.to_owned(), _lock: None };
        anyhow::ensure!(store.path("manifest.json").exists(), "{} has no results of `flags run`", dir.display());
        Ok(store)
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory of an arm's objects and binaries.
    pub(crate) fn arm_dir(&self, program: &str, flags: &str, again: bool) -> PathBuf {
        let suffix = if again { ".again" } else { "" };
        self.dir.join("builds").join(program).join(format!("{flags}{suffix}"))
    }

    /// Reads a JSON file; `None` if it does not exist or is invalid: then it is created again.
    pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes a JSON file atomically: to a temporary file, synced to disk, then renamed.
    pub(crate) fn write(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
        let (mut file, pending) = Pending::create(path, Older::Replaced)?;
        let mut write = || {
            file.write_all(&serde_json::to_vec_pretty(value)?)?;
            file.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        pending.commit()
    }

    /// Appends a line to a file, synced to disk before this returns.
    pub(crate) fn append(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path(name);
        let append = || {
            let mut file = private_log(&path)?;
            let mut line = serde_json::to_vec(value)?;
            line.push(b'\n');
            file.write_all(&line)?;
            file.sync_data()
        };
        append().with_context(|| format!("cannot append to {}", path.display()))
    }

    /// The lines of a file. A torn last line, from a run that was killed while writing, is cut off, so that the next
    /// append starts a new line.
    pub(crate) fn lines<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Vec<T>> {
        let path = self.path(name);
        let Ok(bytes) = fs::read(&path) else { return Ok(Vec::new()) };
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(whole as u64)).with_context(|| format!("cutting {}", path.display()))?;
        }
        let text = bytes.get(..whole).unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).with_context(|| format!("a line of {}", path.display())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a line torn by a kill loses only that line, and that later appends work.
    #[test]
    fn torn_lines_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(dir.path()).unwrap();
        store.append("rounds", &1).unwrap();
        store.append("rounds", &2).unwrap();
        let mut file = OpenOptions::new().append(true).open(store.path("rounds")).unwrap();
        file.write_all(b"[3, 4").unwrap();
        assert_eq!(store.lines::<u32>("rounds").unwrap(), [1, 2]);
        store.append("rounds", &5).unwrap();
        assert_eq!(store.lines::<u32>("rounds").unwrap(), [1, 2, 5]);
    }

    /// Check that results are private, and that a symbolic link at the name of a file being written is not followed.
    #[test]
    fn planted_links_are_not_followed() {
        use std::os::unix::fs::{MetadataExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("store")).unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "of value").unwrap();
        let path = store.path("x.json");
        for planted in ["lines".to_owned(), "x.part".to_owned(), format!("x.json.{}.part", std::process::id())] {
            symlink(&victim, store.path(&planted)).unwrap();
            let _ = Store::write(&path, &1);
            let _ = store.append("lines", &1);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "of value", "{planted}");
            fs::remove_file(store.path(&planted)).unwrap();
        }
        Store::write(&path, &1).unwrap();
        store.append("lines", &1).unwrap();
        for (path, mode) in [(store.path(""), 0o700), (path, 0o600), (store.path("lines"), 0o600)] {
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode, "{}", path.display());
        }
    }

    /// Check that a half-written value is read as `None`.
    #[test]
    fn half_written_values_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        Store::write(&path, &vec![1, 2]).unwrap();
        assert_eq!(Store::read::<Vec<u32>>(&path), Some(vec![1, 2]));
        fs::write(&path, b"[1, ").unwrap();
        assert_eq!(Store::read::<Vec<u32>>(&path), None);
    }
}
