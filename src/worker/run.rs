//! Runs a command's work, in a separate process if needed.

use super::broker::serve;
use super::client::connect;
use super::confine::{MAX_CPU, confine, is_privileged, limit, limit_cpu, limit_memory, max_address_space};
use super::files::Files;
use super::process::{WORKER, is_worker, start};
use crate::exit::FAILED;
use crate::output::print_message;
use anyhow::Context as _;
use fpprof_analysis::signal_name;
use fpprof_collector::StopFlag;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::FileType;
use rustix::process::{Pid, PidfdFlags, Resource, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// Runs `work`, in a process without privileges if this one has some.
///
/// # Errors
/// If `work` fails; if the worker cannot be started or confined, or was killed.
pub(crate) fn run(files: &Files, work: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    if is_worker() {
        let stdin = rustix::fs::fstat(std::io::stdin()).context("cannot examine standard input")?;
        let is_ours = FileType::from_raw_mode(stdin.st_mode) == FileType::Socket;
        anyhow::ensure!(is_ours, "{WORKER} is reserved for fpprof itself: unset it");
        connect();
        // Limits come first: after confinement they can no longer be set.
        limit_memory()?;
        if !files.goes_on {
            limit_cpu()?;
        }
        if let Some(most) = files.max_file_bytes {
            limit(Resource::Fsize, most)?;
        }
        if !files.confines_itself {
            confine(files.reads)?;
        }
        return work();
    }
    if !is_privileged() {
        return work();
    }
    let stop = StopFlag::on_signals().context("watching for signals")?;
    // The program on the other side of a pipe gets the terminal's signals, too: what it still writes is read.
    let is_piped = files.inputs.iter().any(|input| input == Path::new("-"));
    let patience = if is_piped { PIPE_PATIENCE } else { Duration::ZERO };
    let (mut worker, socket) = start(std::env::args_os().skip(1), |command| {
        if is_piped {
            command.process_group(0);
        }
    })?;
    pass_on_signals(stop, &worker, patience).context("watching for signals")?;
    let served = serve(&socket, files, &mut || None);
    // A worker that still waits for an answer sees the end of the connection.
    drop(socket);
    let status = worker.wait().context("cannot wait for the process without privileges")?;
    served.context("cannot answer the process without privileges")?;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(FAILED)),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            // Whoever sent it to us knows.
            if stop.signal() != Some(signal) {
                print_message(&format!("fpprof: the process that parses files {}", end_in_words(signal)));
            }
            Ok(u8::try_from(signal).ok().and_then(|signal| signal.checked_add(128)).unwrap_or(FAILED))
        }
    }
}

/// How long the input of a pipe has to come to its end after a signal.
pub(crate) const PIPE_PATIENCE: Duration = Duration::from_secs(10);
/// How long this process has to come to its end after its worker got a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Passes the signal that is to end this process on to its worker, if that has not ended by itself after `patience`. When the
/// worker has ended, files that are not complete are removed, and this process ends. It is ended here if it still waits to open a
/// file, such as a pipe that nobody writes to.
fn pass_on_signals(stop: &'static StopFlag, worker: &Child, patience: Duration) -> io::Result<()> {
    let worker = pidfd_open(Pid::from_child(worker), PidfdFlags::empty())?;
    std::thread::Builder::new().name("fpprof-signals".to_owned()).spawn(move || {
        let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        // The thread ends with the process. If polling fails, the worker is not told.
        while poll(&mut fds, PollTimeout::NONE).is_err_and(|error| error == Errno::EINTR) {}
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        let has_ended = poll(&mut [PollFd::new(worker.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|n| n > 0);
        if has_ended && !patience.is_zero() {
            return;
        }
        if let Some(signal) = stop.signal().and_then(Signal::from_named_raw) {
            // This fails if the terminal has sent it to the worker, too, and that has ended.
            let _ = pidfd_send_signal(&worker, signal);
            std::thread::sleep(GRACE);
            std::process::exit(128 + signal.as_raw());
        }
    })?;
    Ok(())
}

/// Why a process was killed by this signal, in words. A worker that runs out of memory aborts.
fn end_in_words(signal: i32) -> String {
    match Signal::from_named_raw(signal) {
        Some(Signal::XCPU) => {
            format!("took more than {} hours of CPU time, more than any recording should", MAX_CPU.as_secs() / 3600)
        }
        Some(Signal::ABORT) => format!(
            "was killed by {}, as when it needs more memory than it may have: {} MB on this machine, \
             less where `ulimit -v` says so",
            signal_name(signal),
            max_address_space() / 1_000_000
        ),
        Some(Signal::XFSZ) => "had to write a larger file than it may: see `ulimit -f`".to_owned(),
        _ => format!("was killed by {}", signal_name(signal)),
    }
}
