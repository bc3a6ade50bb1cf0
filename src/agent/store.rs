//! The store: a directory of plain Parquet files, readable by any engine.
//!
//! [`crate::tables`] defines the paths. A file is written under a temporary name and renamed, so that readers see all
//! of it or nothing. `STORE/spool` is the spool, `STORE/compacting` see [`super::compaction`]. `STORE/HOST.lock` is locked by
//! the one process that writes for this machine.

use super::config::StoreConfig;
use crate::tables::{Table, day_of, file_of};
use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use walkdir::WalkDir;

/// Suffix of incomplete files; those left by a crash are removed at the next start.
pub(super) const PARTIAL: &str = ".partial";

/// The store's directory.
#[derive(Debug)]
pub(super) struct Store {
    config: StoreConfig,
    host: String,
    /// The lock of the directory that was written to last.
    locked: Mutex<Option<Arc<File>>>,
}

/// The age from which a partial file for which nobody writes is removed.
const ABANDONED: Duration = Duration::from_secs(600);

/// The least jump of the clock after which files are not removed for their age, and for how long: it may be set back.
const JUMP: Duration = Duration::from_secs(3600);

/// Watches the clock, by which the age of files is judged.
#[derive(Debug)]
pub(super) struct ClockWatch {
    last: Option<(Instant, SystemTime)>,
    jumped: Option<Instant>,
}

impl ClockWatch {
    /// Starts with the time of the newest file that was written before: at a machine's start its clock may be wrong, too.
    pub(super) fn new(newest: Option<SystemTime>) -> Self {
        Self { last: newest.map(|time| (Instant::now(), time)), jumped: None }
    }

    /// Records the time; returns it, unless the clock was set forward within the last hour.
    pub(super) fn time(&mut self, at: Instant, now: SystemTime) -> Option<SystemTime> {
        if let Some((then, time)) = self.last.replace((at, now)) {
            let elapsed = at.saturating_duration_since(then);
            if now.duration_since(time).is_ok_and(|passed| passed > elapsed.saturating_add(JUMP)) {
                self.jumped = Some(at);
            }
        }
        self.jumped.is_none_or(|jumped| at.saturating_duration_since(jumped) >= JUMP).then_some(now)
    }
}

/// Number and total size of files.
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
    /// Opens the store of this configuration, and removes partial files that a crash left.
    ///
    /// # Errors
    /// If its directory cannot be created or written, others may write to it, or another process writes for this machine.
    pub(super) fn open(config: &StoreConfig, host: &str) -> anyhow::Result<Self> {
        let store = Self { config: config.clone(), host: file_name(host), locked: Mutex::default() };
        store.claim(&[Table::Stacks, Table::Counters])?;
        // Only this machine's: others may share the store. `file_of` puts no other `-` before the host.
        let own = format!("{}.parquet{PARTIAL}", store.host);
        for (path, _, _) in store.files(|name| name.split_once('-').is_some_and(|(_, rest)| rest == own)) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(store)
    }

    /// Creates the directories of these tables if they are missing, and makes sure that nobody else writes to them.
    fn claim(&self, tables: &[Table]) -> anyhow::Result<()> {
        let path = &self.config.path;
        let context = || format!("store {}", path.display());
        own_dir(path).with_context(context)?;
        let locked = lock(&self.lock_file()).with_context(context)?;
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = Some(locked);
        tables.iter().try_for_each(|table| own_dir(&path.join(table.name()))).with_context(context)
    }

    /// Writes a table of the interval that began at this time. The directory may have been replaced since the last one, for
    /// example by another volume.
    ///
    /// # Errors
    /// If it cannot be written; no partial file is left.
    pub(super) fn write(&self, table: Table, start_unix_us: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.claim(&[table])?;
        let dir = self.config.path.join(table.name()).join(day_of(start_unix_us)?);
        make_dir(&dir).with_context(|| dir.display().to_string())?;
        let name = file_of(start_unix_us, &self.host)?;
        write_whole(&dir, &name, bytes).with_context(|| dir.join(&name).display().to_string())
    }

    /// Removes the directories if no table was ever written.
    pub(super) fn remove_if_empty(&self) {
        // Fails if there is something in them, which stays.
        let tables = [Table::Stacks, Table::Counters].map(|table| self.config.path.join(table.name()));
        if tables.iter().all(|dir| std::fs::remove_dir(dir).is_ok()) {
            let _ = std::fs::remove_file(self.lock_file());
        }
        let _ = std::fs::remove_dir(&self.config.path);
    }

    /// When the newest file was written.
    pub(super) fn newest(&self) -> Option<SystemTime> {
        self.files(|name| name.ends_with(".parquet")).into_iter().map(|(_, modified, _)| modified).max()
    }

    /// The lock of the directory.
    pub(super) fn locked(&self) -> Option<Arc<File>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock_file(&self) -> PathBuf {
        lock_file(&self.config.path, &self.host)
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    /// The machine's name as used in file names.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Removes files that are too old, if the time is known, then the oldest while the total is too large. Returns the remaining
    /// size.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(super) fn remove_old(&self, now: Option<SystemTime>) -> anyhow::Result<Size> {
        let mut files = self.files(|name| name.ends_with(".parquet"));
        files.sort_by_key(|&(_, modified, _)| modified);
        let mut failed = self.remove_abandoned(now).err();
        let mut size = Size {
            files: files.len() as u64,
            bytes: files.iter().fold(0, |sum: u64, &(_, _, bytes)| sum.saturating_add(bytes)),
        };
        for (path, modified, bytes) in files {
            let age = now.and_then(|now| now.duration_since(modified).ok());
            let is_old = age.is_some_and(|age| age > self.config.keep);
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
            // Fails unless this was the last file of the day.
            if let Some(day) = path.parent() {
                let _ = std::fs::remove_dir(day);
            }
        }
        failed.map_or(Ok(size), Err)
    }

    /// Removes partial files of machines for which nobody writes, such as this one before it was renamed.
    fn remove_abandoned(&self, now: Option<SystemTime>) -> anyhow::Result<()> {
        let Some(now) = now else { return Ok(()) };
        let mut failed = None;
        for (path, modified, _) in self.files(|name| name.ends_with(PARTIAL)) {
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(PARTIAL)?.strip_suffix(".parquet"));
            let host = name.and_then(|name| name.split_once('-')).map(|(_, host)| host);
            let is_over = now.duration_since(modified).is_ok_and(|age| age > ABANDONED);
            if is_over && host.is_some_and(|host| host != self.host && !is_written_by(&self.config.path, host)) {
                // Another machine may have removed it.
                let removed = std::fs::remove_file(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(anyhow::Error::new(error).context(path.display().to_string())),
                });
                failed = failed.or(removed.err());
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The files of both tables whose names match, with modification time and size.
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

/// Creates a directory, or checks that nobody else may write into it: otherwise a symbolic link could redirect writes.
pub(super) fn own_dir(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(path.is_dir() || !path.exists(), "there is a file of this name: choose a directory");
    make_dir(path)?;
    let metadata = std::fs::metadata(path)?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    anyhow::ensure!(
        is_own,
        "{}: others may write into it: choose a directory of this user's, with mode 0700",
        path.display()
    );
    Ok(())
}

/// The file that the process has locked which writes for this machine.
fn lock_file(store: &Path, host: &str) -> PathBuf {
    store.join(format!("{host}.lock"))
}

/// Whether a process writes to the store for this machine, or may do so.
pub(super) fn is_written_by(store: &Path, host: &str) -> bool {
    match File::open(lock_file(store, host)) {
        // The lock ends with the file.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Locks a file as long as it is open: two processes that write for one machine would remove each other's files.
fn lock(path: &Path) -> anyhow::Result<Arc<File>> {
    /// By device and inode. A configuration that is read again opens its store again.
    static LOCKED: Mutex<BTreeMap<(u64, u64), Weak<File>>> = Mutex::new(BTreeMap::new());
    let context = || path.display().to_string();
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = opened.with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    locked.retain(|_, file| file.strong_count() > 0);
    let id = (metadata.dev(), metadata.ino());
    if let Some(file) = locked.get(&id).and_then(Weak::upgrade) {
        return Ok(file);
    }
    // One that asks whether it is locked has it for a moment.
    let is_taken = || flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    for _ in 0..10 {
        if !is_taken() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            anyhow::bail!("another fpprof writes to it: stop that one, or choose another directory")
        }
        result => result.with_context(|| format!("cannot lock {}", path.display()))?,
    }
    let file = Arc::new(file);
    locked.insert(id, Arc::downgrade(&file));
    Ok(file)
}

/// Creates a directory that only its owner can read: stacks reveal what programs do.
pub(super) fn make_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that gets its name only when complete.
///
/// # Errors
/// If it cannot be written; no partial file is left.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let partial = dir.join(format!("{name}{PARTIAL}"));
    let path = dir.join(name);
    let written = write_new(&partial, bytes).and_then(|()| std::fs::rename(&partial, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written?;
    // What is reported as failed must not be there.
    sync_dir(dir).inspect_err(|_| _ = std::fs::remove_file(path))
}

/// Makes the names in a directory last through a power loss, if its file system can.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // See fsync(2).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

pub(super) fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // An existing file was left by a crash, or put there by somebody else.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // So that a file under its final name is complete even after a power loss.
    file.sync_all()
}

/// The host name with all characters replaced that are unsafe in file names.
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
        let config = StoreConfig { path: dir.join("store"), keep: Duration::from_secs(100), max_size, compact: true };
        Store::open(&config, "a host/1").expect("a store")
    }

    fn names(dir: &Path) -> Vec<String> {
        let files = WalkDir::new(dir).sort_by_file_name().into_iter().flatten();
        let is_lock = |name: &std::ffi::OsStr| Path::new(name).extension().is_some_and(|extension| extension == "lock");
        let files = files.filter(|entry| entry.file_type().is_file() && !is_lock(entry.file_name()));
        files.map(|entry| entry.path().strip_prefix(dir).expect("below").display().to_string()).collect()
    }

    /// Check that a table is stored under the day of its interval, that no partial file is left by a failure or a
    /// crash, and that a host name cannot lead out of the directory.
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
        // A directory is in the way: the file cannot be renamed over it.
        let taken = dir.path().join("store/counters/day=2026-11-26/120000.000000Z-a_host_1.parquet/x");
        std::fs::create_dir_all(taken).expect("made");
        again.write(Table::Counters, NOON_US, b"table").expect_err("not written");
        assert_eq!(names(dir.path()).len(), 1);
    }

    /// Check that a directory that was replaced while the store is open is checked as at the start.
    #[test]
    fn a_replaced_directory_is_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(dir.path(), 1 << 20);
        let path = dir.path().join("store");
        std::fs::rename(&path, dir.path().join("aside")).expect("moved");
        DirBuilder::new().mode(0o777).create(&path).expect("made");
        let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode));
        mode(0o777).expect("its mode");
        store.write(Table::Stacks, NOON_US, b"table").expect_err("others may write");
        mode(0o700).expect("its mode");
        store.write(Table::Stacks, NOON_US, b"table").expect("written");
        assert!(path.join("a_host_1.lock").exists());
    }

    /// Check that old files are removed, then the oldest while the total is too large, and that empty directories go
    /// with them.
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
        // The first is too old; the remaining three are too large.
        assert_eq!(store.remove_old(Some(at(1101))).expect("removed"), Size { files: 2, bytes: 200 });
        let left = names(dir.path());
        assert!(left[0].contains("day=2026-11-28") && left[1].contains("day=2026-11-29"), "{left:?}");
        assert!(!dir.path().join("store/stacks/day=2026-11-26").exists());
        assert_eq!(store.remove_old(None).expect("no time"), Size { files: 2, bytes: 200 });
        assert_eq!(store.remove_old(Some(at(9000))).expect("removed"), Size::default());
    }

    /// Check that for an hour after the clock was set forward no age is judged, and that time that passes is no jump.
    #[test]
    fn a_jump_of_the_clock_removes_nothing() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_micros(NOON_US);
        let mut watch = ClockWatch::new(None);
        let begun = Instant::now();
        let mut at = |elapsed_s, clock_s| {
            watch.time(begun + Duration::from_secs(elapsed_s), noon + Duration::from_secs(clock_s)).is_some()
        };
        assert!(at(0, 0) && at(60, 60) && at(90_000, 90_000) && at(90_060, 90_000));
        assert!(!at(90_120, 9_000_000) && !at(90_180, 90_180) && !at(93_000, 93_000));
        assert!(at(93_721, 93_721));

        let mut started_late = ClockWatch::new(Some(noon));
        let later = noon + Duration::from_secs(9_000_000);
        assert!(started_late.time(Instant::now(), later).is_none());
        assert!(started_late.time(Instant::now() + JUMP, later + JUMP).is_some());
    }

    /// Check that an old partial file of a machine for which nobody writes is removed, and no other.
    #[test]
    fn abandoned_files_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(dir.path(), 1 << 20);
        let _other = Store::open(&store.config, "other").expect("a store");
        let day = dir.path().join("store/stacks/day=2026-11-26");
        make_dir(&day).expect("made");
        let files = ["1-a_host_1.parquet.partial", "1-other.parquet.partial", "1-renamed.parquet.partial", "1.partial"];
        files.iter().for_each(|name| std::fs::write(day.join(name), "x").expect("written"));
        let left = |now| {
            store.remove_old(Some(now)).expect("removed");
            files.map(|name| day.join(name).exists())
        };
        let now = SystemTime::now();
        assert_eq!(left(now + ABANDONED / 2), [true; 4]);
        assert_eq!(left(now + 2 * ABANDONED), [true, true, false, true]);
    }

    /// Check that a store that is open no more is not locked.
    #[test]
    fn a_lock_ends_with_its_store() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, again) = (store(dir.path(), 1 << 20), store(dir.path(), 1 << 20));
        let is_locked = || is_written_by(&dir.path().join("store"), "a_host_1");
        drop(first);
        assert!(is_locked());
        drop(again);
        // A process that another test starts has it until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_locked() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!is_locked());
    }

    fn walked(dir: &Path, n: u64) -> PathBuf {
        dir.join(format!("store/stacks/day=2026-11-{}/120000.000000Z-a_host_1.parquet", 26 + n))
    }
}
