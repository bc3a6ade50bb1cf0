//! Control of a recording that is taken in parts while it runs.

use fpprof_recording::model::FileIdentity;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Shared between the recorder and what takes the parts.
#[derive(Debug, Default)]
pub struct PartsControl {
    is_flush_requested: AtomicBool,
    n_reads: AtomicU64,
    unused_files: Mutex<Vec<UnusedFile>>,
    n_dropped: AtomicU64,
}

/// A file that the recorder may forget: no process has it mapped any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnusedFile {
    /// The file.
    pub identity: FileIdentity,
    /// It is used again if it was mapped after this time, `CLOCK_MONOTONIC` nanoseconds. If its bytes were recorded and are in
    /// no later part, it must be forgotten in any case: `u64::MAX`.
    pub as_of_ns: u64,
}

impl PartsControl {
    /// Counts a read of the rings.
    pub(crate) fn note_read(&self) {
        self.n_reads.fetch_add(1, Ordering::Release);
    }

    /// How often the rings were read; at least each ten seconds, unless the recorder hangs.
    #[must_use]
    pub fn n_reads(&self) -> u64 {
        self.n_reads.load(Ordering::Acquire)
    }

    /// Has the recorder flush at its next read of the rings.
    pub fn request_flush(&self) {
        self.is_flush_requested.store(true, Ordering::Release);
    }

    /// Whether a flush was requested and not made yet.
    #[must_use]
    pub fn is_flush_requested(&self) -> bool {
        self.is_flush_requested.load(Ordering::Acquire)
    }

    /// The same; it counts as made from now on.
    #[must_use]
    pub fn take_flush_request(&self) -> bool {
        self.is_flush_requested.swap(false, Ordering::AcqRel)
    }

    /// Tells the recorder which files it may forget: it closes them, and looks at them anew when they are mapped again.
    pub fn forget(&self, files: Vec<UnusedFile>) {
        self.unused_files.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
    }

    /// Tells the recorder that blocks of process events were dropped: it describes processes again when they are sampled.
    pub fn note_dropped(&self, n_blocks: u64) {
        self.n_dropped.fetch_add(n_blocks, Ordering::AcqRel);
    }

    /// The number of blocks of process events that were dropped.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Acquire)
    }

    /// The files since the last call.
    #[must_use]
    pub fn take_unused_files(&self) -> Vec<UnusedFile> {
        std::mem::take(&mut *self.unused_files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
