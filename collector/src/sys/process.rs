//! Clocks, resources and other processes.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: all zeroes is a value of this C struct of integers.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: `time` is writable. The clocks we ask for always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// `CLOCK_MONOTONIC`, the clock of all times in a recording, nanoseconds. Corrected for the time namespace, to match
/// the kernel's events.
#[must_use]
pub fn monotonic_ns() -> u64 {
    static OFFSET_NS: OnceLock<i64> = OnceLock::new();
    let offsets = || std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let offset_ns = *OFFSET_NS.get_or_init(|| monotonic_offset_ns(&offsets()).unwrap_or(0));
    clock_ns(libc::CLOCK_MONOTONIC).wrapping_sub(offset_ns.cast_unsigned())
}

/// The offset that a time namespace adds to `CLOCK_MONOTONIC`, from the text of `timens_offsets`, see
/// `time_namespaces(7)`; it cannot change for a process in the namespace.
fn monotonic_offset_ns(offsets: &str) -> Option<i64> {
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        // Kernels before 5.13 print the number of the clock, 1.
        let is_monotonic = matches!(fields.next()?, "monotonic" | "1");
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (seconds, nanoseconds) = (number()?, number()?);
        is_monotonic.then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    };
    offsets.lines().find_map(of)
}

/// CPU time of the calling thread so far, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// `CLOCK_REALTIME`, nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Bytes of a page of memory.
pub(super) fn page_bytes() -> io::Result<usize> {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// Resource usage of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rusage {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) max_rss_bytes: u64,
}

impl Rusage {
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// Resource usage of this process so far, all threads together.
pub(crate) fn rusage() -> Rusage {
    // SAFETY: all zeroes is a value of this C struct of integers.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: `usage` is writable, and RUSAGE_SELF always exists.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_usec).unwrap_or(0) * 1000)
    };
    Rusage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    }
}

/// Gives the calling thread, and those it starts, precedence over all threads without real-time priority.
///
/// # Sources
/// sched(7): `SCHED_FIFO`.
pub(crate) fn set_realtime(priority: u8) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this C struct of integers.
    let mut param: libc::sched_param = unsafe { zeroed() };
    param.sched_priority = priority.into();
    // SAFETY: `param` is readable; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) }).map(drop)
}

/// Whether this program was executed with other rights than its caller's.
///
/// # Sources
/// `AT_SECURE` in getauxval(3).
pub(crate) fn is_secure_execution() -> bool {
    // SAFETY: it reads what the kernel has handed over at the start, and takes any key.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Reads memory of another process; returns how many bytes from the start could be read.
pub(crate) fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    let Ok(pid) = i32::try_from(pid) else { return 0 };
    // SAFETY: `local` is writable for its length; the kernel checks the other's memory.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// Whether two processes share their memory; `false` if one is gone or the kernel does not tell.
///
/// # Sources
/// kcmp(2); `KCMP_VM` in the kernel's `include/uapi/linux/kcmp.h`.
#[must_use]
pub fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: libc::c_long = 1;
    let [one, other] = [one, other].map(libc::c_long::from);
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

/// A file descriptor that becomes readable when the process ends.
pub(crate) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    let fd = check(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the process behind a pidfd has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one writable entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// Sends SIGTERM to the process behind a pidfd; no error if it is already gone.
pub(crate) fn terminate(pidfd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers that are followed (siginfo may be null); the result is checked.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGTERM, std::ptr::null::<u8>(), 0)
    };
    match check(i32::try_from(result).unwrap_or(-1)) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Sends SIGSTOP to one thread of a process, which stops the whole process unless the thread is traced; no error if it is
/// already gone.
pub fn stop_thread(process: i32, thread: i32) -> io::Result<()> {
    // SAFETY: no pointers; the result is checked.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGSTOP) };
    match check(i32::try_from(result).unwrap_or(-1)) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Lets a thread that we trace execute one instruction, with a signal by its number or 0: real-time signals have no
/// names.
pub fn step_thread(thread: i32, signal: i32) -> io::Result<()> {
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    let signal = std::ptr::without_provenance_mut::<libc::c_void>(usize::try_from(signal).unwrap_or(0));
    // SAFETY: neither pointer is followed: the first is ignored, the second is the signal; the result is checked.
    let result = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, nowhere, signal) };
    check(i32::try_from(result).unwrap_or(-1)).map(drop)
}

/// The wait status of a child that has ended; `None` while it runs.
pub(crate) fn try_wait(pid: u32) -> io::Result<Option<i32>> {
    let mut status = 0;
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: `status` is writable.
    let ended = check(unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) })?;
    Ok((ended == pid).then_some(status))
}

/// The limit of open files of this process. Dropping the value restores it.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    before: libc::rlimit,
    now: libc::rlimit,
}

impl OpenFiles {
    /// Raises the soft limit to the hard limit.
    pub(crate) fn raise() -> Self {
        // SAFETY: all zeroes is a value of this C struct of integers.
        let mut before: libc::rlimit = unsafe { zeroed() };
        // SAFETY: `before` is writable, and the limit always exists.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) };
        let now = libc::rlimit { rlim_cur: before.rlim_max, rlim_max: before.rlim_max };
        // SAFETY: `now` is readable.
        let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now) } == 0;
        Self { before, now: if is_raised { now } else { before } }
    }

    /// The current limit.
    pub(crate) fn limit(&self) -> u64 {
        self.now.rlim_cur
    }

    /// Restores the original limit, for a command. Async-signal-safe.
    pub(super) fn restore(&self) {
        // SAFETY: `before` is readable. It was the limit already: nothing can be wrong with it.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.before) };
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.restore();
    }
}
