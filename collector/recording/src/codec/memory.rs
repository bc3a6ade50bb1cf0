//! The memory of profiled processes' stacks as known so far in a block, by absolute address.
//!
//! Stacks grow down, so an active frame keeps its address from one sample of a thread to the next. The writer keeps an
//! image of what it has written and writes only the words that differ; the reader applies them to the same image. The
//! image is kept by process and page, not by thread, to cover all stacks a thread runs on (alternate signal stacks,
//! coroutines) and the memory below its stack pointer when it calls the same functions again.

use crate::model::ChunkHole;
use rustc_hash::FxHashMap;

pub(crate) const PAGE_BYTES: usize = 4096;

/// The most pages of a block; the writer closes a block before it needs more. 32 MiB.
pub(crate) const MAX_PAGES: usize = 8192;

pub(crate) type Page = [u8; PAGE_BYTES];

/// Pages by process and page number; pages that were never written are zero and take no memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    index: FxHashMap<(u32, u64), usize>,
    pages: Vec<Box<Page>>,
}

impl Memory {
    /// Clears the image, but keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.index.clear();
    }

    /// Number of pages in use.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn page(&self, pid: u32, number: u64) -> Option<&Page> {
        self.index.get(&(pid, number)).and_then(|&slot| self.pages.get(slot)).map(Box::as_ref)
    }

    /// A page, created if necessary; `None` if there are already [`MAX_PAGES`].
    pub(crate) fn page_mut(&mut self, pid: u32, number: u64) -> Option<&mut Page> {
        let next = self.index.len();
        let slot = match self.index.entry((pid, number)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                if next >= MAX_PAGES {
                    return None;
                }
                match self.pages.get_mut(next) {
                    Some(page) => page.fill(0),
                    None => self.pages.push(Box::new([0; PAGE_BYTES])),
                }
                *new.insert(next)
            }
        };
        self.pages.get_mut(slot).map(Box::as_mut)
    }

    /// The aligned word at `address`; zero if it was never written.
    pub(crate) fn word(&self, pid: u32, address: u64) -> u64 {
        let (number, offset) = split(address);
        self.page(pid, number).map_or(0, |page| word_at(page, offset & !7))
    }

    /// Sets the aligned word at `address`; `None` if there are too many pages.
    pub(crate) fn set_word(&mut self, pid: u32, address: u64, word: u64) -> Option<()> {
        let (number, offset) = split(address);
        set_word_at(self.page_mut(pid, number)?, offset & !7, word);
        Some(())
    }

    /// Copies memory from `address` on into `bytes`.
    pub(crate) fn read(&self, pid: u32, address: u64, bytes: &mut [u8]) {
        for (address, range) in by_page(address, bytes.len()) {
            let (number, offset) = split(address);
            let Some(target) = bytes.get_mut(range) else { continue };
            match self.page(pid, number).and_then(|page| page.get(offset..offset + target.len())) {
                Some(source) => target.copy_from_slice(source),
                None => target.fill(0),
            }
        }
    }
}

/// Splits an address into page number and offset in the page.
pub(crate) fn split(address: u64) -> (u64, usize) {
    let page = PAGE_BYTES as u64;
    (address / page, usize::try_from(address % page).unwrap_or(0))
}

pub(crate) fn word_at(page: &Page, offset: usize) -> u64 {
    page.get(offset..).and_then(|tail| tail.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn set_word_at(page: &mut Page, offset: usize, word: u64) {
    if let Some(bytes) = page.get_mut(offset..).and_then(|tail| tail.first_chunk_mut()) {
        *bytes = word.to_le_bytes();
    }
}

/// Splits `address..address + len` at page boundaries: (address, range within the whole). Addresses wrap at 2^64.
pub(crate) fn by_page(address: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = address.wrapping_add(done as u64);
        let take = (PAGE_BYTES - split(at).1).min(len - done);
        (take > 0).then(|| {
            done += take;
            (at, done - take..done)
        })
    })
}

/// The parts of a chunk of `len` bytes that are not holes. Holes may be anywhere in any order (a file may be invalid):
/// empty ones, and parts below the end of an earlier hole or above the end of the chunk, are ignored.
pub(crate) fn readable(len: usize, holes: &[ChunkHole]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut from = 0;
    let ends = holes.iter().filter(|hole| hole.len > 0).map(move |hole| {
        let start = usize::try_from(hole.offset).unwrap_or(len).min(len);
        (start, start.saturating_add(usize::try_from(hole.len).unwrap_or(len)).min(len))
    });
    ends.chain([(len, len)]).filter_map(move |(start, end)| {
        let part = from..start;
        from = from.max(end);
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the readable parts are the chunk without its holes, whatever the holes.
    #[test]
    fn holes_split_a_chunk() {
        let parts = |holes: &[(u32, u32)]| {
            let holes: Vec<_> = holes.iter().map(|&(offset, len)| ChunkHole { offset, len }).collect();
            readable(100, &holes).map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[]), [(0, 100)]);
        assert_eq!(parts(&[(0, 100)]), []);
        assert_eq!(parts(&[(5, 0), (10, 10)]), [(0, 10), (20, 100)]);
        assert_eq!(parts(&[(10, 10), (30, 5)]), [(0, 10), (20, 30), (35, 100)]);
        assert_eq!(parts(&[(30, 5), (10, 10), (90, 1000), (200, 1)]), [(0, 30), (35, 90)]);
        assert_eq!(parts(&[(10, u32::MAX)]), [(0, 10)]);
    }

    /// Check that memory that was never written is zero, and that words are read back across page boundaries and with
    /// wrapping.
    #[test]
    fn memory_is_zero_until_written() {
        let mut memory = Memory::default();
        let mut bytes = [1; 24];
        memory.read(1, 0xff8, &mut bytes);
        assert_eq!(bytes, [0; 24]);
        memory.set_word(1, 0x1000, 0x0807_0605_0403_0201).unwrap();
        memory.set_word(2, 0xff8, u64::MAX).unwrap();
        memory.read(1, 0xffc, &mut bytes);
        assert_eq!(bytes[..12], [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(memory.word(2, 0xffb), u64::MAX);
        memory.set_word(1, 0u64.wrapping_sub(8), 7).unwrap();
        memory.read(1, 0u64.wrapping_sub(8), &mut bytes);
        assert_eq!(bytes[0], 7);
        memory.clear();
        assert_eq!(memory.word(2, 0xff8), 0);
        memory.set_word(9, 0, 1).unwrap();
        assert_eq!(memory.word(9, 8), 0);
    }

    /// Check that the number of pages has a limit.
    #[test]
    fn pages_are_limited() {
        let mut memory = Memory::default();
        for number in 0..MAX_PAGES as u64 {
            assert!(memory.page_mut(0, number).is_some());
        }
        assert!(memory.page_mut(0, MAX_PAGES as u64).is_none());
        assert!(memory.page_mut(0, 5).is_some());
    }
}
