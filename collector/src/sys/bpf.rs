//! Functions of libbpf for which libbpf-rs has no safe wrapper.

use libbpf_rs::libbpf_sys;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A type for which any bytes of its size are a valid value.
///
/// # Safety
/// The type must be `repr(C)` and contain only integers.
pub(crate) unsafe trait Pod: Copy {}

/// Reads a value from the start of `bytes`; `None` if they are too few.
pub(crate) fn read_pod<T: Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the slice holds as many bytes as the value needs, no alignment is required, and `Pod` means that any
    //         bytes are valid.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

// SAFETY: `repr(C)`, integers only, without padding (`_Static_assert` in abi.h).
unsafe impl Pod for crate::bpf::types::sample_head {}
// SAFETY: likewise.
unsafe impl Pod for crate::bpf::types::interrupted {}
// SAFETY: likewise.
unsafe impl Pod for crate::bpf::types::cfi_miss {}
// SAFETY: likewise.
unsafe impl Pod for crate::bpf::types::open_wait {}

/// Keeps the kernel's run-time statistics of BPF programs enabled while it lives.
#[derive(Debug)]
pub(crate) struct StatisticsGuard {
    _fd: OwnedFd,
}

impl StatisticsGuard {
    /// `None` if the kernel refuses (`CAP_SYS_ADMIN` is needed).
    pub(crate) fn enable() -> Option<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        // SAFETY: a non-negative result is a new descriptor that nobody else owns.
        (fd >= 0).then(|| Self { _fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// How often and how long a program ran while statistics were enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProgramStatistics {
    pub(crate) run_ns: u64,
    pub(crate) runs: u64,
    /// How often it was skipped because a program was already running on that CPU; counted even without statistics.
    pub(crate) misses: u64,
}

/// Asks the kernel for the statistics of a program.
pub(crate) fn program_statistics(program: BorrowedFd<'_>) -> io::Result<ProgramStatistics> {
    // SAFETY: all zeroes is a value of this C struct of integers.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { zeroed() };
    let mut len = u32::try_from(size_of::<libbpf_sys::bpf_prog_info>()).unwrap_or(u32::MAX);
    // SAFETY: `info` is writable for `len` bytes.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(ProgramStatistics { run_ns: info.run_time_ns, runs: info.run_cnt, misses: info.recursion_misses })
}

/// Waits until no BPF program that was detached before is still running: they run without being preempted, and the
/// kernel waits for all such code. If it refuses to (with `nohz_full`), this waits many times as long as any of them runs.
pub(crate) fn wait_for_programs() {
    const LONGER_THAN_ANY: Duration = Duration::from_millis(100);
    // SAFETY: the call takes no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(LONGER_THAN_ANY);
    }
}

/// Storage for libbpf's object; libbpf-rs wants it uninitialised.
pub(crate) type ObjectStorage = MaybeUninit<libbpf_rs::OpenObject>;
