//! Reads for which the kernel takes the lock of a process's address space: its mappings, its environment, its memory.

use super::blocking::{BlockingCalls, MEMORY, Place};
use super::effective_uid;
use crate::share::Credit;
use crate::sys::{monotonic_ns, thread_cpu_ns};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read as _};
use std::rc::Rc;

/// The most bytes read of a process's mappings. The kernel writes a line for each, with a path of up to 4 KiB; a process has
/// 65,530 at most, unless `vm.max_map_count` is raised.
pub(super) const MAX_MAPS_BYTES: u64 = 64 << 20;
/// The part of the time in which the mappings of one user's processes are read by [`MemoryReads::use_maps`], and what is
/// available at once.
const SHARE: u64 = 20;
const AT_ONCE_NS: u64 = 50_000_000;

/// Makes such reads on another thread, each for at most half a second. Clones share their limits.
///
/// A process may hold the lock for as long as a file system does not answer, for example while it maps a file of it.
///
/// # Sources
/// `nfs_file_mmap` in the kernel's `fs/nfs/file.c` asks the server under `mmap_lock`; `m_start` in `fs/proc/task_mmu.c` waits
/// for that lock before Linux 6.17.
#[derive(Debug, Clone)]
pub(crate) struct MemoryReads(Rc<Reads>);

#[derive(Debug)]
struct Reads {
    calls: RefCell<BlockingCalls>,
    /// CPU time of all reads that have returned in time.
    cpu_ns: Cell<u64>,
    /// Time budget for [`MemoryReads::use_maps`].
    credit: RefCell<Credit>,
}

impl Default for MemoryReads {
    fn default() -> Self {
        Self(Rc::new(Reads {
            calls: RefCell::new(BlockingCalls::new(MEMORY)),
            cpu_ns: Cell::new(0),
            credit: RefCell::new(Credit::new(AT_ONCE_NS, SHARE)),
        }))
    }
}

impl MemoryReads {
    /// Makes a read of this process; `None` if it does not return in time, or if an earlier one has yet to return.
    pub(crate) fn read<T: Send + 'static>(&self, pid: u32, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let timed = move || {
            let before_ns = thread_cpu_ns();
            let value = what();
            (value, thread_cpu_ns().saturating_sub(before_ns))
        };
        let (value, cpu_ns) = self.0.calls.borrow_mut().call(Place::memory_of(pid), timed)?;
        self.0.cpu_ns.set(self.0.cpu_ns.get().saturating_add(cpu_ns));
        Some(value)
    }

    /// `/proc/PID/task/TID/maps`.
    ///
    /// # Errors
    /// If the thread is gone, access is denied, the process does not answer (`TimedOut`), or it has too many mappings
    /// (`FileTooLarge`).
    pub(crate) fn maps(&self, pid: u32, tid: u32) -> io::Result<Vec<u8>> {
        let read = self.read(pid, move || {
            let mut text = Vec::new();
            let file = File::open(format!("/proc/{pid}/task/{tid}/maps"))?;
            let n = file.take(MAX_MAPS_BYTES).read_to_end(&mut text)?;
            if n as u64 == MAX_MAPS_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
        });
        read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Passes `/proc/PID/task/TID/maps` to `what`, for what a process can cause with each sample: `None` if it cannot be read, or
    /// if reads for processes of the same user have taken their part of the time.
    pub(crate) fn use_maps<T>(&self, pid: u32, tid: u32, what: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let user = effective_uid(pid).unwrap_or(u32::MAX);
        let now_ns = monotonic_ns();
        if !self.0.credit.borrow().has(user, now_ns) {
            return None;
        }
        let spent_ns = || thread_cpu_ns().saturating_add(self.cpu_ns());
        let before_ns = spent_ns();
        let value = self.maps(pid, tid).ok().map(|text| what(&text));
        let mut credit = self.0.credit.borrow_mut();
        credit.forget(now_ns);
        credit.spend(user, now_ns, spent_ns().saturating_sub(before_ns));
        value
    }

    /// CPU time of all reads so far, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.0.cpu_ns.get()
    }
}
