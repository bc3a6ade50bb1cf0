//! Ends of stacks that the BPF programs cannot find: user space derives them from the process's mappings and passes
//! them on.
//!
//! On `PREEMPT_RT` the kernel looks up no mapping for a program that runs with interrupts disabled (`bpf_find_vma`
//! returns EBUSY, `mmap_unlock_get_irq_work` in `kernel/bpf/mmap_unlock_work.h`). On other kernels that happens
//! occasionally.

use crate::bpf::types;
use crate::proc::{MemoryReads, parse_maps};
use crate::sys::SharedMap;
use fpprof_recording::model::{Sample, StackEnd, StackEndSource};
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

const N_HINTS: usize = types::limit::STACK_HINTS.0 as usize;

/// Size of the map, bytes.
pub(crate) const HINTS_BYTES: usize = N_HINTS * size_of::<types::stack_hint>();

/// The hints about threads' stacks from user space to the BPF programs.
#[derive(Debug)]
pub(crate) struct StackHints {
    map: SharedMap,
    memory: MemoryReads,
    /// Stacks whose end was found here.
    n_found: u64,
}

impl StackHints {
    pub(crate) fn new(map: SharedMap, memory: MemoryReads) -> Self {
        Self { map, memory, n_found: 0 }
    }

    /// Number of stacks without an end for which one was found here.
    pub(crate) fn n_found(&self) -> u64 {
        self.n_found
    }

    /// Finds the end of a sample's stack that was copied without knowing it, drops what lies beyond, and passes it to
    /// the programs for the thread's next samples. It stays unknown if the process is gone or does not answer, or if this was
    /// asked too often.
    pub(crate) fn find_end(&mut self, sample: &mut Sample, start_boottime: u64) {
        let Some(sp) = sample.user_regs.map(|regs| regs.sp()) else { return };
        let Some((start, end)) = self.mapping(sample, sp) else { return };
        self.n_found += 1;
        let depth = usize::try_from(end - sp).unwrap_or(usize::MAX);
        sample.stack.truncate(depth.saturating_add(usize::from(sample.bytes_below_sp)));
        let len = u32::try_from(sample.stack.len()).unwrap_or(u32::MAX);
        sample.stack_holes.retain_mut(|hole| {
            hole.len = hole.len.min(len.saturating_sub(hole.offset));
            hole.len > 0
        });
        sample.stack_end = Some(StackEnd { address: end, source: StackEndSource::Mapping });
        self.write([start, end, start_boottime, u64::from(sample.tid)]);
    }

    /// The mapping of a sample's process that contains an address.
    fn mapping(&self, sample: &Sample, address: u64) -> Option<(u64, u64)> {
        let find = |text: &[u8]| parse_maps(text).find(|entry| (entry.start..entry.end).contains(&address));
        let found = self.memory.use_maps(sample.pid, sample.tid, find)??;
        Some((found.start, found.end))
    }

    fn write(&self, words: [u64; 4]) {
        let slot = usize::try_from(words[3]).unwrap_or(0) % N_HINTS * size_of::<types::stack_hint>();
        let check = words.into_iter().fold(0, |check, word| check ^ word);
        for (i, word) in words.into_iter().chain([check]).enumerate() {
            if let Some(cell) = self.map.word(slot + i * 8) {
                cell.store(word, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(offset_of!(types::stack_hint, start) == 0 && offset_of!(types::stack_hint, check) == 32);
