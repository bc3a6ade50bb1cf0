//! The spool: a directory of requests to a collector, of bounded size. The oldest is sent first, but for those that have
//! failed often.
//!
//! ```text
//! STORE/spool/1764165960000012-000-1043-HOST.otlp.gz    the first request of the interval that began then, with 1,043 samples
//! STORE/spool/1764166020000007-000-1021-HOST.pyroscope  one for Pyroscope
//! STORE/spool/1764166080000011-000-998-HOST.s3          one for a bucket
//! ```
//!
//! A request stays until a collector has answered it, across restarts of the agent, or it is older than the store keeps its
//! files. One for another protocol than the configured one is not sent, nor one of another machine, or of this one before it was
//! renamed: that expires in the same way, unless somebody writes for that machine.

use super::config::Protocol;
use super::store::{PARTIAL, Size, Store, is_written_by, make_dir, own_dir, write_whole};
use anyhow::Context as _;
use fpprof_reports::profile::request::Request;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a request fails before the others have their turn: most failures are about the receiver, not about the request.
const TRIES: u32 = 10;

/// The directory and its index: one for all configurations with this directory, so that what is being sent is known and
/// not removed.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    host: String,
    waiting: Mutex<Waiting>,
    /// Requests of other machines, with their names, as of the start.
    others: Mutex<Vec<(String, Entry)>>,
    /// Keeps other processes from sending the same.
    _locked: Option<Arc<File>>,
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
    /// How often it could not be sent, since the agent started.
    pub(super) failed: u32,
    /// How often it was answered so that it may have been a refusal.
    pub(super) unclear: u32,
}

/// What was removed because of its age.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) requests: u64,
    pub(super) samples: u64,
    pub(super) error: Option<String>,
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
    /// Opens this machine's spool in a store, with the requests that a previous agent left.
    ///
    /// # Errors
    /// If its directory cannot be created or read.
    pub(super) fn open(store: &Store) -> anyhow::Result<Self> {
        let dir = dir_in(store);
        own_dir(&dir)?;
        let spool = Self::of_dir(&dir, store.host()).with_context(|| dir.display().to_string())?;
        Ok(Self { _locked: store.locked(), ..spool })
    }

    /// Whether it is the spool of this store.
    pub(super) fn is_in(&self, store: &Store) -> bool {
        self.dir == dir_in(store) && self.host == store.host()
    }

    /// What waits and is not for this protocol: number and size of files, and their samples.
    pub(super) fn left(&self, protocol: Option<Protocol>) -> (Size, u64) {
        let (mut size, mut samples) = (Size::default(), 0_u64);
        for entry in self.waiting().entries.iter().filter(|entry| Some(entry.protocol) != protocol) {
            size.add(entry.bytes);
            samples = samples.saturating_add(entry.samples);
        }
        (size, samples)
    }

    fn of_dir(dir: &Path, host: &str) -> io::Result<Self> {
        let mut waiting = Waiting::default();
        let (mut entries, mut others) = (Vec::new(), Vec::new());
        for file in std::fs::read_dir(dir)? {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { continue };
            // START-NUMBER-SAMPLES-HOST and the protocol's ending, where the host may have further `-`.
            let mut parts = name.splitn(4, '-').skip(2);
            let (Some(samples), Some(rest)) = (parts.next(), parts.next()) else { continue };
            let (whole, is_partial) = rest.strip_suffix(PARTIAL).map_or((rest, false), |whole| (whole, true));
            let named = [Protocol::Otlp, Protocol::Pyroscope, Protocol::S3]
                .into_iter()
                .find_map(|protocol| Some((protocol, whole.strip_suffix(ending(protocol))?)));
            let (Some((protocol, whose)), Ok(samples)) = (named, samples.parse()) else { continue };
            if is_partial && whose == host {
                std::fs::remove_file(file.path())?;
                continue;
            }
            let bytes = match file.metadata() {
                // Another machine has just sent it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?.len(),
            };
            // What was not written to its end is no request.
            let (whose, samples) = (whose.to_owned(), if is_partial { 0 } else { samples });
            let entry = Entry { samples, bytes, protocol, name, failed: 0, unclear: 0 };
            match whose == host {
                true => entries.push(entry),
                false => others.push((whose, entry)),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.into_iter().for_each(|entry| waiting.push(entry));
        let (waiting, others) = (Mutex::new(waiting), Mutex::new(others));
        Ok(Self { dir: dir.to_owned(), host: host.to_owned(), waiting, others, _locked: None })
    }

    /// Appends the requests of the interval that began at this time, and removes the oldest while the total exceeds the
    /// limit.
    pub(super) fn add(&self, start_unix_us: u64, requests: &[Request], protocol: Protocol, max_bytes: u64) -> Added {
        let mut added = Added::default();
        for (number, Request { samples, body }) in requests.iter().enumerate() {
            let name = format!("{start_unix_us:016}-{number:03}-{samples}-{}{}", self.host, ending(protocol));
            let written = match write_whole(&self.dir, &name, body) {
                // Somebody has removed the directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_dir(&self.dir).and_then(|()| write_whole(&self.dir, &name, body))
                }
                written => written,
            };
            match written {
                Ok(()) => {
                    let (samples, bytes) = (*samples, body.len() as u64);
                    self.waiting().push(Entry { name, samples, bytes, protocol, failed: 0, unclear: 0 });
                }
                Err(error) => {
                    added.not_written = added.not_written.saturating_add(*samples);
                    added.error.get_or_insert_with(|| format!("{}: {error}", self.dir.display()));
                }
            }
        }
        let mut waiting = self.waiting();
        while waiting.size.bytes > max_bytes {
            let Some(oldest) = waiting.entries.pop_front() else { break };
            added.removed = added.removed.saturating_add(oldest.samples);
            if let Err(error) = self.discard(&mut waiting, &oldest) {
                added.error.get_or_insert(error.to_string());
            }
        }
        added
    }

    /// Removes the requests of intervals that began longer ago than this.
    pub(super) fn expire(&self, now: SystemTime, keep: Duration) -> Expired {
        let mut expired = Expired::default();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until_us = now.saturating_sub(keep).as_micros();
        let mut waiting = self.waiting();
        // Not all of them are at the front if the clock was set back.
        while let Some(at) = waiting.entries.iter().position(|entry| entry.start_us() < until_us) {
            let Some(oldest) = waiting.entries.remove(at) else { break };
            expired.requests = expired.requests.saturating_add(1);
            expired.samples = expired.samples.saturating_add(oldest.samples);
            if let Err(error) = self.discard(&mut waiting, &oldest) {
                expired.error.get_or_insert(error.to_string());
            }
        }
        drop(waiting);
        self.others().retain(|(host, entry)| {
            let stays = entry.start_us() >= until_us || self.is_written_by(host);
            if stays {
                return true;
            }
            let path = self.dir.join(&entry.name);
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    expired.requests = expired.requests.saturating_add(1);
                    expired.samples = expired.samples.saturating_add(entry.samples);
                }
                // That machine has sent or removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    expired.error.get_or_insert_with(|| format!("{}: {error}", path.display()));
                }
            }
            false
        });
        expired
    }

    /// Number and size of the files of other machines for which nobody writes here, and their samples.
    pub(super) fn of_others(&self) -> (Size, u64) {
        let (mut size, mut samples) = (Size::default(), 0_u64);
        for (_, entry) in self.others().iter().filter(|(host, _)| !self.is_written_by(host)) {
            size.add(entry.bytes);
            samples = samples.saturating_add(entry.samples);
        }
        (size, samples)
    }

    fn others(&self) -> MutexGuard<'_, Vec<(String, Entry)>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_written_by(&self, host: &str) -> bool {
        self.dir.parent().is_none_or(|store| is_written_by(store, host))
    }

    /// Removes the file of a request that is in the index no more.
    fn discard(&self, waiting: &mut Waiting, entry: &Entry) -> io::Result<()> {
        waiting.size.subtract(entry.bytes);
        remove(&self.dir.join(&entry.name))
    }

    /// Takes the oldest request for this protocol and reads its file. One that has failed [`TRIES`] times lets the others pass,
    /// so that a request which always fails does not hold them up.
    pub(super) fn take(&self, protocol: Protocol) -> Option<(Entry, io::Result<Vec<u8>>)> {
        let mut waiting = self.waiting();
        let of_protocol = waiting.entries.iter().enumerate().filter(|(_, entry)| entry.protocol == protocol);
        let (at, _) = of_protocol.min_by_key(|(_, entry)| entry.failed / TRIES)?;
        let entry = waiting.entries.remove(at)?;
        drop(waiting);
        let body = std::fs::read(self.path(&entry));
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
        self.discard(&mut self.waiting(), entry)
    }

    /// Whether nothing can be taken for this protocol.
    pub(super) fn is_empty(&self, protocol: Protocol) -> bool {
        !self.waiting().entries.iter().any(|entry| entry.protocol == protocol)
    }

    pub(super) fn size(&self) -> Size {
        self.waiting().size
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of a request.
    pub(super) fn path(&self, entry: &Entry) -> PathBuf {
        self.dir.join(&entry.name)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Whether it has failed so often that those that have not are sent before it.
    pub(super) fn lets_others_pass(&self) -> bool {
        self.failed >= TRIES
    }

    /// Sends those that have not failed before it.
    pub(super) fn let_others_pass(&mut self) {
        self.failed = (self.failed / TRIES + 1).saturating_mul(TRIES);
    }

    /// When its interval began, microseconds since 1970.
    fn start_us(&self) -> u128 {
        self.name.split('-').next().and_then(|start| start.parse().ok()).unwrap_or(0)
    }
}

impl Waiting {
    fn push(&mut self, entry: Entry) {
        self.size.add(entry.bytes);
        self.entries.push_back(entry);
    }
}

fn dir_in(store: &Store) -> PathBuf {
    store.path().join("spool")
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
    use rustix::fs::{FlockOperation, flock};

    const OTLP: Protocol = Protocol::Otlp;

    fn spool_in(store: &Path, host: &str) -> io::Result<Spool> {
        let dir = store.join("spool");
        std::fs::create_dir_all(&dir)?;
        Spool::of_dir(&dir, host)
    }

    fn requests(samples: &[u64]) -> Vec<Request> {
        samples.iter().map(|&samples| Request { samples, body: vec![0; 100] }).collect()
    }

    /// Check that requests come back oldest first, also after a restart, that another machine's are left alone, and
    /// that partial files of a crash are removed.
    #[test]
    fn requests_wait_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        assert_eq!(spool.add(20, &requests(&[3, 4]), OTLP, 1000), Added::default());
        assert_eq!(spool.add(10, &requests(&[5]), OTLP, 1000), Added::default());
        spool_in(dir.path(), "my-web-1").expect("a spool").add(5, &requests(&[9]), OTLP, 1000);
        let partial = dir.path().join("spool/0000000000000030-000-1-web-1.otlp.gz.partial");
        std::fs::write(&partial, "x").expect("written");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        assert!(!partial.exists());
        assert_eq!(spool.size(), Size { files: 3, bytes: 300 });
        let (first, body) = spool.take(OTLP).expect("a request");
        assert_eq!((first.samples, body.expect("its body").len()), (5, 100));
        spool.give_back(first.clone());
        assert_eq!(spool.take(OTLP).expect("a request").0, first);
        spool.remove(&first).expect("removed");
        let rest: Vec<u64> = std::iter::from_fn(|| spool.take(OTLP)).map(|(entry, _)| entry.samples).collect();
        assert_eq!(rest, [3, 4]);
        assert_eq!(std::fs::read_dir(dir.path().join("spool")).expect("a directory").count(), 3);
    }

    /// Check that a request that has failed often lets the others pass, and comes again.
    #[test]
    fn requests_that_fail_let_others_pass() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        spool.add(1, &requests(&[1, 2, 3]), OTLP, 1000);
        let mut taken = Vec::new();
        for _ in 0..3 * TRIES {
            let (mut entry, _) = spool.take(OTLP).expect("a request");
            taken.push(entry.samples);
            // The second one succeeds.
            if entry.samples != 2 {
                entry.failed += 1;
                spool.give_back(entry);
            }
        }
        let times = |samples, n: u32| std::iter::repeat_n(samples, n.try_into().expect("a number"));
        let expected = times(1, TRIES).chain([2]).chain(times(3, TRIES)).chain(times(1, TRIES - 1));
        assert_eq!(taken, expected.collect::<Vec<u64>>());
    }

    /// Check that the oldest are removed when there is no room, except the one being sent, and that all of them are
    /// counted.
    #[test]
    fn the_oldest_make_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        assert_eq!(spool.add(1, &requests(&[1, 2]), OTLP, 250), Added::default());
        let (first, _) = spool.take(OTLP).expect("a request");
        assert_eq!(spool.add(2, &requests(&[4]), OTLP, 250).removed, 2);
        assert_eq!(spool.add(3, &requests(&[8]), OTLP, 250).removed, 4);
        spool.give_back(first);
        assert_eq!(spool.size(), Size { files: 2, bytes: 200 });
        assert_eq!(spool.add(4, &requests(&[16]), OTLP, 250).removed, 1);
        let path = dir.path().join("spool");
        std::fs::remove_dir_all(&path).expect("removed");
        std::fs::write(&path, "in its place").expect("written");
        let added = spool.add(5, &requests(&[32]), OTLP, 250);
        assert!(added.not_written == 32 && added.error.expect("why").contains("spool"));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(spool.add(6, &requests(&[64]), OTLP, 1000), Added::default(), "the directory is made again");
    }

    /// Check that what was made for another protocol is not taken but counts, and makes room first if it is the oldest.
    #[test]
    fn another_protocol_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        assert_eq!(spool.add(1, &requests(&[1, 2]), Protocol::Pyroscope, 400), Added::default());
        assert!(spool.is_empty(OTLP) && spool.take(OTLP).is_none());
        assert_eq!(spool.add(2, &requests(&[4]), OTLP, 400), Added::default());
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        assert_eq!(spool.size(), Size { files: 3, bytes: 300 });
        assert_eq!(spool.left(Some(OTLP)), (Size { files: 2, bytes: 200 }, 3));
        assert_eq!(spool.left(None).1, 7);
        let (entry, _) = spool.take(OTLP).expect("a request");
        assert_eq!((entry.samples, spool.is_empty(OTLP)), (4, true));
        spool.give_back(entry);
        assert_eq!(spool.add(3, &requests(&[8, 16]), OTLP, 400).removed, 1);
        let rest: Vec<u64> = std::iter::from_fn(|| spool.take(OTLP)).map(|(entry, _)| entry.samples).collect();
        assert_eq!(rest, [4, 8, 16]);
        assert_eq!(spool.size(), Size { files: 4, bytes: 400 });
    }

    /// Check that what is too old is removed and counted, for any protocol, except the one being sent, and that of another
    /// machine while somebody writes for it.
    #[test]
    fn old_requests_expire() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        let keep = Duration::from_secs(100);
        spool_in(dir.path(), "my-web-1").expect("a spool").add(1, &requests(&[32]), OTLP, 400);
        let lock = File::create(dir.path().join("my-web-1.lock")).expect("a file");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let spool = spool_in(dir.path(), "web-1").expect("a spool");
        for (start_s, samples, protocol) in [(11, 1, OTLP), (12, 2, Protocol::S3), (10, 4, OTLP), (13, 8, OTLP)] {
            spool.add(start_s * 1_000_000, &requests(&[samples]), protocol, 400);
        }
        assert_eq!(spool.expire(at(110), keep), Expired::default());
        let (sent, _) = spool.take(OTLP).expect("a request");
        assert_eq!(sent.samples, 1);
        assert_eq!(spool.expire(at(113), keep), Expired { requests: 2, samples: 6, error: None });
        assert_eq!(spool.size(), Size { files: 2, bytes: 200 });
        spool.give_back(sent);
        assert_eq!(spool.expire(at(200), keep).samples, 9);
        let n_files = || std::fs::read_dir(dir.path().join("spool")).expect("a directory").count();
        assert_eq!((n_files(), spool.of_others().1), (1, 0));
        drop(lock);
        assert_eq!(spool.of_others().1, 32);
        assert_eq!(spool.expire(at(200), keep), Expired { requests: 1, samples: 32, error: None });
        assert_eq!((n_files(), spool.of_others().1), (0, 0));
    }
}
