//! Reads for which the kernel takes the lock of a process's address space: its mappings, its environment, its memory.

use super::blocking::{BlockingCalls, MEMORY, Place};
use crate::sys::thread_cpu_ns;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

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
}

impl Default for MemoryReads {
    fn default() -> Self {
        Self(Rc::new(Reads { calls: RefCell::new(BlockingCalls::new(MEMORY)), cpu_ns: Cell::new(0) }))
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
    /// If the thread is gone, access is denied, or the process does not answer (`TimedOut`).
    pub(crate) fn maps(&self, pid: u32, tid: u32) -> io::Result<Vec<u8>> {
        let read = self.read(pid, move || std::fs::read(format!("/proc/{pid}/task/{tid}/maps")));
        read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// CPU time of all reads so far, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.0.cpu_ns.get()
    }
}
