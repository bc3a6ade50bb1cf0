//! A reader that stops after so many bytes.

use super::ReadSeek;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};

/// Most bytes read from one file for one purpose. A hostile ELF may name the same bytes in thousands of sections.
const MAX_READ_BYTES: u64 = 2 << 30;

/// Passes reads through until the budget is spent, and fails from then on.
pub(crate) struct Budget {
    inner: Box<dyn ReadSeek>,
    left_bytes: u64,
}

impl Budget {
    pub(crate) fn new(inner: Box<dyn ReadSeek>) -> Self {
        Self { inner, left_bytes: MAX_READ_BYTES }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("left_bytes", &self.left_bytes).finish_non_exhaustive()
    }
}

impl Read for Budget {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = self.inner.read(buf)?;
        let left = self.left_bytes.checked_sub(n as u64);
        self.left_bytes = left.ok_or_else(|| Error::new(ErrorKind::FileTooLarge, "read budget spent"))?;
        Ok(n)
    }
}

impl Seek for Budget {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.inner.seek(to)
    }
}
