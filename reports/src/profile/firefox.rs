//! The Firefox Profiler's processed format: samples of each thread by time.
//!
//! The crate of the format does not support source lines; they are left out.

use super::{event_of, row};
use crate::escape::visible;
use fpprof_analysis::folded::{Origin, Unit, marker};
use fpprof_analysis::profile::{Profile, ProfileFrame, ProfileModule, ProfileSample, Weight};
use fxprof_processed_profile::debugid::{CodeId, DebugId};
use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, LibraryHandle, LibraryInfo,
    ProcessHandle, Profile as Firefox, ReferenceTimestamp, SamplingInterval, StackHandle, Symbol, SymbolTable,
    ThreadHandle, Timestamp, WeightType,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

const NS_PER_MS: u64 = 1_000_000;

/// Writes the profile as JSON.
///
/// # Errors
/// If the writer fails.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(out, &Writer::new(profile).write())?;
    Ok(())
}

/// Frame categories, which determine the colour.
struct Categories {
    user: CategoryPairHandle,
    kernel: CategoryPairHandle,
    compiled: CategoryPairHandle,
    incomplete: CategoryPairHandle,
}

struct Writer<'p> {
    profile: &'p Profile,
    firefox: Firefox,
    categories: Categories,
    libraries: Vec<LibraryHandle>,
    processes: HashMap<(u32, &'p str), ProcessHandle>,
    threads: HashMap<(ProcessHandle, u32), ThreadHandle>,
    /// The stacks added so far, by thread.
    stacks: HashMap<(ThreadHandle, u32), Option<StackHandle>>,
    /// By thread, blocked time of less than a millisecond that no sample has yet.
    left_ns: HashMap<ThreadHandle, u64>,
}

impl<'p> Writer<'p> {
    fn new(profile: &'p Profile) -> Self {
        let started =
            ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(profile.recorded.start_unix_ns));
        let interval = profile.events.first().and_then(|event| event.interval).unwrap_or_default();
        let interval = SamplingInterval::from_nanos(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        let mut firefox = Firefox::new("fpprof", started, interval);
        firefox.set_os_name(&visible(&profile.recorded.distribution));
        let mut category = |name, color| CategoryPairHandle::from(firefox.add_category(name, color));
        let categories = Categories {
            user: category("User", CategoryColor::Yellow),
            kernel: category("Kernel", CategoryColor::Orange),
            compiled: category("Compiled at run time", CategoryColor::Green),
            incomplete: category("Truncated or broken", CategoryColor::Red),
        };
        let libraries = libraries(profile, &mut firefox);
        firefox.set_symbolicated(true);
        let (processes, threads, stacks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { profile, firefox, categories, libraries, processes, threads, stacks, left_ns: HashMap::new() }
    }

    fn write(mut self) -> Firefox {
        let mut n_samples: BTreeMap<usize, u64> = BTreeMap::new();
        let mut handles: Vec<Option<ThreadHandle>> = vec![None; self.profile.threads.len()];
        for sample in &self.profile.samples {
            let at = usize::try_from(sample.thread).unwrap_or(usize::MAX);
            let Some(thread) = self.thread(sample) else { continue };
            if let Some(slot) = handles.get_mut(at) {
                *slot = Some(thread);
            }
            let n = n_samples.entry(at).or_default();
            *n = n.saturating_add(sample.samples);
            let stack = self.stack(thread, sample.stack);
            self.sample(thread, stack, sample);
        }
        let busiest = n_samples.iter().max_by_key(|&(&at, &n)| (n, std::cmp::Reverse(at)));
        if let Some(thread) = busiest.and_then(|(&at, _)| handles.get(at).copied().flatten()) {
            self.firefox.add_initial_selected_thread(thread);
        }
        self.firefox
    }

    fn sample(&mut self, thread: ThreadHandle, stack: Option<StackHandle>, sample: &ProfileSample) {
        let time = Timestamp::from_nanos_since_reference(sample.time_ns);
        let is_time = event_of(self.profile, sample).is_some_and(|event| event.weight == Weight::CpuNs);
        let cpu = if is_time { CpuDelta::from_nanos(sample.weight) } else { CpuDelta::ZERO };
        if self.profile.unit == Unit::Samples {
            // Equal samples of an aggregated recording.
            let weight = i32::try_from(sample.samples).unwrap_or(i32::MAX);
            self.firefox.add_sample(thread, time, stack, cpu, weight);
        } else {
            // The format counts whole milliseconds: the remainder goes to the thread's next sample.
            let left_ns = self.left_ns.entry(thread).or_default();
            let ns = sample.weight.saturating_add(*left_ns);
            *left_ns = ns % NS_PER_MS;
            let ms = i32::try_from(ns / NS_PER_MS).unwrap_or(i32::MAX);
            self.firefox.set_thread_samples_weight_type(thread, WeightType::TracingMs);
            self.firefox.add_sample(thread, time, stack, cpu, ms);
        }
    }

    /// The thread of a sample, created on first use, whatever its name is by then.
    fn thread(&mut self, sample: &ProfileSample) -> Option<ThreadHandle> {
        let of = row(&self.profile.threads, sample.thread)?;
        let start = Timestamp::from_nanos_since_reference(sample.time_ns);
        let process = *self
            .processes
            .entry((of.pid, &of.process))
            .or_insert_with(|| self.firefox.add_process(&visible(&of.process), of.pid, start));
        let thread = *self.threads.entry((process, of.tid)).or_insert_with(|| {
            let thread = self.firefox.add_thread(process, of.tid, start, of.tid == of.pid);
            self.firefox.set_thread_name(thread, &visible(&of.comm));
            thread
        });
        Some(thread)
    }

    fn stack(&mut self, thread: ThreadHandle, number: u32) -> Option<StackHandle> {
        if let Some(&known) = self.stacks.get(&(thread, number)) {
            return known;
        }
        let stack = row(&self.profile.stacks, number)?;
        let mut frames = Vec::new();
        if let Some(end) = marker(stack.stop) {
            frames.push(self.label(&end, self.categories.incomplete));
        }
        for frame in stack.frames.iter().rev().filter_map(|&frame| row(&self.profile.frames, frame)) {
            self.push(frame, &mut frames);
        }
        let handle = self.firefox.intern_stack_frames(thread, frames.into_iter());
        self.stacks.insert((thread, number), handle);
        handle
    }

    fn push(&mut self, frame: &ProfileFrame, frames: &mut Vec<FrameInfo>) {
        let module = frame.functions.first().map_or("", |function| function.module.as_str());
        let category_pair = match (frame.origin, module) {
            (Origin::Kernel, _) => self.categories.kernel,
            (_, "[jit]") => self.categories.compiled,
            _ => self.categories.user,
        };
        let library = frame
            .module
            .and_then(|module| row(&self.libraries, module).copied().zip(row(&self.profile.modules, module)));
        let relative = library.and_then(|(library, module)| Some((library, relative(module, frame.address)?)));
        for (at, function) in frame.functions.iter().enumerate() {
            frames.push(match relative {
                // One address has one name: functions inlined there have none.
                Some((library, address)) if at == 0 => FrameInfo {
                    frame: Frame::RelativeAddressFromAdjustedReturnAddress(library, address),
                    category_pair,
                    flags: FrameFlags::empty(),
                },
                _ => self.label(&function.name, category_pair),
            });
        }
    }

    fn label(&mut self, name: &str, category_pair: CategoryPairHandle) -> FrameInfo {
        let frame = Frame::Label(self.firefox.intern_string(&visible(name)));
        FrameInfo { frame, category_pair, flags: FrameFlags::empty() }
    }
}

/// The modules, each with the symbols of the addresses on stacks.
fn libraries(profile: &Profile, firefox: &mut Firefox) -> Vec<LibraryHandle> {
    let mut symbols: Vec<Vec<Symbol>> = vec![Vec::new(); profile.modules.len()];
    for frame in &profile.frames {
        let Some(at) = frame.module.and_then(|module| usize::try_from(module).ok()) else { continue };
        let address = profile.modules.get(at).and_then(|module| relative(module, frame.address));
        if let (Some(of_module), Some(address), Some(function)) =
            (symbols.get_mut(at), address, frame.functions.first())
        {
            of_module.push(Symbol { address, size: Some(1), name: visible(&function.name).into_owned() });
        }
    }
    let libraries = profile.modules.iter().zip(symbols).map(|(module, symbols)| {
        let build_id = module.build_id.map(|build_id| build_id.as_bytes().to_vec()).unwrap_or_default();
        let (name, path) = (visible(&module.name).into_owned(), visible(&module.path).into_owned());
        firefox.add_lib(LibraryInfo {
            debug_name: name.clone(),
            name,
            debug_path: path.clone(),
            path,
            debug_id: debug_id(&build_id),
            code_id: module.build_id.map(|_| CodeId::from_binary(&build_id).to_string()),
            arch: Some(profile.recorded.arch.clone()),
            symbol_table: Some(Arc::new(SymbolTable::new(symbols))),
        })
    });
    libraries.collect()
}

/// The debug id that Breakpad, and so Firefox, derives from a build id: its first 16 bytes as a little-endian GUID.
fn debug_id(build_id: &[u8]) -> DebugId {
    let mut guid = [0; 16];
    guid.iter_mut().zip(build_id).for_each(|(to, from)| *to = *from);
    DebugId::from_guid_age(&guid, 0).unwrap_or_default()
}

/// An address relative to the file's lowest page, as the format requires; `None` if it does not fit, as in large files.
fn relative(module: &ProfileModule, address: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(module.base)?).ok()
}
