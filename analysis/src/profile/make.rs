//! Names the counted samples, and sorts them independently of the order in which they were read.

use super::rows::{RowKey, Rows};
use super::{
    Function, Grouping, Profile, ProfileEvent, ProfileFrame, ProfileModule, ProfileOrigin, ProfileSample, ProfileStack,
    ProfileThread, Weight,
};
use crate::address_space::{CgroupIx, CommIx, FileIx, MappedFile};
use crate::events::is_clock;
use crate::fold::{Amount, Folder, FrameKey, Where, WithoutCall, functions, is_unnamed, ranks, root_name, shown_comm};
use crate::folded::Origin;
use crate::listed::{Listed, Who};
use crate::modules::ModuleTable;
use crate::replay;
use crate::symbols::Symbolizer;
use fpprof_recording::model::{Event, Measure, Meta, Sampling};
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::time::Duration;

/// Sources of the names of samples, stacks and frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) modules: &'a ModuleTable<'a>,
    pub(crate) symbols: &'a Symbolizer,
    pub(crate) without_call: &'a WithoutCall,
    pub(crate) listed: &'a Listed<'a>,
}

/// Makes a profile, with everything in order of first use.
pub(crate) fn make(
    rows: &Rows,
    naming: Naming<'_>,
    replay::Recorded { meta, selection, .. }: &replay::Recorded,
    strategy: &str,
    duration: Duration,
) -> Profile {
    let events = || (0_u16..).zip(&meta.events).filter(|(event, _)| selection.has(*event));
    let event_numbers: FxHashMap<u16, u32> = events().map(|(event, _)| event).zip(0..).collect();
    let (first_ns, last_ns) = rows.times_ns();
    let start_ns = if meta.start_ns == 0 { first_ns } else { meta.start_ns };
    let mut tables = Tables::new(naming);
    let lists: Vec<&[u32]> = naming.folder.stacks().collect();
    let mut samples = Vec::new();
    for (key, amount) in in_order(rows, naming, &lists) {
        let Some(&event) = event_numbers.get(&key.event) else { continue };
        samples.push(ProfileSample {
            time_ns: key.time_ns.saturating_sub(start_ns),
            cpu: key.cpu,
            event,
            thread: tables.thread(key),
            stack: tables.stack(lists.get(key.stack as usize).copied().unwrap_or_default(), key),
            samples: amount.samples,
            weight: amount.weight,
        });
    }
    let Tables { modules, frames, stacks, threads, .. } = tables;
    // Without times of samples, the profile begins where the part that it is of begins.
    let from_ns = selection.filter().time.from_ns.unwrap_or(0);
    let (skipped_ns, before_ns) = if rows.grouping() == Grouping::Summed { (from_ns, 0) } else { (0, from_ns) };
    let mut recorded = recorded(meta, start_ns);
    if recorded.start_unix_ns != 0 {
        recorded.start_unix_ns = recorded.start_unix_ns.saturating_add(skipped_ns);
    }
    let until_last = Duration::from_nanos(last_ns.saturating_sub(start_ns.saturating_add(skipped_ns)));
    let shown = duration.saturating_add(Duration::from_nanos(before_ns));
    Profile {
        recorded,
        strategy: strategy.to_owned(),
        events: events().map(|(_, event)| event_of(event)).collect(),
        unit: selection.unit(),
        grouping: rows.grouping(),
        duration: if duration.is_zero() { until_last } else { shown },
        modules: modules.values,
        frames: frames.values,
        stacks: stacks.values,
        threads: threads.values,
        samples,
    }
}

fn recorded(meta: &Meta, start_ns: u64) -> ProfileOrigin {
    let is_own = meta.tool_version.starts_with(|c: char| c.is_ascii_digit());
    ProfileOrigin {
        recorder: if is_own { format!("fpprof {}", meta.tool_version) } else { meta.tool_version.clone() },
        start_ns,
        start_unix_ns: meta.start_unix_ns,
        host: meta.host.name.clone(),
        kernel: meta.host.kernel.clone(),
        arch: meta.host.arch.clone(),
        cpu_model: meta.host.cpu_model.clone(),
        distribution: meta.host.distribution.clone(),
    }
}

fn event_of(Event { name, sampling, measure }: &Event) -> ProfileEvent {
    let weight = match measure {
        Measure::Blocked { .. } => Weight::BlockedNs,
        _ if is_clock(name) => Weight::CpuNs,
        _ => Weight::Occurrences,
    };
    let is_clock = weight == Weight::CpuNs;
    let (period, interval_ns) = match *sampling {
        Sampling::Period(period) => (Some(period), is_clock.then_some(period)),
        Sampling::FrequencyHz(hz) => {
            let interval_ns = 1_000_000_000_u64.checked_div(hz);
            (interval_ns.filter(|_| is_clock), interval_ns)
        }
    };
    let period = period.filter(|_| weight != Weight::BlockedNs);
    ProfileEvent { name: name.clone(), weight, period, interval: interval_ns.map(Duration::from_nanos) }
}

/// Sorts by time, CPU and thread; then by keys that do not depend on the order in which stacks were first seen.
fn in_order<'r>(rows: &'r Rows, naming: Naming<'_>, lists: &[&[u32]]) -> Vec<(&'r RowKey, &'r Amount)> {
    let frames = naming.folder.frames();
    let mut order: Vec<u32> = (0..u32::try_from(frames.len()).unwrap_or(u32::MAX)).collect();
    order.sort_unstable_by_key(|&frame| frames.get(frame as usize));
    let ranks = ranks(&order);
    let ranked = |stack: u32| {
        let list = lists.get(stack as usize).copied().unwrap_or_default();
        list.iter().map(|&frame| ranks.get(frame as usize).copied().unwrap_or(0))
    };
    let head = |key: &RowKey| (key.time_ns, key.cpu, key.pid, key.tid, key.event, key.who, key.stop);
    let timeline = naming.listed.timeline();
    let group = |cgroup| (timeline.cgroup(cgroup), timeline.environment(cgroup));
    let names = |key: &RowKey| (key.comm.map(|comm| timeline.comm(comm)), key.cgroup.map(group));
    let mut counts: Vec<(&RowKey, &Amount)> = rows.counts().collect();
    counts.sort_unstable_by(|(a, _), (b, _)| {
        let by_head = head(a).cmp(&head(b)).then_with(|| names(a).cmp(&names(b)));
        by_head.then_with(|| ranked(a.stack).cmp(ranked(b.stack)))
    });
    counts
}

/// A table of values, in order of first use, with a map from their keys to their index.
#[derive(Debug)]
struct Table<K, V> {
    values: Vec<V>,
    numbers: FxHashMap<K, u32>,
}

impl<K: Hash + Eq, V> Table<K, V> {
    fn new() -> Self {
        Self { values: Vec::new(), numbers: FxHashMap::default() }
    }

    fn known(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    fn push(&mut self, key: K, value: V) -> u32 {
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value);
        self.numbers.insert(key, number);
        number
    }
}

/// A frame, and the name it gets if it is a root without a symbol.
type Named = (u32, Option<&'static str>);

/// The tables that samples refer to.
struct Tables<'a> {
    naming: Naming<'a>,
    modules: Table<FileIx, ProfileModule>,
    frames: Table<Named, ProfileFrame>,
    stacks: Table<(u32, StopReason), ProfileStack>,
    threads: Table<(Who, u32, Option<CommIx>, Option<CgroupIx>), ProfileThread>,
}

impl<'a> Tables<'a> {
    fn new(naming: Naming<'a>) -> Self {
        Self { naming, modules: Table::new(), frames: Table::new(), stacks: Table::new(), threads: Table::new() }
    }

    fn thread(&mut self, key: &RowKey) -> u32 {
        let of = (key.who, key.tid, key.comm, key.cgroup);
        if let Some(known) = self.threads.known(&of) {
            return known;
        }
        let timeline = self.naming.listed.timeline();
        let comm = key.comm.map_or(&[][..], |comm| timeline.comm(comm));
        let cgroup = key.cgroup.map_or(&[][..], |cgroup| timeline.cgroup(cgroup));
        let thread = ProfileThread {
            pid: key.pid,
            tid: key.tid,
            process: self.naming.listed.name(key.who).1,
            comm: shown_comm(comm, key.tid),
            cgroup: String::from_utf8_lossy(cgroup).into_owned(),
            environment: key.cgroup.map_or_else(Vec::new, |cgroup| timeline.environment(cgroup).to_vec()),
            labels: Vec::new(),
        };
        self.threads.push(of, thread)
    }

    fn stack(&mut self, list: &[u32], key: &RowKey) -> u32 {
        let of = (key.stack, key.stop);
        if let Some(known) = self.stacks.known(&of) {
            return known;
        }
        let outermost = list.len().saturating_sub(1);
        let frames = list.iter().enumerate().map(|(at, &frame)| {
            let root = if at == outermost { root_name(key.stop) } else { None };
            self.frame(frame, root)
        });
        let stack = ProfileStack { frames: frames.collect(), stop: key.stop };
        self.stacks.push(of, stack)
    }

    fn frame(&mut self, frame: u32, root: Option<&'static str>) -> u32 {
        if let Some(known) = self.frames.known(&(frame, root)) {
            return known;
        }
        let nothing = FrameKey { place: Where::Unmapped(0), origin: Origin::Heuristic, is_return: false };
        let mut key = self.naming.folder.frames().get(frame as usize).copied().unwrap_or(nothing);
        if self.naming.without_call.has(frame) {
            key.origin = Origin::WithoutCall;
        }
        let named = functions(&key, self.naming.modules, self.naming.symbols).into_iter().map(|(label, line)| {
            let name = root.filter(|_| is_unnamed(&label)).map_or(label.name, str::to_owned);
            Function { name, module: label.module, line }
        });
        let functions: Vec<Function> = named.collect();
        let (module, address) = match key.place {
            Where::Module(file, svma) => (self.module(file), svma),
            Where::Unmapped(address)
            | Where::Unnamed(address)
            | Where::Compiled(_, address)
            | Where::Kernel(address) => (None, address),
        };
        let value = ProfileFrame { module, address, origin: key.origin, functions };
        self.frames.push((frame, root), value)
    }

    fn module(&mut self, file: FileIx) -> Option<u32> {
        if let Some(known) = self.modules.known(&file) {
            return Some(known);
        }
        let mapped = self.naming.modules.file(file)?;
        let module = module_of(mapped, file, self.naming.modules);
        Some(self.modules.push(file, module))
    }
}

fn module_of(mapped: &MappedFile, file: FileIx, modules: &ModuleTable<'_>) -> ProfileModule {
    let image = modules.image(file).ok();
    let code = image.and_then(|image| {
        let code = image.segments.iter().filter(|segment| segment.executable);
        let start = code.clone().min_by_key(|segment| segment.svma)?;
        let end = code.filter_map(|segment| segment.svma.checked_add(segment.memory_bytes)).max()?;
        Some((start.svma..end, start.file_offset))
    });
    let (code, file_offset) = code.unwrap_or_default();
    ProfileModule {
        path: String::from_utf8_lossy(&mapped.path).into_owned(),
        name: mapped.base_name(),
        base: image.and_then(|image| image.svmas()).map_or(0, |svmas| svmas.start),
        build_id: mapped.identity.build_id.or_else(|| image.and_then(|image| image.build_id)),
        code,
        file_offset,
    }
}
