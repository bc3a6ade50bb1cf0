//! Starts and measures processes without privileges.

use anyhow::Context as _;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable that makes a process a worker; rejected unless standard input is a socket.
pub(super) const WORKER: &str = "FPPROF_WORKER";

/// Whether this process is to be a worker.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// CPU time of a process so far; zero if it is gone.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let clock = i32::try_from(pid).ok().and_then(|pid| clock_getcpuclockid(Pid::from_raw(pid)).ok());
    clock.and_then(|clock| clock.now().ok()).map_or(Duration::ZERO, Duration::from)
}

/// Resident memory of a process in bytes, by its directory's name in `/proc`; `None` if it is gone.
pub(crate) fn rss_bytes(pid: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Creates a file in memory, without a name in any directory.
///
/// # Errors
/// If no file can be created.
pub(crate) fn memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// Starts this program again with these arguments, as a worker, and returns the broker's end of its socket. The worker
/// ends with the calling thread.
///
/// # Errors
/// If no process can be started.
pub(crate) fn start(
    arguments: impl IntoIterator<Item = OsString>,
    set_up: impl FnOnce(&mut Command),
) -> anyhow::Result<(Child, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).context("cannot make a socket")?;
    // This path works even if the file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fpprof").args(arguments).env(WORKER, "1").stdin(Stdio::from(theirs));
    set_up(&mut command);
    let child = command.spawn().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let why = if is_missing { ": /proc is not mounted (mount -t proc proc /proc)" } else { "" };
        anyhow::Error::new(error).context(format!("cannot start a process without privileges{why}"))
    })?;
    Ok((child, ours))
}
