//! Names of code that a program compiled while it ran, from the dump it kept for perf: by address and time.

use super::demangle::demangle;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::jitdump::{CODE_LOAD, CODE_MOVE, HEADER_BYTES, LOAD_BYTES, MAGIC, PREFIX_BYTES};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Most loads and moves of a recording, some 150 bytes each.
const MAX_LOADS: usize = 4 << 20;

/// A flag of the header: times are those of a counter of the processor.
const ARCH_TIMESTAMP: u64 = 1;

/// A function that a process compiled: an index over all of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JitCode(u32);

/// The code that processes compiled, as far as the recording holds their dumps.
#[derive(Debug, Default)]
pub struct JitCodes {
    dumps: FxHashMap<u32, History>,
    names: Vec<Vec<u8>>,
    warnings: Vec<String>,
}

/// Where code was from some time on.
#[derive(Debug, Clone, Copy)]
struct Load {
    time_ns: u64,
    start: u64,
    /// First address above.
    end: u64,
    /// `None` where code went away.
    code: Option<JitCode>,
}

/// Where the code of a process was, and when.
///
/// A tree of segments over the addresses at which code begins and ends: each load stands at the few nodes that make up its
/// range, in the order of time, and an address is asked at the nodes above it.
#[derive(Debug, Default)]
struct History {
    /// Ascending in time.
    loads: Vec<Load>,
    /// Ascending and distinct.
    bounds: Vec<u64>,
    /// The segment from bound *i* to the next is node `bounds.len() + i`; above node *n* is node *n / 2*, down to 1.
    nodes: Vec<Vec<u32>>,
}

impl JitCodes {
    /// Reads the dumps among the modules of a recording: their paths and bytes.
    #[must_use]
    pub(crate) fn read<'a>(modules: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut codes = Self::default();
        let mut loads: FxHashMap<u32, Vec<Load>> = FxHashMap::default();
        // Dumps are taken in pieces, as they grew: code that moves may have been loaded in an earlier one.
        let mut known: FxHashMap<u32, FxHashMap<u64, JitCode>> = FxHashMap::default();
        let (mut n_loads, mut n_strange) = (0usize, 0u64);
        let mut timeless = BTreeSet::new();
        for (path, bytes) in modules {
            let Some(Compiled::JitDump(pid)) = Compiled::of_path(path) else { continue };
            let of_process = loads.entry(pid).or_default();
            let before = of_process.len();
            let room = MAX_LOADS.saturating_sub(n_loads);
            let read = codes.read_dump(bytes, of_process, known.entry(pid).or_default(), room);
            n_loads = n_loads.saturating_add(of_process.len().saturating_sub(before));
            n_strange = n_strange.saturating_add(read.n_strange);
            if read.is_timeless && timeless.insert(pid) {
                codes.warnings.push(format!(
                    "the jitdump of process {pid} uses an unknown clock; its code has the last name at each address"
                ));
            }
        }
        if n_strange > 0 {
            codes.warnings.push(format!("{n_strange} records of jitdumps were ignored: corrupt or too many"));
        }
        codes.dumps = loads.into_iter().map(|(pid, loads)| (pid, History::new(loads))).collect();
        codes
    }

    /// Whether a process has a dump.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        self.dumps.contains_key(&pid)
    }

    /// What process `pid` had at an address (AVMA) at a time.
    #[must_use]
    pub fn find(&self, pid: u32, address: u64, time_ns: u64) -> Option<JitCode> {
        self.dumps.get(&pid)?.find(address, time_ns)
    }

    /// The name of a function.
    #[must_use]
    pub fn name(&self, code: JitCode) -> Option<String> {
        self.names.get(code.0 as usize).map(|name| demangle(name))
    }

    /// What could not be used, in words.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Appends at most `room` loads.
    fn read_dump(
        &mut self,
        dump: &[u8],
        loads: &mut Vec<Load>,
        known: &mut FxHashMap<u64, JitCode>,
        room: usize,
    ) -> Read {
        let mut read = Read::default();
        let Some(header) = Header::read(dump) else { return Read { n_strange: 1, ..read } };
        read.is_timeless = header.flags & ARCH_TIMESTAMP != 0;
        let most = loads.len().saturating_add(room);
        let mut rest = dump.get(header.bytes..).unwrap_or(&[]);
        while !rest.is_empty() {
            let Some((record, after)) = Record::split(rest) else {
                read.n_strange = read.n_strange.saturating_add(1);
                break;
            };
            rest = after;
            let time_ns = if read.is_timeless { 0 } else { record.time_ns };
            let taken = match record.kind {
                _ if loads.len().saturating_add(2) > most => None,
                CODE_LOAD => self.load(record.body, time_ns, known).map(|load| loads.push(load)),
                CODE_MOVE => moved(record.body, time_ns, known).map(|both| loads.extend(both)),
                _ => Some(()),
            };
            read.n_strange = read.n_strange.saturating_add(u64::from(taken.is_none()));
        }
        read
    }

    fn load(&mut self, body: &[u8], time_ns: u64, known: &mut FxHashMap<u64, JitCode>) -> Option<Load> {
        let (start, bytes, index) = (u64_at(body, 16)?, u64_at(body, 24)?, u64_at(body, 32)?);
        let end = start.checked_add(bytes).filter(|&end| end > start)?;
        let name = body.get(LOAD_BYTES..)?;
        let name = name.get(..name.iter().position(|&byte| byte == 0)?).filter(|name| !name.is_empty())?;
        let code = JitCode(u32::try_from(self.names.len()).ok()?);
        self.names.push(name.to_vec());
        known.insert(index, code);
        Some(Load { time_ns, start, end, code: Some(code) })
    }
}

/// Code that goes to another place: it leaves where it was. Either may overlap the other.
fn moved(body: &[u8], time_ns: u64, known: &FxHashMap<u64, JitCode>) -> Option<[Load; 2]> {
    let (old, new, bytes, index) = (u64_at(body, 16)?, u64_at(body, 24)?, u64_at(body, 32)?, u64_at(body, 40)?);
    let code = *known.get(&index)?;
    let at = |start: u64, code| {
        let end = start.checked_add(bytes).filter(|&end| end > start)?;
        Some(Load { time_ns, start, end, code })
    };
    Some([at(old, None)?, at(new, Some(code))?])
}

/// How the reading of a dump went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Read {
    /// Records left out.
    n_strange: u64,
    /// The dump's times are not those of the recording.
    is_timeless: bool,
}

#[derive(Debug)]
struct Header {
    bytes: usize,
    flags: u64,
}

impl Header {
    fn read(dump: &[u8]) -> Option<Self> {
        let bytes = usize::try_from(u32_at(dump, 8)?).ok()?;
        let is_one = dump.starts_with(MAGIC) && bytes >= HEADER_BYTES && bytes <= dump.len();
        is_one.then_some(Self { bytes, flags: u64_at(dump, 32)? })
    }
}

struct Record<'a> {
    kind: u32,
    time_ns: u64,
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// The first record, and what follows it.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let len = usize::try_from(u32_at(bytes, 4)?).ok()?;
        let body = bytes.get(PREFIX_BYTES..len)?;
        Some((Self { kind: u32_at(bytes, 0)?, time_ns: u64_at(bytes, 8)?, body }, bytes.get(len..)?))
    }
}

impl History {
    fn new(mut loads: Vec<Load>) -> Self {
        loads.sort_by_key(|load| load.time_ns);
        let mut bounds: Vec<u64> = loads.iter().flat_map(|load| [load.start, load.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let n = bounds.len();
        let mut nodes = vec![Vec::new(); n.saturating_mul(2)];
        for (number, load) in (0..).zip(&loads) {
            let node = |bound: u64| bounds.partition_point(|&other| other < bound).saturating_add(n);
            let (mut from, mut to) = (node(load.start), node(load.end));
            while from < to {
                if from & 1 == 1 {
                    nodes.get_mut(from).into_iter().for_each(|node| node.push(number));
                    from = from.saturating_add(1);
                }
                if to & 1 == 1 {
                    to = to.saturating_sub(1);
                    nodes.get_mut(to).into_iter().for_each(|node| node.push(number));
                }
                (from, to) = (from >> 1, to >> 1);
            }
        }
        Self { loads, bounds, nodes }
    }

    /// The last load up to the time that has the address.
    fn find(&self, address: u64, time_ns: u64) -> Option<JitCode> {
        let segment = self.bounds.partition_point(|&bound| bound <= address).checked_sub(1)?;
        let n_before = self.loads.partition_point(|load| load.time_ns <= time_ns);
        let mut node = segment.checked_add(self.bounds.len())?;
        let mut last = None;
        while node > 0 {
            let loads = self.nodes.get(node)?;
            let n = loads.partition_point(|&load| (load as usize) < n_before);
            last = last.max(n.checked_sub(1).and_then(|at| loads.get(at)).copied());
            node >>= 1;
        }
        self.loads.get(last? as usize)?.code
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
