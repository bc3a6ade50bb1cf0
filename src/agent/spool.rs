//! The spool: a directory of requests to a collector, oldest first, of bounded size.
//!
//! ```text
//! STORE/spool/1764165960000012-000-1043-HOST.otlp.gz    the first request of the interval that began then, with 1,043 samples
//! STORE/spool/1764166020000007-000-1021-HOST.pyroscope  one for Pyroscope
//! STORE/spool/1764166080000011-000-998-HOST.s3          one for a bucket
//! ```
//!
//! A request stays until a collector has answered it, across restarts of the agent. One for another protocol than the
//! configured one is kept and not sent.

use super::config::Protocol;
use super::store::{PARTIAL, Size, Store, own_dir, write_whole};
use anyhow::Context as _;
use fpprof_reports::profile::request::Request;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The directory and its index.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    host: String,
    max_bytes: u64,
    /// That of the collector.
    protocol: Protocol,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Oldest first, without the one being sent.
    entries: VecDeque<Entry>,
    /// The total size, including the one being sent.
    size: Size,
}

/// A request in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    name: String,
    pub(super) samples: u64,
    bytes: u64,
    protocol: Protocol,
}

/// The outcome of adding requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// Samples of the oldest requests that were removed to make room.
    pub(super) removed: u64,
    /// Samples of requests that could not be written.
    pub(super) not_written: u64,
    pub(super) error: Option<String>,
}

impl Spool {
    /// Opens this machine's spool in a store, with the requests that a previous agent left, of which those for this
    /// protocol can be taken.
    ///
    /// # Errors
    /// If its directory cannot be created or read.
    pub(super) fn open(store: &Store, protocol: Protocol, max_bytes: u64) -> anyhow::Result<Self> {
        let dir = store.path().join("spool");
        own_dir(&dir)?;
        Self::of_dir(&dir, store.host(), protocol, max_bytes).with_context(|| dir.display().to_string())
    }

    /// What waits in this machine's spool for another protocol than this: number and size of files, and their samples.
    /// `None` if nothing does.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn left(store: &Store, protocol: Option<Protocol>) -> anyhow::Result<Option<(Size, u64)>> {
        let dir = store.path().join("spool");
        let spool = match Self::of_dir(&dir, store.host(), Protocol::default(), u64::MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            spool => spool.with_context(|| dir.display().to_string())?,
        };
        let (mut size, mut samples) = (Size::default(), 0_u64);
        for entry in spool.waiting().entries.iter().filter(|entry| Some(entry.protocol) != protocol) {
            size.add(entry.bytes);
            samples = samples.saturating_add(entry.samples);
        }
        Ok((size.files > 0).then_some((size, samples)))
    }

    fn of_dir(dir: &Path, host: &str, protocol: Protocol, max_bytes: u64) -> io::Result<Self> {
        let mut waiting = Waiting::default();
        let mut entries = Vec::new();
        for file in std::fs::read_dir(dir)? {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { continue };
            // START-NUMBER-SAMPLES-HOST and the protocol's ending, where the host may have further `-`.
            let mut parts = name.splitn(4, '-').skip(2);
            let (Some(samples), Some(rest)) = (parts.next(), parts.next()) else { continue };
            let Some(rest) = rest.strip_prefix(host) else { continue };
            let rest = [Protocol::Otlp, Protocol::Pyroscope, Protocol::S3]
                .into_iter()
                .find_map(|protocol| Some((protocol, rest.strip_prefix(ending(protocol))?)));
            match (rest, samples.parse()) {
                (Some((_, PARTIAL)), _) => std::fs::remove_file(file.path())?,
                (Some((protocol, "")), Ok(samples)) => {
                    entries.push(Entry { samples, bytes: file.metadata()?.len(), protocol, name });
                }
                _ => {}
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.into_iter().for_each(|entry| waiting.push(entry));
        Ok(Self { dir: dir.to_owned(), host: host.to_owned(), max_bytes, protocol, waiting: Mutex::new(waiting) })
    }

    /// Appends the requests of the interval that began at this time, and removes the oldest while the total exceeds the
    /// limit.
    pub(super) fn add(&self, start_unix_us: u64, requests: &[Request]) -> Added {
        let mut added = Added::default();
        let protocol = self.protocol;
        for (number, Request { samples, body }) in requests.iter().enumerate() {
            let name = format!("{start_unix_us:016}-{number:03}-{samples}-{}{}", self.host, ending(protocol));
            match write_whole(&self.dir, &name, body) {
                Ok(()) => self.waiting().push(Entry { name, samples: *samples, bytes: body.len() as u64, protocol }),
                Err(error) => {
                    added.not_written = added.not_written.saturating_add(*samples);
                    added.error.get_or_insert_with(|| format!("{}: {error}", self.dir.display()));
                }
            }
        }
        let mut waiting = self.waiting();
        while waiting.size.bytes > self.max_bytes {
            let Some(oldest) = waiting.entries.pop_front() else { break };
            waiting.size.subtract(oldest.bytes);
            added.removed = added.removed.saturating_add(oldest.samples);
            if let Err(error) = remove(&self.dir.join(&oldest.name)) {
                added.error.get_or_insert(error.to_string());
            }
        }
        added
    }

    /// Takes the oldest request for the collector's protocol and reads its file.
    pub(super) fn take(&self) -> Option<(Entry, io::Result<Vec<u8>>)> {
        let mut waiting = self.waiting();
        let at = waiting.entries.iter().position(|entry| self.is_sent(entry))?;
        let entry = waiting.entries.remove(at)?;
        drop(waiting);
        let body = std::fs::read(self.dir.join(&entry.name));
        Some((entry, body))
    }

    /// Puts a taken request back in its place: older ones for another protocol may wait.
    pub(super) fn give_back(&self, entry: Entry) {
        let mut waiting = self.waiting();
        let at = waiting.entries.partition_point(|other| other.name < entry.name);
        waiting.entries.insert(at, entry);
    }

    /// Removes the file of a taken request.
    ///
    /// # Errors
    /// If its file cannot be removed: it is sent again after a restart.
    pub(super) fn remove(&self, entry: &Entry) -> io::Result<()> {
        self.waiting().size.subtract(entry.bytes);
        remove(&self.dir.join(&entry.name))
    }

    /// Whether nothing can be taken.
    pub(super) fn is_empty(&self) -> bool {
        !self.waiting().entries.iter().any(|entry| self.is_sent(entry))
    }

    fn is_sent(&self, entry: &Entry) -> bool {
        self.protocol == entry.protocol
    }

    pub(super) fn size(&self) -> Size {
        self.waiting().size
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, entry: Entry) {
        self.size.add(entry.bytes);
        self.entries.push_back(entry);
    }
}

/// The end of a file's name.
fn ending(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Otlp => ".otlp.gz",
        Protocol::Pyroscope => ".pyroscope",
        Protocol::S3 => ".s3",
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool_in(store: &Path, host: &str, max_bytes: u64) -> io::Result<Spool> {
        spool_of(Protocol::Otlp, store, host, max_bytes)
    }

    fn spool_of(protocol: Protocol, store: &Path, host: &str, max_bytes: u64) -> io::Result<Spool> {
        let dir = store.join("spool");
        std::fs::create_dir_all(&dir)?;
        Spool::of_dir(&dir, host, protocol, max_bytes)
    }

    fn requests(samples: &[u64]) -> Vec<Request> {
        samples.iter().map(|&samples| Request { samples, body: vec![0; 100] }).collect()
    }

    /// Check that requests come back oldest first, also after a restart, that another machine's are left alone, and
    /// that partial files of a crash are removed.
    #[test]
    fn requests_wait_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1", 1000).expect("a spool");
        assert_eq!(spool.add(20, &requests(&[3, 4])), Added::default());
        assert_eq!(spool.add(10, &requests(&[5])), Added::default());
        spool_in(dir.path(), "my-web-1", 1000).expect("a spool").add(5, &requests(&[9]));
        let partial = dir.path().join("spool/0000000000000030-000-1-web-1.otlp.gz.partial");
        std::fs::write(&partial, "x").expect("written");
        let spool = spool_in(dir.path(), "web-1", 1000).expect("a spool");
        assert!(!partial.exists());
        assert_eq!(spool.size(), Size { files: 3, bytes: 300 });
        let (first, body) = spool.take().expect("a request");
        assert_eq!((first.samples, body.expect("its body").len()), (5, 100));
        spool.give_back(first.clone());
        assert_eq!(spool.take().expect("a request").0, first);
        spool.remove(&first).expect("removed");
        let rest: Vec<u64> = std::iter::from_fn(|| spool.take()).map(|(entry, _)| entry.samples).collect();
        assert_eq!(rest, [3, 4]);
        assert_eq!(std::fs::read_dir(dir.path().join("spool")).expect("a directory").count(), 3);
    }

    /// Check that the oldest are removed when there is no room, except the one being sent, and that all of them are
    /// counted.
    #[test]
    fn the_oldest_make_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1", 250).expect("a spool");
        assert_eq!(spool.add(1, &requests(&[1, 2])), Added::default());
        let (first, _) = spool.take().expect("a request");
        assert_eq!(spool.add(2, &requests(&[4])).removed, 2);
        assert_eq!(spool.add(3, &requests(&[8])).removed, 4);
        spool.give_back(first);
        assert_eq!(spool.size(), Size { files: 2, bytes: 200 });
        assert_eq!(spool.add(4, &requests(&[16])).removed, 1);
        std::fs::remove_dir_all(dir.path().join("spool")).expect("removed");
        let added = spool.add(5, &requests(&[32]));
        assert!(added.not_written == 32 && added.error.expect("why").contains("spool"));
    }

    /// Check that what was made for another protocol is not taken but counts, and makes room first if it is the oldest.
    #[test]
    fn another_protocol_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = spool_of(Protocol::Pyroscope, dir.path(), "web-1", 400).expect("a spool");
        assert_eq!(before.add(1, &requests(&[1, 2])), Added::default());
        let spool = spool_in(dir.path(), "web-1", 400).expect("a spool");
        assert!(spool.is_empty() && spool.take().is_none());
        assert_eq!(spool.add(2, &requests(&[4])), Added::default());
        let spool = spool_in(dir.path(), "web-1", 400).expect("a spool");
        assert_eq!(spool.size(), Size { files: 3, bytes: 300 });
        let (entry, _) = spool.take().expect("a request");
        assert_eq!((entry.samples, spool.is_empty()), (4, true));
        spool.give_back(entry);
        assert_eq!(spool.add(3, &requests(&[8, 16])).removed, 1);
        let rest: Vec<u64> = std::iter::from_fn(|| spool.take()).map(|(entry, _)| entry.samples).collect();
        assert_eq!(rest, [4, 8, 16]);
        assert_eq!(spool.size(), Size { files: 4, bytes: 400 });
    }
}
