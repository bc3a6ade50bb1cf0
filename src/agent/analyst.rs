//! Unwinds and symbolises the samples of an interval; if this process is privileged, in a process of its own.
//!
//! The process receives files through its socket: a `Task` as JSON, then the interval's recording. It writes its answer
//! to its standard output, also a file: counts, the table of stacks, and the requests to a collector. Then it exits.
//! Tables are merged likewise: the files after the task are the tables, and the answer is one table.

use super::answer::{MergedHead, Output, UNEXPECTED, read_head, read_output, remove_smallest, write};
use super::attempts::{ATTEMPTS, FirstAttempt};
use super::compaction::Outcome;
use super::config::Protocol;
use super::labels::{self, LabelRule};
use super::stopping::Stopping;
use crate::debuginfod::{Background, Fetcher};
use crate::exit::print_failure;
use crate::live::Part;
use crate::worker::{self, Files, KernelNames, Modules, Owners, cpu_time, is_privileged};
use anyhow::{Context as _, bail, ensure};
use fpprof_analysis::modules::FileModules;
use fpprof_analysis::profile::{Grouping, Profiles};
use fpprof_analysis::symbols::Detail;
use fpprof_analysis::{Options, analyse};
use fpprof_collector::{BlockingCalls, return_freed_memory, unmap_code};
use fpprof_recording::Recording;
use fpprof_recording::model::Measure;
use fpprof_reports::parquet;
use fpprof_reports::profile::{otlp, pyroscope};
use fpprof_reports::store::merge;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::iter;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often it is seen that the agent is to end.
const LOOK: Duration = Duration::from_millis(100);
/// What an interval that is being analysed when the agent is to end leaves of the time for the last one, which has at least that.
const FOR_LAST: Duration = Duration::from_millis(800);
/// How long a killed process is waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The most killed processes that have not ended; with as many, no other is started.
const MOST_LATE: usize = 4;
/// The time limit for merging tables, which are the agent's own.
const MERGE_LIMIT: Duration = Duration::from_secs(30);
/// The most bytes the process may write (table and requests): hostile files may have taken it over.
pub(crate) const MAX_TABLE_BYTES: u64 = 256 << 20;
/// The most bytes of a request before compression: below the limits of the usual receivers; Pyroscope's is the lowest.
const MAX_REQUEST_BYTES: usize = 4_000_000;

/// What the process does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Task {
    Analyse {
        span: Span,
        /// The directory of fetched debug information.
        debug_files: Option<PathBuf>,
        owners: Owners,
    },
    /// Merges as many tables.
    Merge { tables: usize },
}

/// A merged table; empty if one of its sources cannot be read, with the reason.
struct Merged {
    table: Vec<u8>,
    damaged: Option<String>,
}

/// The time of an interval, and how to analyse it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start_unix_us: u64,
    pub(super) duration: Duration,
    /// Whether to show inlined functions.
    pub(super) inlines: bool,
    pub(super) sent: Sent,
    pub(super) protocol: Protocol,
    pub(super) labels: Vec<LabelRule>,
}

/// What of an interval becomes requests: the profiles of strategies, or its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Sent {
    Nothing,
    DefaultStrategy,
    AllStrategies,
    Tables,
}

/// Analyses one interval at a time.
#[derive(Debug)]
pub(super) struct Analyst {
    /// Fetches missing debug information for later intervals.
    pub(super) debuginfod: Option<Arc<Background>>,
    kernel_names: Arc<KernelNames>,
    /// Opens files: a file system that does not answer must not hold up more than an interval.
    calls: Arc<Mutex<BlockingCalls>>,
    /// CPU time of the processes that have ended, nanoseconds.
    cpu_ns: Arc<AtomicU64>,
    /// The messages of threads whose processes exceeded their time limits, were killed, and have not ended: they may be
    /// blocked in a read.
    late: Vec<Receiver<Message>>,
    first: FirstAttempt,
    stopping: Arc<Stopping>,
}

/// Messages of the thread that waits for a process.
enum Message {
    /// A pidfd of the process: a pid could be reused after it has ended.
    Started(OwnedFd),
    Done(anyhow::Result<File>),
}

impl Analyst {
    pub(super) fn new(stopping: Arc<Stopping>) -> Self {
        let calls = Arc::new(Mutex::new(BlockingCalls::in_background()));
        let (kernel_names, cpu_ns) = Default::default();
        Self {
            debuginfod: None,
            kernel_names,
            calls,
            cpu_ns,
            late: Vec::new(),
            first: FirstAttempt::default(),
            stopping,
        }
    }

    /// CPU time of the processes that have ended.
    pub(super) fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Unwinds and symbolises the samples of an interval; if that fails or takes too long, again with fewer files.
    ///
    /// # Errors
    /// If the process crashes or takes too long in all [`ATTEMPTS`], or [`MOST_LATE`] have not ended.
    pub(super) fn analyse(&mut self, part: Part, span: Span) -> anyhow::Result<Output> {
        let debug_files = self.debuginfod.as_ref().map(|debuginfod| debuginfod.cache().to_owned());
        if !is_privileged() {
            let modules = modules(debug_files).with_debuginfod(self.fetcher());
            return of_recording(Cursor::new(part.into_bytes()), &span, &modules);
        }
        let samples = part.samples;
        let mut recording = worker::memory_file("fpprof-interval")?;
        part.write(&mut recording)?;
        drop(part);
        let first = self.first.next();
        let mut attempts = ATTEMPTS.iter().enumerate().skip(first).peekable();
        while let Some((attempt, &(owners, limit, _))) = attempts.next() {
            let task = Task::Analyse { span: span.clone(), debug_files: debug_files.clone(), owners }.to_file()?;
            // A position of its own, and no right to write: the process of the attempt before may still run.
            let read_only = File::open(format!("/proc/self/fd/{}", recording.as_raw_fd()))?;
            let output = self.written(vec![task, read_only], limit).and_then(read_output);
            match (output, attempts.peek()) {
                (Err(error), Some((_, (_, _, what)))) if !self.stopping.is_ordered() => print_failure(&error, what),
                (output, _) => {
                    self.first.ended(first, attempt);
                    return output.map(|output| Output { owners, ..output.limited(samples) });
                }
            }
        }
        bail!("no attempt is left")
    }

    fn fetcher(&self) -> Option<Fetcher> {
        self.debuginfod.clone().map(Fetcher::Background)
    }

    /// Merges tables, in order; returns the bytes of one with the rows of all.
    ///
    /// # Errors
    /// [`Outcome::Damaged`] if one of them is, [`Outcome::Failed`] for those of [`Self::analyse`].
    pub(super) fn merge(&mut self, tables: Vec<File>) -> Result<Vec<u8>, (Outcome, anyhow::Error)> {
        let Merged { table, damaged } = self.merge_elsewhere(tables).map_err(|error| (Outcome::Failed, error))?;
        match damaged {
            None => Ok(table),
            Some(error) => Err((Outcome::Damaged, anyhow::Error::msg(error))),
        }
    }

    fn merge_elsewhere(&mut self, tables: Vec<File>) -> anyhow::Result<Merged> {
        if !is_privileged() {
            return merged(tables);
        }
        let task = Task::Merge { tables: tables.len() }.to_file()?;
        let output = self.written([task].into_iter().chain(tables).collect(), MERGE_LIMIT)?;
        let (MergedHead { damaged, table_bytes }, table) = read_head(output)?;
        ensure!(table_bytes == table.len(), UNEXPECTED);
        Ok(Merged { table, damaged })
    }

    /// Gives parts to a process without privileges; returns what it wrote.
    ///
    /// A thread talks to the process, so that a hung process cannot block the agent: after the limit the process is
    /// killed, and the task fails. So it is if the agent must end by then.
    fn written(&mut self, parts: Vec<File>, limit: Duration) -> anyhow::Result<File> {
        self.late.retain(|late| !ends(late, Duration::ZERO));
        ensure!(self.late.len() < MOST_LATE, "{MOST_LATE} processes that unwind were killed and have not ended");
        let (sender, receiver) = channel();
        let cpu_ns = Arc::clone(&self.cpu_ns);
        let kernel_names = Some(Arc::clone(&self.kernel_names));
        let calls = Some(Arc::clone(&self.calls));
        let files = Files { kernel_names, calls, debuginfod: self.fetcher(), ..Files::default() };
        std::thread::Builder::new().name("fpprof-analyst".to_owned()).spawn(move || {
            let done = in_process(parts, &files, &sender, &cpu_ns);
            // After the time limit nobody receives it.
            let _ = sender.send(Message::Done(done));
        })?;
        let mut process = None;
        let time = TimeLimit::new(limit, &self.stopping);
        loop {
            match receiver.recv_timeout(time.left(Instant::now()).min(LOOK)) {
                Ok(Message::Started(started)) => process = Some(started),
                Ok(Message::Done(done)) => return done,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that waits for the process has ended"),
                Err(RecvTimeoutError::Timeout) if !time.left(Instant::now()).is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    process.iter().for_each(kill);
                    ensure!(!self.stopping.is_ordered(), "the agent ends, and the process that unwinds has not");
                    if !ends(&receiver, ENDS_WITHIN) {
                        self.late.push(receiver);
                    }
                    bail!("the process that unwinds took more than {} s", limit.as_secs());
                }
            }
        }
    }
}

/// How long a process may take.
struct TimeLimit<'a> {
    begun: Instant,
    limit: Duration,
    stopping: &'a Stopping,
    /// Whether the agent was to end already, so that no other interval follows.
    is_last: bool,
}

impl<'a> TimeLimit<'a> {
    fn new(limit: Duration, stopping: &'a Stopping) -> Self {
        Self { begun: Instant::now(), limit, stopping, is_last: stopping.is_ordered() }
    }

    fn left(&self, now: Instant) -> Duration {
        let spent = now.saturating_duration_since(self.begun);
        let left = self.limit.saturating_sub(spent);
        match self.stopping.left(now) {
            None => left,
            // The recorder may have needed all the time: the samples are worth some more.
            Some(until_end) if self.is_last => left.min(until_end.max(FOR_LAST.saturating_sub(spent))),
            Some(until_end) => left.min(until_end.saturating_sub(FOR_LAST)),
        }
    }
}

impl Task {
    fn to_file(&self) -> anyhow::Result<File> {
        let mut file = worker::memory_file("fpprof-task")?;
        serde_json::to_writer(&mut file, self)?;
        file.rewind()?;
        Ok(file)
    }
}

/// Waits at most `within` for the end of a process that exceeded its time limit; kills it if it has only now started.
fn ends(messages: &Receiver<Message>, within: Duration) -> bool {
    loop {
        match messages.recv_timeout(within) {
            Ok(Message::Started(process)) => kill(&process),
            // A thread that panicked has dropped its sender.
            Ok(Message::Done(_)) | Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn kill(process: &OwnedFd) {
    // Fails if it has just ended.
    let _ = pidfd_send_signal(process, Signal::KILL);
}

/// Gives parts to a process without privileges, and waits for its exit.
fn in_process(parts: Vec<File>, files: &Files, sender: &Sender<Message>, cpu_ns: &AtomicU64) -> anyhow::Result<File> {
    let output = worker::memory_file("fpprof-table")?;
    let stdout = output.try_clone().context("handing over a file")?;
    let (mut child, socket) = worker::start(["agent".into()], |command| {
        // Signals from the terminal must reach only the agent.
        command.process_group(0).stdout(Stdio::from(stdout)).stderr(Stdio::null());
    })?;
    // Without a pidfd, a process that takes too long cannot be killed.
    if let Ok(process) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        let _ = sender.send(Message::Started(process));
    }
    let mut parts = parts.into_iter().map(|part| (part, 0));
    let served = worker::serve(&socket, files, &mut || parts.next());
    drop(socket);
    // Its CPU time can be read until it is waited for.
    let _ = waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    cpu_ns.fetch_add(u64::try_from(cpu_time(child.id()).as_nanos()).unwrap_or(0), Ordering::Relaxed);
    let status = child.wait().context("waiting for the process that unwinds")?;
    served.context("answering the process that unwinds")?;
    ensure!(status.success(), "the process that unwinds ended with {status}");
    Ok(output)
}

/// The main function of the process that analyses an interval or merges tables.
///
/// # Errors
/// If something cannot be read or analysed.
pub(crate) fn run() -> anyhow::Result<u8> {
    let client = worker::client().context("no connection to the process that opens files")?;
    let (task, _) = client.part()?.context("no task")?;
    let (span, modules) = match serde_json::from_reader(BufReader::new(task))? {
        Task::Analyse { span, debug_files, owners } => (span, modules(debug_files).with_owners(owners)),
        Task::Merge { tables: n } => {
            let tables = iter::from_fn(|| client.part().transpose()).map(|part| Ok(part?.0));
            let tables = tables.collect::<anyhow::Result<Vec<_>>>()?;
            ensure!(tables.len() == n, "{} tables instead of {n}", tables.len());
            let Merged { table, damaged } = merged(tables)?;
            write(&mut io::stdout().lock(), &MergedHead { damaged, table_bytes: table.len() }, &[&table])?;
            return Ok(crate::exit::DONE);
        }
    };
    let (recording, _) = client.part()?.context("no interval")?;
    let output = of_recording(BufReader::new(recording), &span, &modules)?;
    output.write(&mut io::stdout().lock())?;
    Ok(crate::exit::DONE)
}

/// # Errors
/// If the table cannot be written, but not if one cannot be read.
fn merged(tables: Vec<File>) -> anyhow::Result<Merged> {
    let mut table = Vec::new();
    // The `parquet` crate panics on some damaged files.
    let damaged = match catch_unwind(AssertUnwindSafe(|| merge(tables, &mut table))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) if error.table.is_some() => Some(error.to_string()),
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => Some("the reader of tables has panicked".to_owned()),
    };
    if damaged.is_some() {
        table.clear();
    }
    Ok(Merged { table, damaged })
}

/// The modules of this machine, with fetched debug information.
fn modules(debug_files: Option<PathBuf>) -> Modules {
    let files = FileModules::new();
    Modules::new(match debug_files {
        Some(dir) => files.with_debuginfod_cache(dir),
        None => files,
    })
}

/// Analyses a recording. Waits are analysed separately: they are never summed with CPU samples.
fn of_recording(file: impl Read + Seek + Send, span: &Span, modules: &Modules) -> anyhow::Result<Output> {
    let mut recording = Recording::open(file)?;
    let waits = recording.meta().events.iter().find(|event| matches!(event.measure, Measure::Blocked { .. }));
    let waits = waits.map(|event| event.name.clone());
    let (mut output, mut profiles) = (Output::default(), Vec::new());
    for event in iter::once(None).chain(waits.map(Some)) {
        // One thread: leave the other CPUs to the profiled programs.
        let options = Options {
            event,
            n_threads: NonZeroUsize::MIN,
            profiles: Profiles::OfEach(Grouping::Summed),
            detail: if span.inlines { Detail::Inlines } else { Detail::Symbols },
            ..Options::new(modules)
        };
        let analysis = analyse(&mut recording, &options)?;
        output.analysed.add(&analysis);
        for (n, mut profile) in analysis.profiles.into_iter().enumerate() {
            let left_out = labels::add(&span.labels, &mut profile)?;
            if n == 0 {
                output.analysed.add_left_out(left_out);
            }
            profile.recorded.start_unix_ns = span.start_unix_us.saturating_mul(1000);
            profile.duration = span.duration;
            let is_sent = match span.sent {
                Sent::Nothing | Sent::Tables => false,
                Sent::DefaultStrategy => profile.strategy == analysis.default_strategy,
                Sent::AllStrategies => true,
            };
            if is_sent {
                output.requests.extend(match span.protocol {
                    Protocol::Otlp => otlp::requests(&profile, MAX_REQUEST_BYTES)?,
                    Protocol::Pyroscope => pyroscope::requests(&profile, MAX_REQUEST_BYTES)?,
                    // A bucket gets the table.
                    Protocol::S3 => Vec::new(),
                });
            }
            profiles.push(profile);
        }
    }
    output.analysed.not_sent = remove_smallest(&mut output.requests);
    // Writing needs other code and memory than unwinding did.
    drop(recording);
    unmap_code();
    return_freed_memory();
    parquet::stacks::write(&profiles, &mut output.table)?;
    Ok(output)
}
