//! Fetches debug information while others go on.

use super::client::{Again, Debuginfod, Fetched, TIMEOUT, parts};
use crate::output::print_message;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use walkdir::WalkDir;

/// The most files that wait to be fetched; others are requested again when they are needed again.
const MAX_WAITING: usize = 1024;
/// Pause after each request: users can run programs with any build ids, and servers are everybody's.
const BETWEEN: Duration = Duration::from_millis(200);
/// Pause after a failure of a server.
const SERVER_AGAIN: Duration = Duration::from_secs(600);
/// When a file that no server has is requested again.
const FILE_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
/// Files that are not complete after this time never will be: a crash left them.
const INCOMPLETE_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Held while a file is fetched or the cache is trimmed: after a reload, the threads of both configurations run for a while.
static ONE: Mutex<()> = Mutex::new(());

/// What requests files from [`Fetching`].
#[derive(Debug)]
pub(crate) struct Background {
    cache: PathBuf,
    wanted: SyncSender<PathBuf>,
    is_over: Arc<AtomicBool>,
}

/// Fetches one file after the other into a bounded cache.
#[derive(Debug)]
pub(crate) struct Fetching {
    debuginfod: Debuginfod,
    queue: Receiver<PathBuf>,
    max_bytes: u64,
    /// Whether nobody wants the rest of the queue.
    is_over: Arc<AtomicBool>,
}

/// What is needed to fetch in the background.
#[derive(Debug)]
pub(crate) struct Servers<'a> {
    pub(crate) urls: &'a [String],
    /// The directory of the fetched files, which exists.
    pub(crate) cache: PathBuf,
    /// The most bytes of all files. One file may have half of it.
    pub(crate) max_bytes: u64,
}

impl Background {
    pub(crate) fn new(servers: Servers<'_>) -> (Self, Fetching) {
        let Servers { urls, cache, max_bytes } = servers;
        let again = Some(Again { server: SERVER_AGAIN, file: FILE_AGAIN });
        let debuginfod = Debuginfod::new(urls, cache.clone(), TIMEOUT, max_bytes / 2, again);
        let (wanted, queue) = sync_channel(MAX_WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        (Self { cache, wanted, is_over: Arc::clone(&is_over) }, Fetching { debuginfod, queue, max_bytes, is_over })
    }

    /// The directory of the fetched files.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Has a file of the cache fetched, unless it is there or too many others wait.
    pub(super) fn want(&self, path: &Path) {
        if parts(&self.cache, path).is_some() && path.symlink_metadata().is_err() {
            let _ = self.wanted.try_send(path.to_owned());
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Fetching {
    /// Fetches until its counterpart is dropped; `count` is called with the outcome of each request: `fetched`, `missing` or
    /// `failed`.
    pub(crate) fn run(self, count: impl Fn(&'static str)) {
        let mut is_reported = false;
        let one = || ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let first = one();
        self.trim(&mut is_reported);
        drop(first);
        for path in &self.queue {
            let fetching = one();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match self.debuginfod.fetch(&path) {
                Fetched::NotAsked => continue,
                Fetched::Missing => count("missing"),
                Fetched::Failed => count("failed"),
                Fetched::Found => {
                    count("fetched");
                    self.trim(&mut is_reported);
                }
            }
            drop(fetching);
            std::thread::sleep(BETWEEN);
        }
    }

    /// Prints the first failure.
    fn trim(&self, is_reported: &mut bool) {
        let cache = &self.debuginfod.cache;
        if let Err(error) = trim(cache, self.max_bytes)
            && !std::mem::replace(is_reported, true)
        {
            print_message(&format!("fpprof: old debug information stays in {}: {error:#}", cache.display()));
        }
    }
}

/// Removes the oldest files until the rest has at most so many bytes, and incomplete ones that a crash left.
fn trim(cache: &Path, max_bytes: u64) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for entry in WalkDir::new(cache).min_depth(2).max_depth(2) {
        let entry = entry?;
        let metadata = entry.metadata()?;
        files.push((metadata.modified()?, metadata.len(), entry.into_path()));
    }
    files.sort_unstable();
    let now = SystemTime::now();
    // Between two downloads, a file of this process's number is from an earlier process, as in a container.
    let own = format!(".{}.part", std::process::id());
    let mut bytes = files.iter().fold(0, |sum: u64, (_, len, _)| sum.saturating_add(*len));
    for (modified, len, path) in files {
        let is_old = now.duration_since(modified).is_ok_and(|age| age > INCOMPLETE_FOR);
        let is_own = path.as_os_str().as_encoded_bytes().ends_with(own.as_bytes());
        let is_incomplete = parts(cache, &path).is_none() && (is_old || is_own);
        if bytes > max_bytes || is_incomplete {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            bytes = bytes.saturating_sub(len);
            // Fails unless this was the last file of its build id.
            let _ = path.parent().map(std::fs::remove_dir);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes, create_dir, write};

    /// Check that the oldest files are removed until the rest fits, and what a crash left when it is old.
    #[test]
    fn the_cache_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let file = |id: &str, name: &str, age_s: u64| {
            let path = dir.path().join(id).join(name);
            let _ = create_dir(dir.path().join(id));
            write(&path, [0; 100]).unwrap();
            let times = FileTimes::new().set_modified(now - Duration::from_secs(age_s));
            File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
            path
        };
        let old = file("0123456789abcde0", "debuginfo", 30);
        let newer = file("0123456789abcde1", "executable", 20);
        let partial = file("0123456789abcde2", "debuginfo.0.part", 10);
        trim(dir.path(), 300).unwrap();
        assert_eq!([&old, &newer, &partial].map(|path| path.exists()), [true; 3]);
        trim(dir.path(), 200).unwrap();
        assert_eq!([&old, &newer, &partial].map(|path| path.exists()), [false, true, true]);
        assert!(!old.parent().unwrap().exists());
        let left = file("0123456789abcde2", "debuginfo.8.part", INCOMPLETE_FOR.as_secs() + 60);
        trim(dir.path(), 300).unwrap();
        assert_eq!([&newer, &partial, &left].map(|path| path.exists()), [true, true, false]);
        let own = file("0123456789abcde2", &format!("debuginfo.{}.part", std::process::id()), 0);
        trim(dir.path(), 300).unwrap();
        assert_eq!([&partial, &own].map(|path| path.exists()), [true, false]);
    }
}
