//! The profiled processes: starting them, attaching to them, and their end.

use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::plan::Command;
use crate::proc::start_ticks;
use crate::request::TargetStatus;
use crate::sys::{ChildError, HeldChild, OpenFiles, Poller, StopFlag, open_pidfd, terminate, try_wait};
use fpprof_recording::model::EndReason;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// How long a command may take to end on SIGTERM before it is left running.
const TERMINATION_PATIENCE: Duration = Duration::from_secs(1);

/// The target of a running recording, which ends with it.
#[derive(Debug)]
pub(crate) enum Running {
    /// A command that we started; its status once it has ended.
    Command { child: HeldChild, pidfd: OwnedFd, status: Option<TargetStatus>, is_all: bool },
    /// Existing processes.
    Attached(Vec<OwnedFd>),
    /// Existing threads, with their start times, which distinguish them from later ones with the same ID.
    Threads(Vec<(u32, u64)>),
    /// A control group, until its directory is gone or that of another group of the same name.
    Cgroup(Cgroup),
    /// Everything, which has no end.
    System,
}

impl Running {
    /// Forks the command, holds it, and passes it to `track`, which has it profiled from its `execve`
    /// on. With `is_all`, everything is profiled anyway while it runs.
    pub(crate) fn hold(
        command: &Command,
        open_files: &OpenFiles,
        is_all: bool,
        track: impl FnOnce(u32) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let child = HeldChild::spawn(&command.program, &command.arguments, open_files)
            .map_err(|error| explain(error, command))?;
        if !is_all {
            track(child.pid())?;
        }
        let pidfd = open_pidfd(child.pid()).map_err(Error::system("watching the command"))?;
        Ok(Self::Command { child, pidfd, status: None, is_all })
    }

    /// Attaches to running processes, by passing each to `track` while its PID cannot be reused.
    pub(crate) fn attach(pids: &[u32], mut track: impl FnMut(u32) -> Result<(), Error>) -> Result<Self, Error> {
        let mut watched = Vec::with_capacity(pids.len());
        for &pid in pids {
            watched.push(open_pidfd(pid).map_err(|error| match error.raw_os_error() {
                Some(libc::ESRCH) => Error::NoSuchProcess(pid),
                // ENOENT on Linux 6.18, EINVAL on older kernels.
                Some(libc::EINVAL | libc::ENOENT) => Error::Thread(pid),
                _ => Error::System { what: "watching a process", source: error },
            })?);
            track(pid)?;
        }
        Ok(Self::Attached(watched))
    }

    /// Likewise for running threads.
    pub(crate) fn attach_threads(tids: &[u32], track: impl Fn(u32) -> Result<(), Error>) -> Result<Self, Error> {
        let attach = |&tid: &u32| {
            let started = start_ticks(tid).ok_or(Error::NoSuchThread(tid))?;
            track(tid)?;
            Ok((tid, started))
        };
        tids.iter().map(attach).collect::<Result<_, _>>().map(Self::Threads)
    }

    /// Wakes `poller` when a process ends.
    pub(crate) fn watch(&self, poller: &Poller) -> Result<(), Error> {
        let descriptors: &[OwnedFd] = match self {
            Self::Command { pidfd, .. } => std::slice::from_ref(pidfd),
            Self::Attached(pidfds) => pidfds,
            // Polled from time to time: before 6.9, no file descriptor reports a thread's end.
            Self::Threads(_) | Self::Cgroup(_) | Self::System => &[],
        };
        descriptors.iter().try_for_each(|fd| poller.add(fd.as_fd())).map_err(Error::system("watching a process"))
    }

    /// Lets a held command run.
    pub(crate) fn release(&mut self, command: Option<&Command>) -> Result<(), Error> {
        let (Self::Command { child, .. }, Some(command)) = (self, command) else { return Ok(()) };
        child.release().map_err(|error| explain(error, command))
    }

    /// Whether everything is profiled.
    pub(crate) fn follows_all(&self) -> bool {
        matches!(self, Self::System | Self::Cgroup(_) | Self::Command { is_all: true, .. })
    }

    /// The pid of the command.
    pub(crate) fn command_pid(&self) -> Option<u32> {
        match self {
            Self::Command { child, .. } => Some(child.pid()),
            Self::Attached(_) | Self::Threads(_) | Self::Cgroup(_) | Self::System => None,
        }
    }

    /// Whether all that was to be profiled has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Error> {
        match self {
            Self::Command { child, status, .. } => {
                if status.is_none() {
                    let ended = try_wait(child.pid()).map_err(Error::system("waiting for the command"))?;
                    *status = ended.map(target_status);
                }
                Ok(status.is_some())
            }
            Self::Attached(pidfds) => {
                pidfds.retain(|pidfd| !crate::sys::has_ended(pidfd));
                Ok(pidfds.is_empty())
            }
            Self::Threads(threads) => {
                threads.retain(|&(tid, started)| start_ticks(tid) == Some(started));
                Ok(threads.is_empty())
            }
            Self::Cgroup(group) => Ok(fs::metadata(&group.path).map_or(true, |found| found.ino() != group.id)),
            Self::System => Ok(false),
        }
    }

    /// The reason to end a recording now, if any: its target ended, a signal came, or no time is `left`.
    pub(crate) fn end_reason(&mut self, stop: &StopFlag, left: Option<Duration>) -> Result<Option<EndReason>, Error> {
        if self.has_ended()? {
            return Ok(Some(match self.status() {
                Some(TargetStatus::Exited(status)) => EndReason::Exited(status),
                Some(TargetStatus::Killed(signal)) => EndReason::Killed(signal),
                None => EndReason::TargetsGone,
            }));
        }
        if let Some(signal) = stop.signal() {
            return Ok(Some(EndReason::Signal(signal)));
        }
        Ok(left.filter(Duration::is_zero).map(|_| EndReason::Duration))
    }

    /// How the command ended.
    pub(crate) fn status(&self) -> Option<TargetStatus> {
        match self {
            Self::Command { status, .. } => *status,
            Self::Attached(_) | Self::Threads(_) | Self::Cgroup(_) | Self::System => None,
        }
    }

    /// Ends a command that still runs, as perf does: SIGTERM, and some patience. Returns whether it has ended.
    pub(crate) fn terminate(&mut self) -> Result<bool, Error> {
        if self.has_ended()? {
            return Ok(true);
        }
        let Self::Command { pidfd, .. } = self else { return Ok(true) };
        terminate(pidfd).map_err(Error::system("ending the command"))?;
        let poller = Poller::new().map_err(Error::system("waiting for the command"))?;
        poller.add(pidfd.as_fd()).map_err(Error::system("waiting for the command"))?;
        let deadline = Instant::now() + TERMINATION_PATIENCE;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            poller.wait(left).map_err(Error::system("waiting for the command"))?;
            if self.has_ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn target_status(wait_status: i32) -> TargetStatus {
    if libc::WIFSIGNALED(wait_status) {
        TargetStatus::Killed(libc::WTERMSIG(wait_status))
    } else {
        TargetStatus::Exited(libc::WEXITSTATUS(wait_status))
    }
}

fn explain(error: ChildError, command: &Command) -> Error {
    match error {
        ChildError::Fork(source) => Error::System { what: "starting the command", source },
        ChildError::Exec(source) if source.raw_os_error() == Some(libc::ENOENT) => {
            let program = command.program.clone();
            if program.exists() { Error::InterpreterNotFound(program) } else { Error::CommandNotFound(program) }
        }
        ChildError::Exec(source) => Error::CommandNotExecutable { path: command.program.clone(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a control group has ended when its directory is gone, or is that of another group.
    #[test]
    fn a_group_ends_with_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::metadata(dir.path()).unwrap().ino();
        let path = dir.path().to_path_buf();
        let has_ended = |id| Running::Cgroup(Cgroup { path: path.clone(), id, subsystem: None }).has_ended().unwrap();
        assert_eq!([own, own + 1].map(has_ended), [false, true]);
        dir.close().unwrap();
        assert!(has_ended(own));
    }
}
