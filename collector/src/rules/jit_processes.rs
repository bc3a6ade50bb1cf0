//! Processes in which the kernel may walk JIT-compiled code by frame pointers.
//!
//! Code that is in a jitdump is unwound by the dump's call frame information, which the kernel does not have. So walks
//! give up in code without a file until the process is known not to write one: a program maps the marker of its dump
//! before it runs the code.

use crate::bpf::types::program_run;
use crate::proc::{MemoryReads, parse_maps};
use fpprof_recording::compiled::jitdump::is_dump;
use fpprof_recording::model::Mmap;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use rustc_hash::FxHashMap;

/// The most processes remembered. If there are more, all are forgotten: they will be missed again.
pub(crate) const MAX_JIT_PROCESSES: u32 = 4096;

/// What is known of the processes with JIT-compiled code.
#[derive(Debug)]
pub(crate) struct JitProcesses {
    map: MapHandle,
    memory: MemoryReads,
    known: FxHashMap<u32, Known>,
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The program whose code was missed; none if only its dump is known.
    program: Option<[u64; 2]>,
    has_dump: bool,
}

impl JitProcesses {
    /// `map` is that of the BPF programs.
    pub(crate) fn new(map: MapHandle, memory: MemoryReads) -> Self {
        Self { map, memory, known: FxHashMap::default() }
    }

    /// Notes a mapping: if it is the marker of a jitdump, the process's code is walked by frame pointers no longer.
    pub(crate) fn mapped(&mut self, mmap: &Mmap) {
        if mmap.prot & libc::PROT_EXEC.cast_unsigned() == 0 || !is_dump(&mmap.path) {
            return;
        }
        self.make_room();
        self.known.entry(mmap.pid).or_default().has_dump = true;
        let _ = self.map.delete(&mmap.pid.to_ne_bytes());
    }

    /// Decides about the process of a thread, if a walk was given up in its code without a file for the first time. `true`
    /// if such walks go on from now on.
    pub(crate) fn missed(&mut self, pid: u32, tid: u32, program: &program_run) -> bool {
        let program = [program.start_boottime, program.exec_id];
        let known = self.known.get(&pid).copied().unwrap_or_default();
        if known.program == Some(program) {
            return false;
        }
        // The marker may have been mapped long ago, or by a parent process.
        let maps_dump = |maps: &[u8]| parse_maps(maps).any(|entry| is_dump(&entry.path));
        let Some(maps_dump) = self.memory.use_maps(pid, tid, maps_dump) else { return false };
        let is_new = known.program.is_some();
        let has_dump = known.has_dump && !is_new || maps_dump;
        self.make_room();
        self.known.insert(pid, Known { program: Some(program), has_dump });
        let value = program.map(u64::to_ne_bytes).concat();
        !has_dump && self.map.update(&pid.to_ne_bytes(), &value, MapFlags::ANY).is_ok()
    }

    fn make_room(&mut self) {
        if self.known.len() >= MAX_JIT_PROCESSES as usize {
            for (pid, _) in self.known.drain() {
                let _ = self.map.delete(&pid.to_ne_bytes());
            }
        }
    }
}

const _: () = assert!(size_of::<program_run>() == 16 && std::mem::offset_of!(program_run, exec_id) == 8);
