//! Parses the files of profiled programs for the recorder.
//!
//! The recorder opens such a file and hands it over with what is to be taken from it. Two processes without privileges
//! parse: one for build ids, for which the thread that reads the rings waits, and one for all that takes longer. One that
//! crashes or takes too long is replaced, a few times; its file is left out, which the recording says.

use super::confine::limit;
use super::message::{receive, send};
use super::{confine, cpu_time, is_privileged, start};
use anyhow::Context as _;
use fpprof_collector::parse::{FileParser, Found, MAX_PARSED_BYTES, ParseHere, ParseTask, ParsedFile, parse};
use rustix::fs::MemfdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::Resource;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the recorder waits for a build id: it reads no ring meanwhile. Files of a network may be slow.
const BUILD_ID_LIMIT: Duration = Duration::from_secs(1);
/// How long it waits for anything else.
const CONTENTS_LIMIT: Duration = Duration::from_secs(10);
/// How often each of the two is started again.
const MAX_RESTARTS: u32 = 16;
/// Memory of such a process: a file, what is taken of it, and the program itself.
const MAX_MEMORY_BYTES: u64 = 512 << 20;
/// Files it has open: three, and the one that it parses.
const MAX_OPEN_FILES: u64 = 16;

/// The parser of this process: where there are privileges, two processes without any, which end with the calling thread.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn parser() -> anyhow::Result<Arc<dyn FileParser>> {
    if !is_privileged() {
        return Ok(Arc::new(ParseHere));
    }
    let (build_ids, contents) = (Slot::start(BUILD_ID_LIMIT)?, Slot::start(CONTENTS_LIMIT)?);
    Ok(Arc::new(ConfinedParser { build_ids, contents, n_failed: AtomicU64::new(0), ended_ns: AtomicU64::new(0) }))
}

/// Parses in two processes without privileges.
#[derive(Debug)]
struct ConfinedParser {
    build_ids: Slot,
    contents: Slot,
    n_failed: AtomicU64,
    /// CPU time of processes that have ended.
    ended_ns: AtomicU64,
}

/// A process that is replaced when it fails.
#[derive(Debug)]
struct Slot {
    running: Mutex<Running>,
    limit: Duration,
    /// Number of the process, 0 for none. Beside the lock, which is held while a file is parsed.
    pid: AtomicU32,
}

/// A process, if it runs.
#[derive(Debug)]
struct Running {
    process: Option<Process>,
    /// How often it was started again.
    n_starts: u32,
}

#[derive(Debug)]
struct Process {
    child: Child,
    socket: OwnedFd,
    /// Where it puts what it takes from a file: memory that both have open.
    results: File,
}

impl FileParser for ConfinedParser {
    fn parse(&self, file: &File, task: ParseTask) -> Option<ParsedFile> {
        let slot = if task == ParseTask::BuildId { &self.build_ids } else { &self.contents };
        let (parsed, ended) = slot.parse(file, task);
        if parsed.is_none() {
            self.n_failed.fetch_add(1, Ordering::Relaxed);
        }
        self.ended_ns.fetch_add(u64::try_from(ended.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        parsed
    }

    fn pids(&self) -> Vec<u32> {
        let pids = [&self.build_ids, &self.contents].map(|slot| slot.pid.load(Ordering::Relaxed));
        pids.into_iter().filter(|&pid| pid != 0).collect()
    }

    fn cpu_time(&self) -> Duration {
        let running: Duration = self.pids().into_iter().map(cpu_time).sum();
        running.saturating_add(Duration::from_nanos(self.ended_ns.load(Ordering::Relaxed)))
    }

    fn n_failed(&self) -> u64 {
        self.n_failed.load(Ordering::Relaxed)
    }
}

impl Slot {
    fn start(limit: Duration) -> anyhow::Result<Self> {
        let process = Process::start(limit)?;
        let pid = AtomicU32::new(process.child.id());
        Ok(Self { running: Mutex::new(Running { process: Some(process), n_starts: 0 }), limit, pid })
    }

    /// What was parsed, and the CPU time of a process that had to be ended for it.
    fn parse(&self, file: &File, task: ParseTask) -> (Option<ParsedFile>, Duration) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.process.is_none() && running.n_starts < MAX_RESTARTS {
            running.n_starts = running.n_starts.saturating_add(1);
            running.process = Process::start(self.limit).ok();
            self.pid.store(running.process.as_ref().map_or(0, |process| process.child.id()), Ordering::Relaxed);
        }
        let parsed = running.process.as_ref().and_then(|process| process.parse(file, task).ok());
        let ended = if parsed.is_none() { running.process.take() } else { None };
        let cpu_time = ended.as_ref().map_or(Duration::ZERO, |process| {
            self.pid.store(0, Ordering::Relaxed);
            cpu_time(process.child.id())
        });
        (parsed, cpu_time)
    }
}

impl Process {
    fn start(limit: Duration) -> anyhow::Result<Self> {
        let results = File::from(rustix::fs::memfd_create("fpprof-parsed", MemfdFlags::CLOEXEC)?);
        let theirs = results.try_clone()?;
        let (child, socket) = start(["record".into()], |command| {
            // A group of its own: Ctrl-C ends the recording, which needs it to the end.
            command.stdout(Stdio::from(theirs)).stderr(Stdio::null()).process_group(0);
        })?;
        set_socket_timeout(&socket, Timeout::Recv, Some(limit)).context("cannot set a limit of time")?;
        Ok(Self { child, socket, results })
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

impl Drop for Process {
    /// Waits for its end, but not for long: it may be stuck in a read from a network.
    fn drop(&mut self) {
        let _ = self.child.kill();
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What such a process does.
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
    while let Some((task, file)) = receive::<ParseTask>(io::stdin())? {
        let file = file.context("no file to parse")?;
        let ParsedFile { found, bytes } = parse(&File::from(file), task);
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            written = written.saturating_add(rustix::io::pwrite(&results, rest, written as u64)?);
        }
        send(io::stdin(), &(found, bytes.len()), None)?;
    }
    Ok(crate::exit::DONE)
}
