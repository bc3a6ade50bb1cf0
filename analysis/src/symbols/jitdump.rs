//! Names of JIT-compiled code by address and time, and its call frame information, from the dump that the program wrote
//! for perf (jitdump).
//!
//! Does not use `linux-perf-data`, which reads whole dumps: the recorder keeps only the records needed here, without
//! the code.

use super::demangle::demangle;
use bytes::Bytes;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::jitdump::{
    CODE_LOAD, CODE_MOVE, HEADER_BYTES, LOAD_BYTES, MAGIC, PREFIX_BYTES, UNWINDING_BYTES, UNWINDING_INFO,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// The most loads and moves of a recording, about 150 bytes each.
const MAX_LOADS: usize = 4 << 20;
/// The most pieces of code of a recording with call frame information, some kilobytes each once stacks pass through
/// them.
const MAX_UNWINDING: usize = 1 << 16;

/// Header flag: times are those of a CPU counter.
const ARCH_TIMESTAMP: u64 = 1;

/// A JIT-compiled function: an index over the whole recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JitCode(u32);

/// JIT-compiled code from the dumps in a recording.
#[derive(Debug, Default)]
pub struct JitCodes {
    dumps: FxHashMap<u32, History>,
    names: Vec<Vec<u8>>,
    /// Grouped by process, ascending within each.
    unwinding: Vec<JitUnwinding>,
    unwinding_of: FxHashMap<u32, Range<usize>>,
    warnings: Vec<String>,
}

/// The call frame information of a JIT-compiled function.
#[derive(Debug, Clone)]
pub(crate) struct JitUnwinding {
    /// The code, AVMA.
    pub(crate) code: Range<u64>,
    /// The address that `.eh_frame` is relative to, AVMA.
    pub(crate) eh_frame_at: u64,
    /// `.eh_frame`.
    pub(crate) eh_frame: Bytes,
}

/// The state of reading a process's dump, piece by piece.
#[derive(Debug, Default)]
struct Dump {
    loads: Vec<Load>,
    /// Code that may move, by its number in the dump.
    known: FxHashMap<u64, JitCode>,
    /// Call frame information for the next load.
    next_eh_frame: Option<Bytes>,
    unwinding: Vec<JitUnwinding>,
}

/// Where code was from a time on.
#[derive(Debug, Clone, Copy)]
struct Load {
    time_ns: u64,
    start: u64,
    /// First address above.
    end: u64,
    /// `None` if code was removed.
    code: Option<JitCode>,
}

/// Where the code of a process was, and when.
///
/// A segment tree over the addresses at which code begins and ends: each load is at the few nodes that cover its range,
/// in order of time, and a look-up visits the nodes above the address.
#[derive(Debug, Default)]
struct History {
    /// In order of time.
    loads: Vec<Load>,
    /// Ascending and distinct.
    bounds: Vec<u64>,
    /// The segment from bound *i* to the next is node `bounds.len() + i`; the parent of node *n* is *n / 2*, down to 1.
    nodes: Vec<Vec<u32>>,
}

impl JitCodes {
    /// Reads the dumps among the modules of a recording, given as paths and bytes.
    #[must_use]
    pub(crate) fn read<'a>(modules: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut codes = Self::default();
        // Dumps were recorded in pieces, as they grew.
        let mut dumps: FxHashMap<u32, Dump> = FxHashMap::default();
        let (mut n_loads, mut n_unwinding, mut n_strange) = (0usize, 0usize, 0u64);
        let mut timeless = BTreeSet::new();
        for (path, bytes) in modules {
            let Some(Compiled::JitDump(pid)) = Compiled::of_path(path) else { continue };
            let dump = dumps.entry(pid).or_default();
            let before = (dump.loads.len(), dump.unwinding.len());
            let room = (MAX_LOADS.saturating_sub(n_loads), MAX_UNWINDING.saturating_sub(n_unwinding));
            let read = codes.read_piece(bytes, dump, room);
            n_loads = n_loads.saturating_add(dump.loads.len().saturating_sub(before.0));
            n_unwinding = n_unwinding.saturating_add(dump.unwinding.len().saturating_sub(before.1));
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
        for (pid, dump) in dumps {
            let first = codes.unwinding.len();
            codes.unwinding.extend(only_code_there(dump.unwinding, &dump.loads));
            codes.unwinding_of.insert(pid, first..codes.unwinding.len());
            codes.dumps.insert(pid, History::new(dump.loads));
        }
        codes
    }

    /// Call frame information of code that never moved and whose addresses had no other code at any time.
    pub(crate) fn unwinding(&self) -> &[JitUnwinding] {
        &self.unwinding
    }

    /// The range of [`Self::unwinding`] that is of process `pid`: ascending by address.
    pub(crate) fn unwinding_of(&self, pid: u32) -> Range<usize> {
        self.unwinding_of.get(&pid).cloned().unwrap_or_default()
    }

    /// Whether a process has a dump.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        self.dumps.contains_key(&pid)
    }

    /// The code of process `pid` at an address (AVMA) and time.
    #[must_use]
    pub fn find(&self, pid: u32, address: u64, time_ns: u64) -> Option<JitCode> {
        self.dumps.get(&pid)?.find(address, time_ns)
    }

    /// The name of a function.
    #[must_use]
    pub fn name(&self, code: JitCode) -> Option<String> {
        self.names.get(code.0 as usize).map(|name| demangle(name))
    }

    /// What could not be used, as text.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Appends a piece of a dump. `room` limits the loads and the pieces of call frame information.
    fn read_piece(&mut self, piece: &[u8], dump: &mut Dump, room: (usize, usize)) -> Read {
        let mut read = Read::default();
        let Some(header) = Header::read(piece) else { return Read { n_strange: 1, ..read } };
        read.is_timeless = header.flags & ARCH_TIMESTAMP != 0;
        let most_loads = dump.loads.len().saturating_add(room.0);
        let most_unwinding = dump.unwinding.len().saturating_add(room.1);
        let mut rest = piece.get(header.bytes..).unwrap_or(&[]);
        while !rest.is_empty() {
            let Some((record, after)) = Record::split(rest) else {
                read.n_strange = read.n_strange.saturating_add(1);
                break;
            };
            rest = after;
            let time_ns = if read.is_timeless { 0 } else { record.time_ns };
            let taken = match record.kind {
                _ if dump.loads.len().saturating_add(2) > most_loads => None,
                CODE_LOAD => self.load(record.body, time_ns, dump),
                CODE_MOVE => moved(record.body, time_ns, &dump.known).map(|both| dump.loads.extend(both)),
                UNWINDING_INFO if dump.unwinding.len() < most_unwinding => {
                    eh_frame(record.body).map(|eh_frame| dump.next_eh_frame = Some(eh_frame))
                }
                UNWINDING_INFO => None,
                _ => Some(()),
            };
            read.n_strange = read.n_strange.saturating_add(u64::from(taken.is_none()));
        }
        read
    }

    fn load(&mut self, body: &[u8], time_ns: u64, dump: &mut Dump) -> Option<()> {
        let eh_frame = dump.next_eh_frame.take();
        let (start, bytes, index) = (u64_at(body, 16)?, u64_at(body, 24)?, u64_at(body, 32)?);
        let end = start.checked_add(bytes).filter(|&end| end > start)?;
        let name = body.get(LOAD_BYTES..)?;
        let name = name.get(..name.iter().position(|&byte| byte == 0)?).filter(|name| !name.is_empty())?;
        let code = JitCode(u32::try_from(self.names.len()).ok()?);
        self.names.push(name.to_vec());
        dump.known.insert(index, code);
        dump.loads.push(Load { time_ns, start, end, code: Some(code) });
        if let Some(eh_frame) = eh_frame {
            // perf places it after the code, with this alignment, and its contents are relative to that.
            let eh_frame_at = start.checked_add(bytes.checked_next_multiple_of(8)?)?;
            dump.unwinding.push(JitUnwinding { code: start..end, eh_frame_at, eh_frame });
        }
        Some(())
    }
}

/// The `.eh_frame` in a record, which is followed by its header table.
///
/// # Sources
/// `jit_add_eh_frame_info` in `tools/perf/util/genelf.c` of Linux.
fn eh_frame(body: &[u8]) -> Option<Bytes> {
    let (both, header) = (u64_at(body, 0)?, u64_at(body, 8)?);
    let bytes = body.get(UNWINDING_BYTES..)?.get(..usize::try_from(both.checked_sub(header)?).ok()?)?;
    Some(Bytes::copy_from_slice(bytes))
}

/// Those whose code is the only one that was ever at its addresses, ascending.
fn only_code_there(mut unwinding: Vec<JitUnwinding>, loads: &[Load]) -> Vec<JitUnwinding> {
    let mut ranges: Vec<(u64, u64)> = loads.iter().map(|load| (load.start, load.end)).collect();
    ranges.sort_unstable();
    let mut alone = BTreeSet::new();
    let mut before = 0;
    for (n, &(start, end)) in ranges.iter().enumerate() {
        let next = n.checked_add(1).and_then(|n| ranges.get(n));
        if start >= before && next.is_none_or(|&(next, _)| next >= end) {
            alone.insert(start);
        }
        before = end.max(before);
    }
    unwinding.retain(|own| alone.contains(&own.code.start));
    unwinding.sort_by_key(|own| own.code.start);
    unwinding
}

/// A move of code: it is removed from its old place. The two ranges may overlap.
fn moved(body: &[u8], time_ns: u64, known: &FxHashMap<u64, JitCode>) -> Option<[Load; 2]> {
    let (old, new, bytes, index) = (u64_at(body, 16)?, u64_at(body, 24)?, u64_at(body, 32)?, u64_at(body, 40)?);
    let code = *known.get(&index)?;
    let at = |start: u64, code| {
        let end = start.checked_add(bytes).filter(|&end| end > start)?;
        Some(Load { time_ns, start, end, code })
    };
    Some([at(old, None)?, at(new, Some(code))?])
}

/// The result of reading a piece of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Read {
    /// Number of records left out.
    n_strange: u64,
    /// The dump's times are in another clock than the recording's.
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
    /// Splits off the first record.
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

    /// The last load, up to a time, that contains the address.
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
