//! Audits files on all cores: first reads the headers of all, then the code of ELF files, largest first.

use super::packages::Packages;
use super::root::{Root, open_regular};
use super::walk::Files;
use crate::output::draw;
use anyhow::Context as _;
use fpprof_analysis::audit::{AuditOptions, FileAudit, Refusal, Survey, examine};
use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between updates of the progress line.
const PROGRESS: Duration = Duration::from_millis(100);

/// The classification of a file by its first bytes.
#[derive(Debug)]
enum Look {
    Elf(Candidate),
    Archive,
    Other,
    Unreadable(io::Error),
}

/// An ELF file and its identity.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    identity: (u64, u64),
    len: u64,
}

/// Audits the files.
///
/// # Errors
/// If a thread cannot be started.
pub(super) fn survey(
    root: &Root,
    packages: &Packages,
    files: Files,
    options: AuditOptions,
    jobs: usize,
    quiet: bool,
) -> anyhow::Result<Survey> {
    let mut survey = Survey { looked_at: files.paths.len() as u64, ..Survey::default() };
    files.unreadable.into_iter().for_each(|what| survey.unreadable(what));
    let mut candidates = Vec::new();
    let mut progress = Progress::new("files", files.paths.len(), quiet);
    in_parallel(
        &files.paths,
        jobs,
        |path| look(path),
        |path, look| {
            progress.step();
            match look {
                Look::Elf(candidate) => candidates.push(candidate),
                Look::Archive => survey.archives += 1,
                Look::Other => {}
                Look::Unreadable(error) => survey.unreadable(format!("{}: {error}", root.show(path).display())),
            }
        },
    )?;
    progress.end();
    // The first path in sort order names a file, whichever thread saw it first.
    candidates.sort_by(|a, b| a.path.cmp(&b.path));
    let mut seen = HashSet::new();
    let n_names = candidates.len();
    candidates.retain(|candidate| seen.insert(candidate.identity));
    survey.other_names = (n_names - candidates.len()) as u64;
    candidates.sort_by(|a, b| b.len.cmp(&a.len).then_with(|| a.path.cmp(&b.path)));
    let mut progress = Progress::new("ELF files", candidates.len(), quiet);
    in_parallel(
        &candidates,
        jobs,
        |candidate| audit(candidate, options),
        |candidate, outcome| {
            progress.step();
            let shown = root.show(&candidate.path);
            match outcome {
                Ok(Ok(audit)) => {
                    let package = packages.owner(root, &shown).map(str::to_owned);
                    survey.add(shown.display().to_string(), package, audit);
                }
                Ok(Err(refusal)) => survey.refuse(&shown.display().to_string(), refusal),
                Err(error) => survey.unreadable(format!("{}: {error}", shown.display())),
            }
        },
    )?;
    progress.end();
    survey.finish();
    Ok(survey)
}

fn look(path: &Path) -> Look {
    let look = || {
        let mut file = open_regular(path)?;
        let mut magic = [0; 8];
        let n = file.read(&mut magic)?;
        Ok(match magic.get(..n).unwrap_or_default() {
            [0x7f, b'E', b'L', b'F', ..] => {
                let meta = file.metadata()?;
                let identity = (meta.dev(), meta.ino());
                Look::Elf(Candidate { path: path.to_owned(), identity, len: meta.len() })
            }
            b"!<arch>\n" => Look::Archive,
            _ => Look::Other,
        })
    };
    look().unwrap_or_else(Look::Unreadable)
}

fn audit(candidate: &Candidate, options: AuditOptions) -> io::Result<Result<FileAudit, Refusal>> {
    let file = open_regular(&candidate.path)?;
    Ok(examine(file, options))
}

/// Runs `work` for every item on several threads, and passes the results to `take` on this thread.
fn in_parallel<T: Sync, U: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> U + Sync,
    mut take: impl FnMut(&T, U),
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    // The bounded queue limits memory, whatever the number of files.
    let (sender, receiver) = mpsc::sync_channel(jobs.saturating_mul(4));
    thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            let run = move || {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    if sender.send((index, work(item))).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name("audit".to_owned()).spawn_scoped(scope, run).context("starting a thread")?;
        }
        drop(sender);
        for (index, result) in receiver {
            if let Some(item) = items.get(index) {
                take(item, result);
            }
        }
        Ok(())
    })
}

/// A progress line on a terminal.
struct Progress {
    what: &'static str,
    n: usize,
    done: usize,
    last: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    fn new(what: &'static str, n: usize, quiet: bool) -> Self {
        let last = (!quiet && io::stderr().is_terminal()).then(Instant::now);
        Self { what, n, done: 0, last, is_shown: false }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.last.is_some_and(|last| last.elapsed() >= PROGRESS) {
            self.last = Some(Instant::now());
            self.is_shown = true;
            draw(&format!("\raudit: {} of {} {}\x1b[K", self.done, self.n, self.what));
        }
    }

    fn end(&mut self) {
        if self.is_shown {
            draw("\r\x1b[K");
        }
    }
}
