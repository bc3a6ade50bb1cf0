//! Breakpoints at the control transfers of a program, so that it runs at full speed between them.
//!
//! From a thread's instruction pointer, the code is followed along every branch up to the next possible transfers,
//! which get a breakpoint. The target of a transfer is followed once the transfer is made. The original code is cached
//! by page, since the process's memory contains the breakpoints: nothing else may read it from there.

use super::tracee::{Memory, Registers};
use anyhow::Context as _;
use fpprof_analysis::oracle::{MAX_INSTRUCTION_BYTES, Successors, successors};
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap, HashSet};

const PAGE_BYTES: u64 = 4096;
/// The one-byte encoding of `int3`.
const BREAKPOINT: u8 = 0xcc;
/// Mask for the offset of an address in its page.
const IN_PAGE: u64 = PAGE_BYTES - 1;

/// A cached page of code.
#[derive(Debug)]
struct Page {
    /// The code without breakpoints.
    bytes: Vec<u8>,
    /// Offsets of the breakpoints in the page.
    placed: Vec<usize>,
}

impl Page {
    fn patched(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &offset in &self.placed {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte = BREAKPOINT;
            }
        }
        bytes
    }
}

/// The breakpoints of one image of a process.
#[derive(Debug)]
pub(super) struct Breakpoints {
    pub(super) memory: Memory,
    pages: BTreeMap<u64, Page>,
    /// Addresses of instructions that were followed.
    followed: HashSet<u64>,
    /// The original byte at each breakpoint.
    placed: HashMap<u64, u8>,
}

impl Breakpoints {
    /// Creates an empty set.
    ///
    /// # Errors
    /// If the memory of the process cannot be opened.
    pub(super) fn new(pid: Pid) -> anyhow::Result<Self> {
        Ok(Self {
            memory: Memory::open(pid)?,
            pages: BTreeMap::new(),
            followed: HashSet::new(),
            placed: HashMap::new(),
        })
    }

    /// Whether there is a breakpoint at `address`.
    pub(super) fn has(&self, address: u64) -> bool {
        self.placed.contains_key(&address)
    }

    /// Places a breakpoint at every transfer that can come next from `ip`. `is_code` says whether breakpoints may be
    /// placed at an address. Returns `false` if none may be at `ip` itself, or it cannot be read.
    ///
    /// # Errors
    /// If the code cannot be changed.
    pub(super) fn follow(&mut self, ip: u64, is_code: impl Fn(u64) -> bool) -> anyhow::Result<bool> {
        if self.followed.contains(&ip) {
            return Ok(true);
        }
        if !is_code(ip) || self.page(ip & !IN_PAGE).is_none() {
            return Ok(false);
        }
        let mut open = vec![ip];
        while let Some(address) = open.pop() {
            if !self.followed.insert(address) {
                continue;
            }
            let next = match successors(&self.bytes(address), address) {
                Successors::One(next) => [Some(next), None],
                Successors::Two(one, other) => [Some(one), Some(other)],
                Successors::Transfer(next) => {
                    self.place(address)?;
                    // The target is followed when it is reached.
                    [next.filter(|&next| is_code(next)), None]
                }
                Successors::None => [None, None],
            };
            if next.into_iter().flatten().all(&is_code) {
                open.extend(next.into_iter().flatten());
            } else {
                // It may leave the code in which breakpoints may be placed, so the thread must stop here.
                self.place(address)?;
            }
        }
        Ok(true)
    }

    /// The bytes of the instruction at an address and of what follows, without breakpoints; fewer bytes if the rest
    /// cannot be read.
    pub(super) fn bytes(&mut self, address: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_INSTRUCTION_BYTES);
        let mut at = address;
        while bytes.len() < MAX_INSTRUCTION_BYTES {
            let missing = MAX_INSTRUCTION_BYTES.saturating_sub(bytes.len());
            let Some(page) = self.page(at & !IN_PAGE) else { break };
            let Some(rest) = page.bytes.get(offset(at)..) else { break };
            bytes.extend(rest.iter().take(missing));
            let Some(next) = (at & !IN_PAGE).checked_add(PAGE_BYTES) else { break };
            at = next;
        }
        bytes
    }

    /// Replaces breakpoints by the original bytes in `bytes`, which were read from `address`.
    pub(super) fn restore(&self, address: u64, bytes: &mut [u8]) {
        if self.placed.is_empty() {
            return;
        }
        for (at, byte) in (address..).zip(bytes) {
            if let Some(original) = self.placed.get(&at) {
                *byte = *original;
            }
        }
    }

    /// Removes a breakpoint until [`Self::put_back`].
    ///
    /// # Errors
    /// If the code cannot be changed.
    pub(super) fn remove(&self, address: u64) -> anyhow::Result<()> {
        match self.placed.get(&address) {
            Some(&original) => self.write(address, &[original]),
            None => Ok(()),
        }
    }

    /// Puts back a removed breakpoint. Errors are ignored, since the process may be gone.
    pub(super) fn put_back(&self, address: u64) {
        if self.has(address) {
            let _ = self.write(address, &[BREAKPOINT]);
        }
    }

    /// Puts all breakpoints back.
    ///
    /// # Errors
    /// If the code cannot be changed.
    pub(super) fn place_again(&self) -> anyhow::Result<()> {
        let placed = self.pages.iter().filter(|(_, page)| !page.placed.is_empty());
        placed.into_iter().try_for_each(|(&at, page)| self.write(at, &page.patched()))
    }

    /// Removes all breakpoints temporarily, for another process that runs in the same memory.
    ///
    /// # Errors
    /// If the code cannot be changed.
    pub(super) fn lift(&self) -> anyhow::Result<()> {
        self.lift_from(&self.memory)
    }

    /// Removes all breakpoints from a new process that has a copy of the memory, or the same memory. Returns whether it
    /// has the same, in which they are gone from the first process, too; `None` if there are no breakpoints.
    ///
    /// # Errors
    /// If its code cannot be changed.
    pub(super) fn lift_in(&self, pid: Pid) -> anyhow::Result<Option<bool>> {
        let mut probes = self.placed.iter().filter(|(_, original)| **original != BREAKPOINT).take(2).peekable();
        if probes.peek().is_none() {
            return Ok(None);
        }
        self.lift_from(&Memory::open(pid)?)?;
        // Two of them, since one may be removed for a step.
        let is_gone = |(&address, &original): (&u64, &u8)| {
            let mut byte = [0];
            self.memory.read(address, &mut byte) == 1 && byte == [original]
        };
        Ok(Some(probes.all(is_gone)))
    }

    fn lift_from(&self, memory: &Memory) -> anyhow::Result<()> {
        let mut pages = self.pages.iter().filter(|(_, page)| !page.placed.is_empty());
        pages.try_for_each(|(&at, page)| memory.write(at, &page.bytes).with_context(|| changing(at)))
    }

    /// Removes all breakpoints if a system call, whose registers these are, is about to move memory with some of them, or to
    /// give it back.
    ///
    /// # Sources
    /// mremap and madvise in the kernel's `arch/x86/entry/syscalls/syscall_64.tbl`; the first two arguments are in `di` and
    /// `si`.
    pub(super) fn call_begins(&mut self, regs: &Registers) {
        const CALLS: [u64; 2] = [25, 28];
        const DI: usize = 7;
        const SI: usize = 6;
        let (start, len) = (regs.by_number(DI).unwrap_or(0), regs.by_number(SI).unwrap_or(0));
        // Whole pages.
        let range = start..start.saturating_add(len.checked_next_multiple_of(PAGE_BYTES).unwrap_or(len));
        if CALLS.contains(&regs.ax) && self.placed.keys().any(|address| range.contains(address)) {
            self.forget();
        }
    }

    /// Removes all breakpoints and forgets the cached code, because mappings have changed. Nothing is written where
    /// something else is mapped now.
    pub(super) fn forget(&mut self) {
        let mut present = Vec::new();
        for (&at, page) in self.pages.iter().filter(|(_, page)| !page.placed.is_empty()) {
            present.resize(page.bytes.len(), 0);
            if self.memory.read(at, &mut present) == present.len() && present == page.patched() {
                let _ = self.memory.write(at, &page.bytes);
            }
        }
        self.pages.clear();
        self.followed.clear();
        self.placed.clear();
    }

    fn place(&mut self, address: u64) -> anyhow::Result<()> {
        let offset = offset(address);
        let Some(page) = self.page(address & !IN_PAGE) else { return Ok(()) };
        let Some(&original) = page.bytes.get(offset) else { return Ok(()) };
        page.placed.push(offset);
        self.placed.insert(address, original);
        self.write(address, &[BREAKPOINT])
    }

    /// The page at an address, cached; `None` if it cannot be read.
    fn page(&mut self, at: u64) -> Option<&mut Page> {
        if !self.pages.contains_key(&at) {
            let mut bytes = vec![0; usize::try_from(PAGE_BYTES).ok()?];
            if self.memory.read(at, &mut bytes) < bytes.len() {
                return None;
            }
            self.pages.insert(at, Page { bytes, placed: Vec::new() });
        }
        self.pages.get_mut(&at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.memory.write(at, bytes).with_context(|| changing(at))
    }
}

fn changing(at: u64) -> String {
    format!("placing breakpoints at {at:#x}")
}

fn offset(address: u64) -> usize {
    usize::try_from(address & IN_PAGE).unwrap_or(0)
}
