//! Parses the profiled programs' files for the recorder.
//!
//! The recorder opens such a file and passes it with the task to a process without privileges: one for build ids, on
//! which the thread that reads the rings waits, one for the rules of walks in the kernel, in modes that need them, and
//! one for all slower tasks. A process that crashes or takes too long is replaced, as often as [`Patience`] permits;
//! its file is left out, and the recording says so. Those that an agent has not needed for a while end, and are started
//! again when they are.

use super::confine::limit;
use super::message::{receive, send};
use super::process::{cpu_time, start};
use super::{confine, is_privileged};
use anyhow::{Context as _, ensure};
use fpprof_analysis::modules::RuleFiles;
use fpprof_collector::parse::{
    Credit, FileParser, Found, MAX_PARSED_BYTES, ParseTask, ParsedFile, RuleRange, parse as parse_plain,
};
use fpprof_collector::{return_freed_memory, unmap_code};
use fpprof_recording::model::CaptureMode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};
use rustix::process::Resource;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long the recorder waits for a build id, without reading the rings. Files on a network may be slow.
const BUILD_ID_LIMIT: Duration = Duration::from_secs(1);
/// How long the thread that makes rules waits for them.
const RULES_LIMIT: Duration = Duration::from_secs(5);
/// How long it waits for all other results.
const CONTENTS_LIMIT: Duration = Duration::from_secs(10);
/// A failure costs one second of the budget for a user's files: this many at once, and one per this many seconds.
const FAILURE_NS: u64 = 1_000_000_000;
const FAILURES_OF_USER: u64 = 4;
const SECONDS_A_FAILURE_OF_USER: u64 = 30;
/// The budget of all users together, which limits how often the processes are restarted.
const FAILURES: u64 = 16;
const SECONDS_A_FAILURE: u64 = 4;
/// CPU time for parsing the files of one user: so much at once, and then one part in [`TIME_PART`] of the time.
const TIME_AT_ONCE_NS: u64 = 30_000_000_000;
const TIME_PART: u64 = 10;
/// How long a process without a task may stay: each takes some MB, and starting it some ms.
const IDLE: Duration = Duration::from_secs(1);
/// A process that has waited so long for a task gives back what memory it can.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Maximum memory of a process: a file, the results, and the program itself.
const MAX_MEMORY_BYTES: u64 = 512 << 20;
/// Maximum number of open files: three, and the one being parsed.
const MAX_OPEN_FILES: u64 = 16;

/// Creates the parser of this process: if it has privileges, with separate processes without any, which end with the
/// calling thread.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn parser(mode: CaptureMode) -> anyhow::Result<Arc<dyn FileParser>> {
    if !is_privileged() {
        return Ok(Arc::new(UnconfinedParser::default()));
    }
    Ok(Arc::new(ConfinedParser {
        build_ids: Slot::start(BUILD_ID_LIMIT)?,
        contents: Slot::start(CONTENTS_LIMIT)?,
        rules: matches!(mode, CaptureMode::Cfi { .. }).then(|| Slot::start(RULES_LIMIT)).transpose()?,
        patience: Mutex::new(Patience::default()),
        n_failed: AtomicU64::new(0),
        n_left_out: AtomicU64::new(0),
        ended_ns: AtomicU64::new(0),
    }))
}

/// Parses in processes without privileges.
#[derive(Debug)]
struct ConfinedParser {
    build_ids: Slot,
    contents: Slot,
    rules: Option<Slot>,
    patience: Mutex<Patience>,
    n_failed: AtomicU64,
    n_left_out: AtomicU64,
    /// Total CPU time of ended processes.
    ended_ns: AtomicU64,
}

/// A process that is replaced when it fails.
#[derive(Debug)]
struct Slot {
    running: Mutex<Option<Process>>,
    limit: Duration,
    /// When a file was last parsed, nanoseconds as of [`now_ns`].
    used_ns: AtomicU64,
    /// The pid and the socket of the process. Outside the lock of `running`, which is held while a file is parsed.
    current: Mutex<Option<(u32, Arc<OwnedFd>)>>,
    /// Nothing is to be parsed any more.
    is_over: AtomicBool,
}

/// What parsing a file gave.
struct Outcome {
    parsed: Option<ParsedFile>,
    /// CPU time that it took.
    took: Duration,
    /// Total CPU time of the process, if it had to be ended.
    ended: Duration,
}

/// Limits the retries for files that make the processes fail, and the time for each user's files, so that one user's files
/// cannot use up what is there for others.
#[derive(Debug)]
pub(super) struct Patience {
    of_user: Credit,
    of_all: Credit,
    time: Credit,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            of_user: Credit::new(FAILURES_OF_USER * FAILURE_NS, SECONDS_A_FAILURE_OF_USER),
            of_all: Credit::new(FAILURES * FAILURE_NS, SECONDS_A_FAILURE),
            time: Credit::new(TIME_AT_ONCE_NS, TIME_PART),
        }
    }
}

impl Patience {
    /// Whether a file of this user may be parsed.
    pub(super) fn allows(&mut self, user: u32, now_ns: u64) -> bool {
        self.of_user.forget(now_ns);
        self.time.forget(now_ns);
        self.of_user.has(user, now_ns) && self.of_all.has(ALL, now_ns) && self.time.has(user, now_ns)
    }

    /// Charges the CPU time that a file of this user took.
    pub(super) fn took(&mut self, user: u32, now_ns: u64, time: Duration) {
        self.time.spend(user, now_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records that a process failed on a file of this user.
    pub(super) fn failed(&mut self, user: u32, now_ns: u64) {
        self.of_user.spend(user, now_ns, FAILURE_NS);
        self.of_all.spend(ALL, now_ns, FAILURE_NS);
    }
}

/// The user id for the budget of all users.
const ALL: u32 = 0;

/// Nanoseconds since the first call.
fn now_ns() -> u64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Processes that were killed and had not ended when they were last looked at.
static KILLED: Mutex<Vec<Child>> = Mutex::new(Vec::new());
/// The most of them; with as many, no other is started.
const MOST_KILLED: usize = 8;

/// Waits for those that have ended by now; returns the others.
fn killed() -> MutexGuard<'static, Vec<Child>> {
    let mut killed = KILLED.lock().unwrap_or_else(PoisonError::into_inner);
    killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    killed
}

/// A process that is killed on drop; `None` only then.
#[derive(Debug)]
struct Running(Option<Child>);

impl Running {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Running {
    /// Kills the process and waits briefly for its end: it may be blocked in a read from a network.
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let _ = child.kill();
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        killed().push(child);
    }
}

#[derive(Debug)]
struct Process {
    child: Running,
    socket: Arc<OwnedFd>,
    /// The memory for the results of parsing, which both processes have open.
    results: File,
}

impl FileParser for ConfinedParser {
    fn parse(&self, file: &File, user: u32, task: ParseTask) -> Option<ParsedFile> {
        let slot = match (&task, &self.rules) {
            (ParseTask::BuildId, _) => &self.build_ids,
            (ParseTask::Rules { .. }, Some(rules)) => rules,
            _ => &self.contents,
        };
        let patience = || self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        if !patience().allows(user, now_ns()) {
            self.n_left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let Outcome { parsed, took, ended } = slot.parse(file, task);
        patience().took(user, now_ns(), took);
        if parsed.is_none() {
            self.n_failed.fetch_add(1, Ordering::Relaxed);
            patience().failed(user, now_ns());
        }
        self.add_ended(ended);
        parsed
    }

    fn end_idle(&self) {
        let ended: Duration = self.slots().map(|slot| slot.end_if_idle(IDLE)).sum();
        self.add_ended(ended);
    }

    fn give_up(&self) {
        self.slots().for_each(Slot::give_up);
    }

    fn pids(&self) -> Vec<u32> {
        self.slots().filter_map(|slot| slot.current().as_ref().map(|&(pid, _)| pid)).collect()
    }

    fn cpu_time(&self) -> Duration {
        let running: Duration = self.pids().into_iter().map(cpu_time).sum();
        running.saturating_add(Duration::from_nanos(self.ended_ns.load(Ordering::Relaxed)))
    }

    fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }

    fn n_left_out(&self) -> u64 {
        self.n_left_out.load(Ordering::Relaxed)
    }
}

impl ConfinedParser {
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        [&self.build_ids, &self.contents].into_iter().chain(&self.rules)
    }

    fn add_ended(&self, cpu_time: Duration) {
        self.ended_ns.fetch_add(u64::try_from(cpu_time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Slot {
    fn start(limit: Duration) -> anyhow::Result<Self> {
        let process = Process::start(limit)?;
        Ok(Self {
            current: Mutex::new(Some(process.handle())),
            running: Mutex::new(Some(process)),
            limit,
            used_ns: AtomicU64::new(now_ns()),
            is_over: AtomicBool::new(false),
        })
    }

    fn current(&self) -> MutexGuard<'_, Option<(u32, Arc<OwnedFd>)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self) {
        let current = self.current();
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((_, socket)) = &*current {
            // Who waits for an answer gets the end of the stream.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    fn parse(&self, file: &File, task: ParseTask) -> Outcome {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.used_ns.store(now_ns(), Ordering::Relaxed);
        if running.is_none() {
            let mut current = self.current();
            // Under the lock: a process that is started is one that can be given up.
            *running = if self.is_over.load(Ordering::Relaxed) { None } else { Process::start(self.limit).ok() };
            *current = running.as_ref().map(Process::handle);
        }
        let pid = running.as_ref().map(|process| process.child.id());
        let time = || pid.map_or(Duration::ZERO, cpu_time);
        let before = time();
        let parsed = running.as_ref().and_then(|process| process.parse(file, task).ok());
        let took = time().saturating_sub(before);
        let ended = if parsed.is_none() { self.end(&mut running) } else { Duration::ZERO };
        Outcome { parsed, took, ended }
    }

    /// Ends the process; returns its CPU time.
    fn end(&self, running: &mut Option<Process>) -> Duration {
        running.take().map_or(Duration::ZERO, |process| {
            *self.current() = None;
            cpu_time(process.child.id())
        })
    }

    /// Ends the process if it has parsed nothing for a while, and does not now; returns its CPU time.
    fn end_if_idle(&self, limit: Duration) -> Duration {
        let idle_ns = now_ns().saturating_sub(self.used_ns.load(Ordering::Relaxed));
        let is_idle = u128::from(idle_ns) > limit.as_nanos();
        match self.running.try_lock() {
            Ok(mut running) if is_idle => self.end(&mut running),
            _ => Duration::ZERO,
        }
    }
}

impl Process {
    fn start(limit: Duration) -> anyhow::Result<Self> {
        ensure!(killed().len() < MOST_KILLED, "{MOST_KILLED} processes were killed and have not ended");
        let results = File::from(rustix::fs::memfd_create("fpprof-parsed", MemfdFlags::CLOEXEC)?);
        let theirs = results.try_clone()?;
        let (child, socket) = start(["record".into()], |command| {
            // In a process group of its own, since Ctrl-C must not end it: the recording needs it to the end.
            command.stdout(Stdio::from(theirs)).stderr(Stdio::null()).process_group(0);
        })?;
        set_socket_timeout(&socket, Timeout::Recv, Some(limit)).context("cannot set a limit of time")?;
        Ok(Self { child: Running(Some(child)), socket: Arc::new(socket), results })
    }

    fn handle(&self) -> (u32, Arc<OwnedFd>) {
        (self.child.id(), Arc::clone(&self.socket))
    }

    fn parse(&self, file: &File, task: ParseTask) -> io::Result<ParsedFile> {
        send(&self.socket, &task, Some(file.as_fd()))?;
        let (found, len): (Found, u64) =
            receive(&self.socket)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?.0;
        let len = usize::try_from(len.min(MAX_PARSED_BYTES)).unwrap_or(0);
        let mut bytes = vec![0; len];
        self.results.read_exact_at(&mut bytes, 0)?;
        self.results.set_len(0)?;
        Ok(ParsedFile { found, bytes })
    }
}

/// Parses in the calling thread, with the rights of this process.
#[derive(Debug, Default)]
struct UnconfinedParser {
    rule_files: Mutex<RuleFiles>,
}

impl FileParser for UnconfinedParser {
    fn parse(&self, file: &File, _user: u32, task: ParseTask) -> Option<ParsedFile> {
        if !matches!(task, ParseTask::Rules { .. }) {
            return Some(parse_plain(file, task));
        }
        let mut rule_files = self.rule_files.lock().unwrap_or_else(PoisonError::into_inner);
        Some(parse(file.try_clone().ok()?, task, &mut rule_files))
    }
}

/// Parses a file for `task`.
fn parse(file: File, task: ParseTask, rule_files: &mut RuleFiles) -> ParsedFile {
    let ParseTask::Rules { parts } = task else { return parse_plain(&file, task) };
    let Some(rules) = rule_files.rules(file, &parts) else {
        return ParsedFile { found: Found::Nothing, bytes: Vec::new() };
    };
    let range = |(range, rule): (std::ops::Range<u64>, u64)| RuleRange { start: range.start, end: range.end, rule };
    let ranges: Vec<RuleRange> = rules.into_iter().map(range).collect();
    ParsedFile { found: Found::Bytes, bytes: RuleRange::encode(&ranges) }
}

/// The main function of such a process.
///
/// # Errors
/// If it cannot be confined, or the recorder is gone.
pub(crate) fn serve_parser() -> anyhow::Result<u8> {
    for (resource, most) in
        [(Resource::As, MAX_MEMORY_BYTES), (Resource::Fsize, MAX_PARSED_BYTES), (Resource::Nofile, MAX_OPEN_FILES)]
    {
        limit(resource, most)?;
    }
    confine(false)?;
    let results = io::stdout();
    let mut rule_files = RuleFiles::default();
    let next = || {
        if matches!(poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&PAUSE)), Ok(0)) {
            unmap_code();
            return_freed_memory();
        }
        receive::<ParseTask>(io::stdin())
    };
    while let Some((task, file)) = next()? {
        let file = file.context("no file to parse")?;
        let ParsedFile { found, bytes } = parse(File::from(file), task, &mut rule_files);
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            written = written.saturating_add(rustix::io::pwrite(&results, rest, written as u64)?);
        }
        send(io::stdin(), &(found, bytes.len()), None)?;
    }
    Ok(crate::exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that who waits for a process that does not answer is freed when it is given up, and that no other process is started.
    #[test]
    fn a_process_is_given_up() {
        let slot = Arc::new(Slot::start(Duration::from_secs(3600)).expect("a process"));
        let pid = slot.current().as_ref().map_or(0, |&(pid, _)| pid).cast_signed();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGSTOP).expect("it runs");
        let parse = |slot: &Slot| slot.parse(&File::open("/proc/self/exe").expect("a file"), ParseTask::BuildId).parsed;
        let (waiting, (done, ended)) = (Arc::clone(&slot), std::sync::mpsc::channel());
        std::thread::spawn(move || done.send(parse(&waiting)));
        while slot.running.try_lock().is_ok() {
            std::thread::yield_now();
        }
        slot.give_up();
        assert_eq!(ended.recv_timeout(Duration::from_secs(600)), Ok(None));
        assert_eq!(parse(&slot), None);
        assert!(slot.current().is_none());
    }

    /// Check that a process that has had nothing to do for long enough is ended, unless it is just being used.
    #[test]
    fn idle_processes_end() {
        let slot = Slot::start(BUILD_ID_LIMIT).expect("a process");
        let pid = || slot.current().as_ref().map_or(0, |&(pid, _)| pid);
        let first = pid();
        assert_ne!(first, 0);
        let _ = slot.end_if_idle(Duration::from_secs(60));
        assert_eq!(pid(), first);
        std::thread::sleep(Duration::from_millis(1));
        let in_use = slot.running.lock().expect("a process");
        let _ = slot.end_if_idle(Duration::ZERO);
        assert_eq!(pid(), first);
        drop(in_use);
        let _ = slot.end_if_idle(Duration::ZERO);
        assert_eq!((pid(), slot.running.lock().expect("no process").is_none()), (0, true));
    }
}
