//! Parses files of other users without privileges.
//!
//! ```text
//! fpprof (root) ──▶ worker: no capabilities, no new files, no programs
//!     ▲   └ opens what it asks for: ELF files, and the files of the command line
//!     └ one socket, the worker's standard input
//! ```
//!
//! A command that has privileges and parses files of others (recordings, ELF files, cores) runs itself a second time. The
//! second process does the work and can open nothing itself. Without privileges there is one process.

mod broker;
mod client;
mod confine;
mod message;
mod parser;
#[cfg(test)]
mod tests;

use crate::output::say;
use anyhow::Context as _;
use confine::{MAX_CPU, limit, limit_cpu, max_address_space};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, Signal};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) use broker::serve;
pub(crate) use client::{Modules, client, open_input, standard_input};
pub(crate) use confine::{confine, is_privileged};
pub(crate) use parser::{parser, serve_parser};

/// Environment variable that makes a process a worker; refused unless standard input is a socket.
const WORKER: &str = "FPPROF_WORKER";

/// What a command may ask for besides ELF files.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    /// Opened for reading, whatever they are. `-` is standard input.
    pub(crate) inputs: Vec<PathBuf>,
    /// Written.
    pub(crate) outputs: Vec<PathBuf>,
    /// It opens files for reading itself: the libraries of the strategies `elfutils` and `libunwind` do.
    pub(crate) reads: bool,
    /// It calls [`confine`] itself, once it has run what it must.
    pub(crate) confines_itself: bool,
    /// It works as long as a recording goes on, which may be for ever.
    pub(crate) goes_on: bool,
}

impl Files {
    /// These inputs and outputs.
    pub(crate) fn new<'a>(
        inputs: impl IntoIterator<Item = &'a Path>,
        outputs: impl IntoIterator<Item = &'a Path>,
    ) -> Self {
        let owned = |path: &Path| path.to_owned();
        Self {
            inputs: inputs.into_iter().map(owned).collect(),
            outputs: outputs.into_iter().map(owned).collect(),
            ..Self::default()
        }
    }

    /// None, for a worker that calls [`confine`] itself.
    pub(crate) fn confined_by_itself() -> Self {
        Self { confines_itself: true, goes_on: true, ..Self::default() }
    }
}

/// Whether this process is to be a worker.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// CPU time of a process so far; none of one that is gone.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let clock = i32::try_from(pid).ok().and_then(|pid| clock_getcpuclockid(Pid::from_raw(pid)).ok());
    clock.and_then(|clock| clock.now().ok()).map_or(Duration::ZERO, Duration::from)
}

/// Starts this program again with these arguments, as a worker, and gives the broker's end of its socket. It ends with the
/// thread that calls this.
///
/// # Errors
/// If there can be no more processes.
pub(crate) fn start(
    arguments: impl IntoIterator<Item = OsString>,
    set_up: impl FnOnce(&mut Command),
) -> anyhow::Result<(Child, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).context("cannot make a socket")?;
    // By this path even if the file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fpprof").args(arguments).env(WORKER, "1").stdin(Stdio::from(theirs));
    set_up(&mut command);
    let child = command.spawn().context("cannot start a process without privileges")?;
    Ok((child, ours))
}

/// Runs `work`, in a process without privileges if this one has some.
///
/// # Errors
/// Those of `work`; if the worker cannot be started, confined or was ended.
pub(crate) fn run(files: &Files, work: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    if is_worker() {
        let stdin = rustix::fs::fstat(std::io::stdin()).context("cannot examine standard input")?;
        let is_ours = FileType::from_raw_mode(stdin.st_mode) == FileType::Socket;
        anyhow::ensure!(is_ours, "{WORKER} is set, which only fpprof itself may do: unset it");
        client::connect();
        limit(Resource::As, max_address_space())?;
        if !files.goes_on {
            limit_cpu()?;
        }
        if !files.confines_itself {
            confine(files.reads)?;
        }
        return work();
    }
    if !is_privileged() {
        return work();
    }
    let (mut worker, socket) = start(std::env::args_os().skip(1), |_| ())?;
    let served = serve(&socket, files, &mut || None);
    drop(socket);
    let status = worker.wait().context("cannot wait for the process without privileges")?;
    served.context("cannot answer the process without privileges")?;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(crate::exit::FAILED)),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            say(&format!("fpprof: the process that parses files {}", end_in_words(signal)));
            Ok(u8::try_from(signal).ok().and_then(|signal| signal.checked_add(128)).unwrap_or(crate::exit::FAILED))
        }
    }
}

/// Why a process ended that a signal has killed. One that gets no more memory aborts.
fn end_in_words(signal: i32) -> String {
    match Signal::from_named_raw(signal) {
        Some(Signal::XCPU) => {
            format!("took more than {} hours of CPU time, more than any recording should", MAX_CPU.as_secs() / 3600)
        }
        Some(Signal::ABORT) => format!(
            "was killed by signal {signal}, as when it needs more memory than it may have: {} MB on this machine, \
             less where `ulimit -v` says so",
            max_address_space() / 1_000_000
        ),
        _ => format!("was killed by signal {signal}"),
    }
}
