//! Control of a recording that is taken in parts while it runs.

use fpprof_recording::model::FileIdentity;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Shared between the recorder and what takes the parts.
#[derive(Debug, Default)]
pub struct PartsControl {
    is_flush_requested: AtomicBool,
    /// Files whose bytes were recorded and are in no later part.
    dropped_files: Mutex<Vec<FileIdentity>>,
}

impl PartsControl {
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

    /// Tells the recorder that the bytes of these files were dropped, because no process had them mapped any more: when
    /// one is mapped again, they must be recorded again.
    pub fn forget(&self, files: Vec<FileIdentity>) {
        self.dropped_files.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
    }

    /// The files dropped since the last call.
    #[must_use]
    pub fn take_dropped_files(&self) -> Vec<FileIdentity> {
        std::mem::take(&mut *self.dropped_files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
