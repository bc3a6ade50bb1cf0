//! A command that has been forked but does not run yet.

use super::OpenFiles;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a command did not start.
#[derive(Debug)]
pub(crate) enum ChildError {
    /// The process could not be created or held.
    Fork(io::Error),
    /// `execve` failed.
    Exec(io::Error),
}

/// A child that waits to become a command.
///
/// It has been forked, and executes nothing but a `read` until it is released. If this value is dropped before that, it
/// exits.
#[derive(Debug)]
pub(crate) struct HeldChild {
    pid: u32,
    release: OwnedFd,
    outcome: OwnedFd,
    is_released: bool,
}

impl HeldChild {
    /// Forks a child that will execute `program` with `arguments` (the program's name first), with the environment of
    /// this process and its original limit of `open_files`.
    pub(crate) fn spawn(program: &Path, arguments: &[CString], open_files: &OpenFiles) -> Result<Self, ChildError> {
        let program = CString::new(program.as_os_str().as_bytes())
            .map_err(|_| ChildError::Exec(io::Error::from_raw_os_error(libc::ENOENT)))?;
        let mut argv: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        argv.push(std::ptr::null());
        let (wait, release) = pipe().map_err(ChildError::Fork)?;
        let (outcome, report) = pipe().map_err(ChildError::Fork)?;
        // SAFETY: the child calls nothing but async-signal-safe functions until it execs or exits.
        match unsafe { libc::fork() } {
            -1 => Err(ChildError::Fork(io::Error::last_os_error())),
            // SAFETY: we are the child, and all that is pointed to was made before the fork.
            0 => unsafe { become_command(&program, &argv, open_files, &wait, &release, &report) },
            pid => {
                let pid = u32::try_from(pid).unwrap_or(0);
                Ok(Self { pid, release, outcome, is_released: false })
            }
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its command; returns when it has done so, or failed to.
    pub(crate) fn release(&mut self) -> Result<(), ChildError> {
        let go = [1u8];
        self.is_released = true;
        // SAFETY: one readable byte, and the descriptor is ours.
        if unsafe { libc::write(self.release.as_raw_fd(), go.as_ptr().cast(), 1) } != 1 {
            return Err(ChildError::Fork(io::Error::last_os_error()));
        }
        let mut errno = [0u8; 4];
        loop {
            // SAFETY: four writable bytes, and the descriptor is ours.
            let n = unsafe { libc::read(self.outcome.as_raw_fd(), errno.as_mut_ptr().cast(), errno.len()) };
            match n {
                // Closed by the exec.
                0 => return Ok(()),
                4 => {
                    self.wait();
                    return Err(ChildError::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))));
                }
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(ChildError::Fork(error));
                    }
                }
            }
        }
    }

    /// Waits for a child that is about to exit.
    fn wait(&self) {
        let pid = i32::try_from(self.pid).unwrap_or(-1);
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        let stop = [0u8];
        // SAFETY: one readable byte, and the descriptor is ours. The child exits when it reads it.
        unsafe { libc::write(self.release.as_raw_fd(), stop.as_ptr().cast(), 1) };
        self.wait();
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: two writable descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let [read, write] = fds;
    // SAFETY: the kernel has just made this descriptor for us.
    let read = unsafe { OwnedFd::from_raw_fd(read) };
    // SAFETY: likewise.
    Ok((read, unsafe { OwnedFd::from_raw_fd(write) }))
}

/// The child's side: waits for one byte, then executes the command. Signals are set up as in a fresh process: Rust
/// programs ignore SIGPIPE, and commands must not inherit that.
///
/// # Safety
/// Call it only in a child; `argv` must be a null-terminated array of strings.
unsafe fn become_command(
    program: &CString,
    argv: &[*const libc::c_char],
    open_files: &OpenFiles,
    wait: &OwnedFd,
    release: &OwnedFd,
    report: &OwnedFd,
) -> ! {
    let mut go = [0u8];
    // SAFETY: the descriptor is open; the parent has its own copy. Closed, so that the parent's death ends the wait.
    unsafe { libc::close(release.as_raw_fd()) };
    loop {
        // SAFETY: one writable byte.
        let n = unsafe { libc::read(wait.as_raw_fd(), go.as_mut_ptr().cast(), 1) };
        if n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    if go == [0] {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    open_files.restore();
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: both strings outlive the call, `argv` is null-terminated.
    unsafe { libc::execv(program.as_ptr(), argv.as_ptr()) };
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOEXEC).to_ne_bytes();
    // SAFETY: four readable bytes.
    unsafe { libc::write(report.as_raw_fd(), errno.as_ptr().cast(), errno.len()) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}
