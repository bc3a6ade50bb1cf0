//! The store: a directory of Parquet files that any engine reads as they are.
//!
//! [`crate::tables`] says where each lies. A file is written beside its place and renamed, so that whoever reads sees all of it or
//! nothing. What waits for a collector is in `STORE/spool`.

use super::config::StoreConfig;
use crate::tables::{Table, day_of, file_of};
use anyhow::Context as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use walkdir::WalkDir;

/// The end of the names of files that are not complete; what a crash leaves is removed at the next start.
pub(super) const PARTIAL: &str = ".partial";

/// Where tables go.
#[derive(Debug)]
pub(super) struct Store {
    config: StoreConfig,
    host: String,
}

/// What files take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Size {
    pub(super) fn add(&mut self, bytes: u64) {
        *self = Self { files: self.files.saturating_add(1), bytes: self.bytes.saturating_add(bytes) };
    }

    pub(super) fn subtract(&mut self, bytes: u64) {
        *self = Self { files: self.files.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) };
    }
}

impl Store {
    /// The store of this configuration, without what a crash left in it.
    ///
    /// # Errors
    /// If its directory cannot be made or written.
    pub(super) fn open(config: &StoreConfig, host: &str) -> anyhow::Result<Self> {
        let store = Self { config: config.clone(), host: file_name(host) };
        let context = || format!("store {}", config.path.display());
        [Table::Stacks, Table::Counters]
            .iter()
            .try_for_each(|table| make_dir(&config.path.join(table.name())))
            .with_context(context)?;
        // Others may write to it, too.
        let own = format!("-{}.parquet{PARTIAL}", store.host);
        check_owner(&config.path).with_context(context)?;
        for (path, _, _) in store.files(|name| name.ends_with(&own)) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(store)
    }

    /// Writes a table of the interval that began then.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it is left then.
    pub(super) fn write(&self, table: Table, start_unix_us: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let dir = self.config.path.join(table.name()).join(day_of(start_unix_us)?);
        make_dir(&dir).with_context(|| dir.display().to_string())?;
        let name = file_of(start_unix_us, &self.host)?;
        write_whole(&dir, &name, bytes).with_context(|| dir.join(&name).display().to_string())
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    /// The name of the machine in the names of files.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Removes what is too old, and the oldest files as long as all together are too large. Gives what is left.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(super) fn remove_old(&self, now: SystemTime) -> anyhow::Result<Size> {
        let mut files = self.files(|name| name.ends_with(".parquet"));
        files.sort_by_key(|&(_, modified, _)| modified);
        let mut failed = None;
        let mut size = Size {
            files: files.len() as u64,
            bytes: files.iter().fold(0, |sum: u64, &(_, _, bytes)| sum.saturating_add(bytes)),
        };
        for (path, modified, bytes) in files {
            let is_old = now.duration_since(modified).unwrap_or(Duration::ZERO) > self.config.keep;
            if !is_old && size.bytes <= self.config.max_size {
                break;
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    failed.get_or_insert_with(|| anyhow::Error::new(error).context(path.display().to_string()));
                    continue;
                }
                _ => {}
            }
            size.subtract(bytes);
            // The last file of a day: any other stays.
            if let Some(day) = path.parent() {
                let _ = std::fs::remove_dir(day);
            }
        }
        failed.map_or(Ok(size), Err)
    }

    /// Files of such names, with their times and sizes.
    fn files(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, SystemTime, u64)> {
        let tables = [Table::Stacks, Table::Counters].map(|table| self.config.path.join(table.name()));
        let entries = tables.iter().flat_map(|dir| WalkDir::new(dir).min_depth(2).max_depth(2)).flatten();
        let wanted =
            entries.filter(|entry| entry.file_type().is_file() && entry.file_name().to_str().is_some_and(&is_wanted));
        wanted
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((entry.path().to_owned(), metadata.modified().ok()?, metadata.len()))
            })
            .collect()
    }
}

/// Nobody else may write into the directory, or a link of theirs could lead elsewhere.
fn check_owner(path: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(path)?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    anyhow::ensure!(is_own, "others may write into it: choose a directory of this user's, with mode 0700");
    Ok(())
}

/// Only its owner may look at it: stacks say what programs do.
pub(super) fn make_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that has its name only once it is complete.
///
/// # Errors
/// If it cannot be written; nothing of it is left then.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let partial = dir.join(format!("{name}{PARTIAL}"));
    let written = write_new(&partial, bytes).and_then(|()| std::fs::rename(&partial, dir.join(name)));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A file of this name is what a crash left, or what somebody else put there.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // A file that has its name is complete, even if the machine loses power.
    file.sync_all()
}

/// A part of a file's name.
fn file_name(host: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = host.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_US: u64 = 1_795_694_400_000_000;

    fn store(dir: &Path, max_size: u64) -> Store {
        let config = StoreConfig { path: dir.join("store"), keep: Duration::from_secs(100), max_size };
        Store::open(&config, "a host/1").expect("a store")
    }

    fn names(dir: &Path) -> Vec<String> {
        let files = WalkDir::new(dir).sort_by_file_name().into_iter().flatten();
        let files = files.filter(|entry| entry.file_type().is_file());
        files.map(|entry| entry.path().strip_prefix(dir).expect("below").display().to_string()).collect()
    }

    /// Check that a table lies under the day of its interval, that nothing half-written is left by a failure or a crash, and
    /// that a name of a machine cannot lead out of the directory.
    #[test]
    fn tables_are_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(dir.path(), 1 << 20);
        store.write(Table::Stacks, NOON_US, b"table").expect("written");
        assert_eq!(names(dir.path()), ["store/stacks/day=2026-11-26/120000.000000Z-a_host_1.parquet"]);
        let crashed = dir.path().join("store/stacks/day=2026-11-26/1-a_host_1.parquet.partial");
        std::fs::write(&crashed, "x").expect("written");
        let again = self::store(dir.path(), 1 << 20);
        assert_eq!(names(dir.path()).len(), 1);
        // A directory in the place of the file: it cannot be renamed over it.
        let taken = dir.path().join("store/counters/day=2026-11-26/120000.000000Z-a_host_1.parquet/x");
        std::fs::create_dir_all(taken).expect("made");
        again.write(Table::Counters, NOON_US, b"table").expect_err("not written");
        assert_eq!(names(dir.path()).len(), 1);
    }

    /// Check that old files go, then the oldest while all are too large, and that their directories go with them.
    #[test]
    fn old_tables_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(dir.path(), 250);
        let day_us = 86_400_000_000;
        for n in 0..4_u64 {
            store.write(Table::Stacks, NOON_US + n * day_us, &[0; 100]).expect("written");
            let name = walked(dir.path(), n);
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + n * 40);
            File::options().write(true).open(name).and_then(|file| file.set_modified(modified)).expect("its time");
        }
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        // The first is too old, and then three are too large.
        assert_eq!(store.remove_old(at(1101)).expect("removed"), Size { files: 2, bytes: 200 });
        let left = names(dir.path());
        assert!(left[0].contains("day=2026-11-28") && left[1].contains("day=2026-11-29"), "{left:?}");
        assert!(!dir.path().join("store/stacks/day=2026-11-26").exists());
        assert_eq!(store.remove_old(at(9000)).expect("removed"), Size::default());
    }

    fn walked(dir: &Path, n: u64) -> PathBuf {
        dir.join(format!("store/stacks/day=2026-11-{}/120000.000000Z-a_host_1.parquet", 26 + n))
    }
}
