//! Merging of the store's files: of an hour that is over, one remains. Files, not bytes, make queries slow.
//!
//! ```text
//! STORE/stacks/day=2026-11-26/                            the files of a day
//! STORE/compacting/host=HOST/stacks/day=2026-11-26/       what will be there: one file of an hour, links to the others
//! ```
//!
//! When it is complete, the two directories are exchanged, which the kernel does at once. So whoever lists a day finds
//! the files before or those after; whoever has listed those before does not find them any more and can begin anew, but
//! never counts a sample twice or misses one. What was replaced stays for [`GRACE`], so that a listing under way is
//! complete. A crash leaves a directory beside the store's tables, which the next agent removes.
//!
//! A day in which other machines write, too, is left as it is.
//!
//! # Sources
//! renameat2(2) on `RENAME_EXCHANGE`.

use super::store::{Store, is_written_by, make_dir, own_dir, sync_dir, write_new};
use crate::tables::{HOUR_US, Table, file_of_range, range_of};
use anyhow::Context as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use walkdir::WalkDir;

/// The directory for all machines, below the store.
const BESIDE: &str = "compacting";
/// How long a replaced directory stays, for readers that are listing it.
const GRACE: Duration = Duration::from_secs(60);
/// How long an hour is left alone after its merge has failed once; twice as long after each further failure. Other hours are
/// merged meanwhile.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// The most bytes of files that are merged into one: a reader may take all of it at once.
const MAX_BYTES: u64 = 16 << 20;
/// The most files that are merged into one at a time: all of them are open then.
const MAX_FILES: usize = 256;

/// What is merged, and what was.
#[derive(Debug)]
pub(super) struct Compaction {
    store: PathBuf,
    host: String,
    /// Days and hours that are not looked at again before the next start.
    given_up: BTreeSet<PathBuf>,
    /// Hours whose merge failed: when it is tried again, and the length of this pause.
    failed: BTreeMap<PathBuf, (Instant, Duration)>,
    /// Directories that were replaced, or left by a crash.
    replaced: Vec<Replaced>,
    is_refused: bool,
}

/// A directory that is to be removed.
#[derive(Debug)]
struct Replaced {
    /// The machine that made it: this one, or one for which nobody writes, such as this one before it was renamed.
    host: String,
    /// Path of the day below the store.
    day: PathBuf,
    since: Instant,
}

/// Merges open files.
pub(super) trait Merge: FnOnce(Vec<File>) -> Result<Vec<u8>, (Outcome, anyhow::Error)> {}

impl<F: FnOnce(Vec<File>) -> Result<Vec<u8>, (Outcome, anyhow::Error)>> Merge for F {}

/// What became of an hour, or of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Merged,
    /// A file of the hour cannot be read: its files stay.
    Damaged,
    /// The directory of the day has files of other machines, or other files: they stay.
    Shared,
    /// The file system cannot exchange directories or link files: nothing is merged before the next start.
    Refused,
    /// It is tried again.
    Failed,
}

/// An own file of a day.
#[derive(Debug, Clone)]
struct Own {
    name: String,
    /// First and last start of its intervals, microseconds since 1970.
    range: [i64; 2],
    bytes: u64,
    modified: SystemTime,
}

/// Files that become one.
#[derive(Debug)]
struct Job {
    /// Path of the day below the store.
    day: PathBuf,
    hour: PathBuf,
    sources: Vec<Own>,
    others: Vec<Own>,
    merged: String,
}

impl Outcome {
    pub(super) const ALL: [Self; 5] = [Self::Merged, Self::Damaged, Self::Shared, Self::Refused, Self::Failed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Merged => "merged",
            Self::Damaged => "damaged",
            Self::Shared => "shared",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Job {
    /// The names of all files of the day.
    fn names(&self) -> BTreeSet<String> {
        self.sources.iter().chain(&self.others).map(|file| file.name.clone()).collect()
    }
}

impl Compaction {
    /// Takes over what a previous agent left.
    pub(super) fn new(store: &Store) -> Self {
        let (path, host) = (store.path().to_owned(), store.host().to_owned());
        let all = path.join(BESIDE);
        let left = WalkDir::new(&all).min_depth(3).max_depth(3).into_iter().flatten().filter_map(|entry| {
            let mut below = entry.path().strip_prefix(&all).ok()?.components();
            let its = below.next()?.as_os_str().to_str()?.strip_prefix("host=")?;
            let is_left = its == host || !is_written_by(&path, its);
            let day = below.as_path().to_owned();
            is_left.then(|| Replaced { host: its.to_owned(), day, since: Instant::now() })
        });
        let replaced = left.collect();
        Self { store: path, host, given_up: BTreeSet::new(), failed: BTreeMap::new(), replaced, is_refused: false }
    }

    /// Removes what was replaced [`GRACE`] ago.
    ///
    /// # Errors
    /// The first of what cannot be removed; all of that is tried again with the next call.
    pub(super) fn clean(&mut self, now: Instant) -> anyhow::Result<()> {
        let is_over = |replaced: &mut Replaced| now.saturating_duration_since(replaced.since) >= GRACE;
        let mut failed = None;
        for replaced in self.replaced.extract_if(.., is_over).collect::<Vec<_>>() {
            let Replaced { host, day, .. } = &replaced;
            if *host != self.host && is_written_by(&self.store, host) {
                // It has begun meanwhile, and removes this itself.
                continue;
            }
            let path = beside(&self.store, host).join(day);
            let given_back = self.give_back(&path, &self.store.join(day), |name| is_of(name, host));
            let removed = given_back.and_then(|()| std::fs::remove_dir_all(&path));
            // Somebody else may have removed it.
            if let Some(error) = removed.err().filter(|error| error.kind() != io::ErrorKind::NotFound) {
                failed.get_or_insert(anyhow::Error::new(error).context(path.display().to_string()));
                self.replaced.push(replaced);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Merges the files of one hour of a table, the latest that ended by this time and has several. `merge` reads open
    /// files in order and returns the bytes of one with their rows, or why it cannot.
    ///
    /// Nothing else may write own files to the store meanwhile.
    pub(super) fn step(
        &mut self,
        until_us: i64,
        now: Instant,
        merge: impl Merge,
    ) -> Vec<(Outcome, Option<anyhow::Error>)> {
        let mut outcomes = Vec::new();
        if self.is_refused {
            return outcomes;
        }
        match self.job(until_us, now, &mut outcomes) {
            Ok(None) => {}
            Ok(Some(job)) => outcomes.push(match self.run(&job, now, merge) {
                Ok(()) => {
                    self.failed.remove(&job.hour);
                    (Outcome::Merged, None)
                }
                Err((outcome, error)) => {
                    self.is_refused |= outcome == Outcome::Refused;
                    if outcome == Outcome::Damaged {
                        self.given_up.insert(job.hour.clone());
                    } else {
                        let last = self.failed.get(&job.hour).map(|&(_, pause)| pause);
                        let pause = last.map_or(FIRST_PAUSE, |last| (2 * last).min(MAX_PAUSE));
                        self.failed.insert(job.hour.clone(), (now + pause, pause));
                    }
                    (outcome, Some(error.context(job.hour.display().to_string())))
                }
            }),
            Err(error) => outcomes.push((Outcome::Failed, Some(error))),
        }
        outcomes
    }

    fn job(
        &mut self,
        until_us: i64,
        now: Instant,
        outcomes: &mut Vec<(Outcome, Option<anyhow::Error>)>,
    ) -> anyhow::Result<Option<Job>> {
        for table in [Table::Stacks, Table::Counters] {
            let days = WalkDir::new(self.store.join(table.name())).min_depth(1).max_depth(1).sort_by_file_name();
            let days: Vec<_> = days.into_iter().flatten().filter(|entry| entry.file_type().is_dir()).collect();
            for entry in days.iter().rev() {
                let day = Path::new(table.name()).join(entry.file_name());
                let is_busy = self.beside(&day).exists();
                if is_busy || self.given_up.contains(&day) {
                    continue;
                }
                match self.listed(&day) {
                    Ok(Some(files)) => {
                        let job = self.job_of(&day, files, until_us, now)?;
                        if job.is_some() {
                            return Ok(job);
                        }
                    }
                    Ok(None) => {
                        self.given_up.insert(day);
                        outcomes.push((Outcome::Shared, None));
                    }
                    // Retention has removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(anyhow::Error::new(error).context(day.display().to_string())),
                }
            }
        }
        Ok(None)
    }

    fn job_of(&self, day: &Path, files: Vec<Own>, until_us: i64, now: Instant) -> anyhow::Result<Option<Job>> {
        let waits = |hour: &Path| self.failed.get(hour).is_some_and(|&(again, _)| now < again);
        let mut hours: BTreeMap<i64, Vec<Own>> = BTreeMap::new();
        for file in &files {
            hours.entry(file.range[0].div_euclid(HOUR_US)).or_default().push(file.clone());
        }
        for (number, own) in hours.into_iter().rev() {
            let hour = day.join(number.to_string());
            if (number + 1).saturating_mul(HOUR_US) > until_us || self.given_up.contains(&hour) || waits(&hour) {
                continue;
            }
            let Some(sources) = run_of(own) else { continue };
            let is_source = |file: &Own| sources.iter().any(|source| source.name == file.name);
            let others: Vec<Own> = files.iter().filter(|file| !is_source(file)).cloned().collect();
            let (first, last) = sources
                .iter()
                .fold((i64::MAX, i64::MIN), |(first, last), file| (first.min(file.range[0]), last.max(file.range[1])));
            // A name that no file had, or one who listed the files before could count its rows twice.
            let names = (last..).map(|last| file_of_range([first, last], &self.host));
            let mut new =
                names.filter(|name| !name.as_ref().is_ok_and(|name| files.iter().any(|file| file.name == *name)));
            let merged = new.next().context("no name")??;
            return Ok(Some(Job { day: day.to_owned(), hour, sources, others, merged }));
        }
        Ok(None)
    }

    /// The own files of a day in order of time; `None` if there is anything else.
    fn listed(&self, day: &Path) -> io::Result<Option<Vec<Own>>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.store.join(day))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name().into_string().ok().filter(|name| is_of(name, &self.host));
            let (Some(name), Some(range), true) = (name, range_of(&entry.path()), metadata.is_file()) else {
                return Ok(None);
            };
            files.push(Own { name, range, bytes: metadata.len(), modified: metadata.modified()? });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Some(files))
    }

    fn run(&mut self, job: &Job, now: Instant, merge: impl Merge) -> Result<(), (Outcome, anyhow::Error)> {
        let begun = Instant::now();
        let failed = |error: io::Error| (Outcome::Failed, anyhow::Error::new(error));
        let day = self.store.join(&job.day);
        let files = job.sources.iter().map(|file| File::open(day.join(&file.name))).collect::<Result<_, _>>();
        let merged = merge(files.map_err(failed)?)?;
        let built = self.beside(&job.day);
        own_dir(&beside(&self.store, &self.host)).map_err(|error| (Outcome::Failed, error))?;
        let exchanged = self.build(job, &built, &merged).and_then(|()| self.exchange(job, &built));
        if let Err(error) = exchanged {
            // If it cannot be removed now, it is with the next start.
            let _ = std::fs::remove_dir_all(&built);
            let outcome = if is_refusal(&error) { Outcome::Refused } else { Outcome::Failed };
            return Err((outcome, error.into()));
        }
        // From here on it has what was in the day before.
        let (host, day) = (self.host.clone(), job.day.clone());
        self.replaced.push(Replaced { host, day, since: now + begun.elapsed() });
        self.settle(job, &built).map_err(failed)
    }

    /// Builds the directory that will be that of the day.
    fn build(&self, job: &Job, built: &Path, merged: &[u8]) -> io::Result<()> {
        make_dir(built)?;
        for file in &job.others {
            std::fs::hard_link(self.store.join(&job.day).join(&file.name), built.join(&file.name))?;
        }
        let path = built.join(&job.merged);
        write_new(&path, merged)?;
        // By which retention judges its age.
        let modified = job.sources.iter().map(|file| file.modified).max().unwrap_or(SystemTime::UNIX_EPOCH);
        File::options().write(true).open(&path)?.set_modified(modified)?;
        sync_dir(built)
    }

    /// Exchanges it for the day, unless files have come or gone meanwhile.
    fn exchange(&self, job: &Job, built: &Path) -> io::Result<()> {
        let names = self.listed(&job.day)?.map(|files| files.into_iter().map(|file| file.name).collect());
        if names.as_ref() != Some(&job.names()) {
            return Err(io::Error::other("its files have changed meanwhile"));
        }
        Ok(renameat_with(CWD, built, CWD, self.store.join(&job.day), RenameFlags::EXCHANGE)?)
    }

    /// Makes an exchange durable, and puts back what came between the last look and the exchange.
    fn settle(&self, job: &Job, built: &Path) -> io::Result<()> {
        let day = self.store.join(&job.day);
        for parent in [day.parent(), built.parent()].into_iter().flatten() {
            sync_dir(parent)?;
        }
        let known = job.names();
        self.give_back(built, &day, |name| known.contains(name))
    }

    /// Puts back what another machine has written to a replaced directory.
    fn give_back(&self, replaced: &Path, day: &Path, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(replaced)? {
            let name = entry?.file_name();
            if name.to_str().is_none_or(|name| !is_known(name)) {
                make_dir(day)?;
                renameat_with(CWD, replaced.join(&name), CWD, day.join(&name), RenameFlags::NOREPLACE)?;
            }
        }
        Ok(())
    }

    fn beside(&self, day: &Path) -> PathBuf {
        beside(&self.store, &self.host).join(day)
    }
}

/// The directory for what a machine builds and has replaced. It is not below those of the tables, since some engines list
/// hidden directories, too.
fn beside(store: &Path, host: &str) -> PathBuf {
    store.join(BESIDE).join(format!("host={host}"))
}

/// Whether a table is of this machine.
fn is_of(name: &str, host: &str) -> bool {
    name.split_once('-').and_then(|(_, rest)| rest.strip_suffix(".parquet")) == Some(host)
}

/// The first files, in order of time, that can be merged: at least two, of at most [`MAX_FILES`] and [`MAX_BYTES`].
fn run_of(files: Vec<Own>) -> Option<Vec<Own>> {
    let (mut run, mut bytes): (Vec<Own>, u64) = (Vec::new(), 0);
    for file in files {
        if run.len() == MAX_FILES || bytes.saturating_add(file.bytes) > MAX_BYTES {
            if run.len() > 1 {
                break;
            }
            run.clear();
            bytes = 0;
        }
        bytes = bytes.saturating_add(file.bytes);
        run.push(file);
    }
    (run.len() > 1).then_some(run)
}

/// Whether the file system cannot do it, now or later.
fn is_refusal(error: &io::Error) -> bool {
    use nix::libc::{EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EXDEV};
    error.raw_os_error().is_some_and(|code| [EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EPERM].contains(&code))
}

#[cfg(test)]
mod tests;
