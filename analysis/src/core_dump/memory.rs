//! Reads the memory in a core, one page at a time.

use super::{Core, Load};
use crate::modules::ReadSeek;
use fpprof_unwind::{Memory, ReadFault};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fmt;
use std::io::SeekFrom;

const PAGE: u64 = 4096;
/// The most cached pages: 16 MiB, many times what a stack needs.
const MAX_PAGES: usize = 4096;

/// Reads parts of a read-only mapping that are not in the core from the mapped file.
pub(super) type FileBytes<'a> = dyn Fn(u64, usize) -> Option<Vec<u8>> + 'a;

/// The memory of a core's process.
pub(super) struct CoreMemory<'a> {
    core: &'a Core,
    files: &'a FileBytes<'a>,
    state: RefCell<State>,
}

struct State {
    reader: Box<dyn ReadSeek>,
    /// By address; `None` for pages that are not available.
    pages: FxHashMap<u64, Option<Box<[u8]>>>,
}

impl fmt::Debug for CoreMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreMemory").finish_non_exhaustive()
    }
}

impl<'a> CoreMemory<'a> {
    pub(super) fn new(core: &'a Core, reader: Box<dyn ReadSeek>, files: &'a FileBytes<'a>) -> Self {
        Self { core, files, state: RefCell::new(State { reader, pages: FxHashMap::default() }) }
    }

    /// Copies bytes of a single page.
    fn copy(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let mut state = self.state.borrow_mut();
        let page = address & !(PAGE - 1);
        if state.pages.len() >= MAX_PAGES && !state.pages.contains_key(&page) {
            state.pages.clear();
        }
        if !state.pages.contains_key(&page) {
            let bytes = self.page(&mut *state.reader, page);
            state.pages.insert(page, bytes);
        }
        let bytes = state.pages.get(&page)?.as_ref()?;
        let at = usize::try_from(address.checked_sub(page)?).ok()?;
        out.copy_from_slice(bytes.get(at..at.checked_add(out.len())?)?);
        Some(())
    }

    fn page(&self, reader: &mut dyn ReadSeek, page: u64) -> Option<Box<[u8]>> {
        let load = self.core.load_at(page);
        if let Some(bytes) = load.and_then(|load| in_core(load, reader, page)) {
            return Some(bytes);
        }
        // Writable memory may have changed since it was mapped. Debuggers leave out only read-only mappings.
        if load.is_some_and(|load| load.writable) {
            return None;
        }
        (self.files)(page, usize::try_from(PAGE).ok()?).map(Vec::into_boxed_slice)
    }
}

/// A page from the core, if all of it is there, or all of it up to the end of the segment.
fn in_core(load: &Load, reader: &mut dyn ReadSeek, page: u64) -> Option<Box<[u8]>> {
    let skipped = page.checked_sub(load.start)?;
    let held = load.file_bytes.checked_sub(skipped).filter(|&held| held > 0)?.min(PAGE);
    let mut bytes = vec![0; usize::try_from(held).ok()?];
    reader.seek(SeekFrom::Start(load.file_offset.checked_add(skipped)?)).ok()?;
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes.into_boxed_slice())
}

impl Memory for CoreMemory<'_> {
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        let mut word = [0; 8];
        self.read(avma, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        let mut address = avma;
        let mut rest = buf;
        while !rest.is_empty() {
            let to_end = PAGE - address % PAGE;
            let n = rest.len().min(usize::try_from(to_end).unwrap_or(rest.len()));
            let (now, later) = rest.split_at_mut(n);
            self.copy(address, now).ok_or(ReadFault::Hole)?;
            address = address.wrapping_add(n as u64);
            rest = later;
        }
        Ok(())
    }

    fn is_same_stack(&self, one: u64, other: u64) -> bool {
        match (self.core.load_at(one), self.core.load_at(other)) {
            (Some(one), Some(other)) => one.start == other.start,
            _ => true,
        }
    }
}
