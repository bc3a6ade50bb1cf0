//! The stop flag and the signals that set it.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Tells a running [`crate::record`] to end: set by SIGINT, SIGTERM and SIGHUP, or by hand.
#[derive(Debug)]
pub struct StopFlag {
    signal: AtomicI32,
    wake: OwnedFd,
}

/// The flag that signals set.
static FLAG: OnceLock<StopFlag> = OnceLock::new();

impl StopFlag {
    /// A flag that only [`StopFlag::stop`] sets.
    ///
    /// # Errors
    /// If no more file descriptors are available.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self { signal: AtomicI32::new(0), wake: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The flag that SIGINT and SIGTERM set from now on, and SIGHUP unless it is ignored, as under nohup(1). All calls
    /// return the same flag. Exceeding the limit of file size (SIGXFSZ) becomes a write error from now on.
    ///
    /// # Errors
    /// If a handler cannot be installed, or no more file descriptors are available.
    pub fn on_signals() -> io::Result<&'static Self> {
        let flag = match FLAG.get() {
            Some(flag) => flag,
            None => {
                let new = Self::new()?;
                FLAG.get_or_init(|| new)
            }
        };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            if signal != libc::SIGHUP || !is_ignored(signal)? {
                install(signal, on_signal)?;
            }
        }
        // A handler rather than SIG_IGN, which a command would inherit.
        install(libc::SIGXFSZ, on_nothing)?;
        Ok(flag)
    }

    /// Sets the flag as `signal` would.
    pub fn stop(&self, signal: i32) {
        self.signal.store(signal, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, and the descriptor is ours. A full counter means that it is readable already.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// The signal that set the flag.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Acquire)).filter(|&signal| signal != 0)
    }
}

impl AsFd for StopFlag {
    /// Becomes readable when the flag is set.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Async-signal-safe: an atomic store and a `write`.
extern "C" fn on_signal(signal: libc::c_int) {
    if let Some(flag) = FLAG.get() {
        flag.stop(signal);
    }
}

extern "C" fn on_nothing(_signal: libc::c_int) {}

/// Lets ended children be waited for: the kernel keeps no status of them if whoever started this process ignored SIGCHLD,
/// which programs inherit.
///
/// # Errors
/// If the kernel refuses.
pub fn keep_ended_children() -> io::Result<()> {
    if is_ignored(libc::SIGCHLD)? { set(libc::SIGCHLD, libc::SIG_DFL) } else { Ok(()) }
}

/// Whether SIGHUP is ignored, as under nohup(1).
///
/// # Errors
/// If the kernel does not tell.
pub fn ignores_hangup() -> io::Result<bool> {
    is_ignored(libc::SIGHUP)
}

fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: all zeroes is a value of this C struct.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: `action` is writable.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(action.sa_sigaction == libc::SIG_IGN) }
}

fn install(signal: i32, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    set(signal, handler as usize)
}

/// Sets what a signal does: a handler that does only what one may, or `SIG_DFL`.
fn set(signal: i32, action_of_signal: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this C struct (no flags, empty mask).
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = action_of_signal;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is readable, and the callers pass no other handlers.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
