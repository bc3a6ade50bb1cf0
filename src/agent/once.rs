//! Records one target into a store until it ends: `fpprof record --live`.

use super::analyst::Sent;
use super::config::{Protocol, StoreConfig};
use super::interval::{Counting, Interval, IntervalWriter, Options, Stored};
use super::metrics::Metrics;
use super::store::Store;
use crate::live;
use crate::tables::Table;
use anyhow::{Context as _, ensure};
use fpprof_collector::{Error, Outcome, Request, StopFlag, Update};
use fpprof_recording::model::Sampling;
use std::collections::BTreeMap;
use std::fs::{DirEntry, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A target that was recorded into a store.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) outcome: Outcome,
    /// Bytes written to the store.
    pub(crate) bytes: u64,
    /// CPU time of the recorder and of unwinding.
    pub(crate) cpu: Duration,
    /// Recorded samples that are not in the store, by cause.
    pub(crate) discarded: BTreeMap<&'static str, u64>,
}

/// Records into the store in this directory, in intervals of this length. Earlier intervals stay there.
///
/// # Errors
/// The outer error if there can be no store there; the inner one if nothing can be recorded.
pub(crate) fn record(
    request: &Request,
    directory: &Path,
    length: Duration,
    stop: &'static StopFlag,
    update: &mut (dyn FnMut(Update<'_>) + Send),
) -> anyhow::Result<Result<Recorded, Error>> {
    ensure!(
        is_store_or_empty(directory),
        "{}: not empty, and no store: pass a new directory with -o",
        directory.display()
    );
    let config = StoreConfig { path: directory.to_owned(), compact: false, ..StoreConfig::default() };
    let store = Store::open(&config, &fpprof_collector::host().name)
        .context("no store can be made; choose another directory with -o")?;
    let (sink, feed) = live::pair(None::<File>);
    let mut writer = IntervalWriter::new(Arc::new(Metrics::new()), Arc::default());
    let rate = match request.sampling {
        Sampling::FrequencyHz(rate) => Some(rate),
        Sampling::Period(_) => None,
    };
    let options =
        Options { store: &store, inlines: true, sent: Sent::Nothing, protocol: Protocol::default(), labels: &[] };
    let (mut bytes, mut cpu, mut discarded) = (0, Duration::ZERO, BTreeMap::new());
    let recorded = std::thread::scope(|scope| {
        let recorder = scope.spawn(move || fpprof_collector::record(request, sink, stop, update));
        let mut counting = Counting::new(Arc::clone(&request.parser), rate, &writer);
        let mut interval = Interval::begin(length);
        loop {
            let goes_on = feed.wait();
            if goes_on && Instant::now() < interval.ends && !feed.is_filling_up() {
                continue;
            }
            if let Some(part) = feed.take() {
                let ended = std::mem::replace(&mut interval, Interval::begin(length));
                if let Some(stored) = writer.store(part, &ended, &mut counting, options) {
                    bytes += stored.bytes as u64;
                    cpu += stored.cpu;
                    add(&mut discarded, stored);
                }
            }
            if !goes_on {
                break;
            }
        }
        recorder.join()
    });
    let recorded = recorded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if recorded.is_err() {
        store.remove_if_empty();
    }
    Ok(recorded.map(|outcome| Recorded { outcome, bytes, cpu, discarded }))
}

/// Whether a store may be made here: its tables do not belong among the files of somebody's home.
fn is_store_or_empty(directory: &Path) -> bool {
    // If it exists but cannot be read, opening the store fails and says why.
    let Ok(mut entries) = directory.read_dir() else { return true };
    let is_lock = |entry: &DirEntry| Path::new(&entry.file_name()).extension().is_some_and(|lock| lock == "lock");
    directory.join(Table::Stacks.name()).is_dir() || entries.all(|entry| entry.is_ok_and(|entry| is_lock(&entry)))
}

fn add(sums: &mut BTreeMap<&'static str, u64>, stored: Stored) {
    stored.discarded.into_iter().for_each(|(cause, samples)| *sums.entry(cause).or_default() += samples);
}

#[cfg(test)]
mod tests {
    use super::is_store_or_empty;
    use std::fs::{File, create_dir, remove_file};

    /// Check that a new or empty directory and a store are taken, and one with other files is not.
    #[test]
    fn directories_of_other_files_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(is_store_or_empty(&dir.path().join("new")) && is_store_or_empty(dir.path()));
        File::create(dir.path().join("web-1.lock")).expect("a file");
        assert!(is_store_or_empty(dir.path()));
        File::create(dir.path().join("letter")).expect("a file");
        assert!(!is_store_or_empty(dir.path()));
        create_dir(dir.path().join("stacks")).expect("a directory");
        assert!(is_store_or_empty(dir.path()));
        remove_file(dir.path().join("letter")).expect("removed");
        assert!(is_store_or_empty(dir.path()));
    }
}
