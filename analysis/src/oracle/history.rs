//! What was mapped while a process was stepped, as the events of a recording.

use crate::address_space::Timeline;
use fpprof_recording::model::{
    CaptureMode, Collector, Comm, FileIdentity, Host, Meta, Mmap, ModuleBytes, Sideband, Target,
};
use std::collections::BTreeMap;

/// `PROT_EXEC`.
///
/// # Sources
/// `include/uapi/asm-generic/mman-common.h`.
const PROT_EXEC: u32 = 4;

/// An executable mapping of the stepped process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveMapping {
    /// First address.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Path as in `/proc/PID/maps`; empty for anonymous memory.
    pub path: Vec<u8>,
    /// The file's identity.
    pub identity: FileIdentity,
}

/// Changes of executable mappings, in order.
#[derive(Debug)]
pub struct History {
    pid: u32,
    events: Vec<Sideband>,
    present: BTreeMap<u64, LiveMapping>,
    start_unix_ns: u64,
    last_ns: u64,
}

impl History {
    /// A process without mappings. The clock is 0 here, at `start_unix_ns` after 1970.
    #[must_use]
    pub fn new(pid: u32, start_unix_ns: u64) -> Self {
        Self { pid, events: Vec::new(), present: BTreeMap::new(), start_unix_ns, last_ns: 0 }
    }

    /// The process ID.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Sideband] {
        &self.events
    }

    /// The time of a sample taken now: later than all before it.
    pub fn sampled(&mut self, time_ns: u64) -> u64 {
        self.last_ns = time_ns.max(self.last_ns.saturating_add(1));
        self.last_ns
    }

    /// Sets the process's name from now on.
    pub fn named(&mut self, name: &[u8], time_ns: u64) {
        let (time_ns, pid) = (self.sampled(time_ns), self.pid);
        let comm = Comm { time_ns, pid, tid: pid, comm: name.to_vec(), exec: false, start_ticks: 0 };
        self.events.push(Sideband::Comm(comm));
    }

    /// Updates the mappings. `false` if nothing changed.
    pub fn update(&mut self, mappings: Vec<LiveMapping>, time_ns: u64) -> bool {
        let new: BTreeMap<u64, LiveMapping> = mappings.into_iter().map(|mapping| (mapping.start, mapping)).collect();
        if new == self.present {
            return false;
        }
        // Later than the previous change, whatever the clock says: only the order matters.
        let time_ns = time_ns.max(self.last_ns.saturating_add(2));
        self.last_ns = time_ns;
        let gone = self.present.values().filter(|old| new.get(&old.start) != Some(old));
        let cuts: Vec<Sideband> = gone.map(|old| event(self.pid, old, time_ns.saturating_sub(1), 0)).collect();
        self.events.extend(cuts);
        let added = new.values().filter(|mapping| self.present.get(&mapping.start) != Some(mapping));
        self.events.extend(added.map(|mapping| event(self.pid, mapping, time_ns, PROT_EXEC)));
        self.present = new;
        true
    }

    /// Stores the bytes of a module that is not in a file.
    pub fn add_module(&mut self, path: &[u8], bytes: Vec<u8>) {
        let module = ModuleBytes { path: path.to_vec(), identity: FileIdentity::default(), bytes };
        self.events.push(Sideband::Module(module));
    }

    /// The events as a timeline. Files keep their numbers as the history grows.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline::new(self.events.iter().cloned())
    }

    /// Metadata as of a recording, for [`crate::modules::ModuleTable::new`].
    #[must_use]
    pub fn meta(&self) -> Meta {
        Meta {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            start_ns: 0,
            start_unix_ns: self.start_unix_ns,
            host: Host { arch: "x86_64".to_owned(), ..Host::default() },
            collector: Collector::Imported,
            events: Vec::new(),
            mode: CaptureMode::Dwarf { stack_bytes: u32::MAX },
            kernel_stacks: false,
            scrubbed: false,
            target: Target::Pids(vec![self.pid]),
            not_counted: Vec::new(),
            aggregated_ns: None,
        }
    }
}

fn event(pid: u32, mapping: &LiveMapping, time_ns: u64, prot: u32) -> Sideband {
    Sideband::Mmap(Mmap {
        time_ns,
        pid,
        tid: pid,
        start: mapping.start,
        len: mapping.end.saturating_sub(mapping.start),
        file_offset: mapping.file_offset,
        prot,
        flags: 0,
        path: mapping.path.clone(),
        identity: mapping.identity,
        synthesized: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Contents;

    fn mapping(start: u64, end: u64, path: &[u8]) -> LiveMapping {
        LiveMapping { start, end, file_offset: 0, path: path.to_vec(), identity: FileIdentity::default() }
    }

    fn present(history: &History) -> Vec<(u64, u64, Option<u32>)> {
        let timeline = history.timeline();
        let key = timeline.place(7, 7, u64::MAX).space.expect("the process has a space");
        let content = Contents::default().get(&timeline, key);
        content.iter().map(|mapping| (mapping.start, mapping.end, mapping.file.map(|file| file.0))).collect()
    }

    /// Check that the last state of a history has the latest mappings, also if a file was replaced by another, and that
    /// files keep their numbers.
    #[test]
    fn the_present_is_what_was_mapped_last() {
        let mut history = History::new(7, 0);
        assert!(history.update(vec![mapping(0x1000, 0x3000, b"/a"), mapping(0x5000, 0x6000, b"/b")], 10));
        assert!(!history.update(vec![mapping(0x5000, 0x6000, b"/b"), mapping(0x1000, 0x3000, b"/a")], 11));
        assert_eq!(present(&history), [(0x1000, 0x3000, Some(0)), (0x5000, 0x6000, Some(1))]);
        assert!(history.update(vec![mapping(0x1000, 0x2000, b"/a"), mapping(0x5000, 0x6000, b"/c")], 11));
        assert_eq!(present(&history), [(0x1000, 0x2000, Some(0)), (0x5000, 0x6000, Some(2))]);
        assert!(history.update(vec![mapping(0x7000, 0x8000, b"")], 11));
        assert_eq!(present(&history), [(0x7000, 0x8000, None)]);
    }
}
