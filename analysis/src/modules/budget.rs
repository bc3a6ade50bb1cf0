//! A reader with a limit of bytes.

use super::ReadSeek;
use bytes::Bytes;
use memmap2::{Advice, MmapOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes read from one file for one purpose. A hostile ELF file may use the same bytes in thousands of
/// sections.
const MAX_READ_BYTES: u64 = 2 << 30;

/// A reader that fails once its budget is spent.
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

/// A budget shared by several readers; each must seek before it reads.
#[derive(Debug, Clone)]
pub(crate) struct SharedBudget {
    inner: Arc<Mutex<Budget>>,
}

impl SharedBudget {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { inner: Arc::new(Mutex::new(budget)) }
    }

    fn lock(&self) -> MutexGuard<'_, Budget> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bytes` bytes at `offset`; `None` if they do not exist or cannot be read. Does not allocate memory for bytes
    /// beyond the end.
    pub(crate) fn read_at<B: Buffer>(&self, offset: u64, bytes: u64) -> Option<B> {
        let mut budget = self.lock();
        if offset.checked_add(bytes)? > budget.seek(SeekFrom::End(0)).ok()? {
            return None;
        }
        budget.seek(SeekFrom::Start(offset)).ok()?;
        B::filled(usize::try_from(bytes).ok()?, &mut *budget).ok()
    }
}

impl Read for SharedBudget {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.lock().read(buf)
    }
}

impl Seek for SharedBudget {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.lock().seek(to)
    }
}

/// An owned buffer that can be read into without a copy.
pub(crate) trait Buffer: Sized {
    /// Reads `len` bytes.
    ///
    /// # Errors
    /// Those of the reader; there may be too few bytes.
    fn filled(len: usize, reader: &mut dyn Read) -> Result<Self>;
}

impl Buffer for Vec<u8> {
    fn filled(len: usize, reader: &mut dyn Read) -> Result<Self> {
        let mut bytes = Self::with_capacity(len);
        reader.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() == len { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

/// From this size on, the memory is mapped at once: a page fault for every 4 KiB takes longer than the reading.
const MAPPED_BYTES: usize = 64 << 10;
/// From this size on, the kernel is asked for huge pages instead.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Buffer for Bytes {
    fn filled(len: usize, reader: &mut dyn Read) -> Result<Self> {
        if len < MAPPED_BYTES {
            let mut bytes = vec![0; len];
            reader.read_exact(&mut bytes)?;
            return Ok(bytes.into());
        }
        let mut options = MmapOptions::new();
        if len < HUGE_PAGE_BYTES {
            options.populate();
        }
        // Anonymous memory, which nobody can truncate.
        let mut map = options.len(len).map_anon()?;
        if len >= HUGE_PAGE_BYTES {
            // Without huge pages it is merely slower.
            let _ = map.advise(Advice::HugePage);
        }
        reader.read_exact(&mut map)?;
        Ok(Self::from_owner(map))
    }
}
