//! Unwinds and symbolises a core.

use super::layout::arch_name;
use super::link_map::files;
use super::memory::CoreMemory;
use super::places::{CoreFiles, PID, events, meta};
use super::{Core, CoreOptions, FrameOut, ThreadOut, UnwoundCore};
use crate::address_space::{FileIx, Timeline};
use crate::fold::{Where, for_lookup, locate, not_after_calls};
use crate::modules::{ElfFile, Missing, ModuleTable, Opened};
use crate::replay::{PlacedSpace, Spaces};
use crate::symbols::{Detail, Symbolizer};
use fpprof_unwind::{Arch, Fallback, Frame, FrameSource, Memory, Regs, Stack, StopReason, Unwinder};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;

/// The most frames of all threads; about 200 bytes each with their names.
const MAX_FRAMES: usize = 1 << 21;

/// A thread to unwind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) tid: u32,
    pub(super) signal: u16,
    pub(super) regs: Regs,
}

/// Unwinds every thread of a core. `opened` are two handles of the same core, to read its memory.
#[must_use]
pub fn unwind_core(core: &Core, opened: [Opened; 2], options: &CoreOptions<'_>) -> UnwoundCore {
    let [for_headers, for_stacks] = opened;
    // The build IDs in the core decide which files are right, so files must not be used to read them.
    let nothing = |_, _| None;
    let mut warnings = core.warnings.clone();
    let headers = CoreMemory::new(core, for_headers.reader, &nothing);
    let mut unwinding = options.unwinding;
    if core.files.is_empty() && unwinding.fallback == Fallback::Jit {
        // Without the kernel's list of files, the code of a missing file would be taken for JIT-compiled code.
        unwinding.fallback = Fallback::None;
    }
    let listed;
    let core = if core.files.is_empty() {
        listed = Core { files: files(core, &headers, options, &mut warnings), ..core.clone() };
        &listed
    } else {
        core
    };
    let timeline = Timeline::new(events(core, &headers));
    let executable = executable(core, options.executable);
    if options.executable.is_some() && executable.is_none() {
        warnings.push("--exe was ignored: the core dump does not say which of its files is the executable".to_owned());
    }
    let resolver = CoreFiles { inner: options.resolver, executable, root: options.root };
    let meta = meta();
    let modules = ModuleTable::new(&timeline, &meta, &resolver);
    let opened_files: RefCell<BTreeMap<FileIx, Option<ElfFile>>> = RefCell::default();
    let file_bytes = |address: u64, len: usize| {
        let file = core.file_at(address)?;
        let ix = timeline.files().iter().position(|known| known.path == file.path)?;
        let ix = FileIx(u32::try_from(ix).ok()?);
        let mut opened = opened_files.borrow_mut();
        let elf = opened.entry(ix).or_insert_with(|| modules.open(ix).ok()).as_ref()?;
        let offset = file.file_offset.checked_add(address.checked_sub(file.start)?)?;
        elf.read_range(offset, len as u64, len as u64)
    };
    let memory = CoreMemory::new(core, for_stacks.reader, &file_bytes);
    let starts = core.threads.iter().map(|thread| Start { tid: thread.tid, signal: thread.signal, regs: thread.regs });
    let starts: Vec<Start> = starts.collect();
    let mut unwound = unwind(core.arch, &timeline, &modules, &memory, &starts, unwinding);
    warnings.append(&mut unwound.warnings);
    UnwoundCore { command: core.command.clone(), warnings, ..unwound }
}

/// The executable's path in the core, and the file to use for it.
fn executable(core: &Core, path: Option<&Path>) -> Option<(Vec<u8>, std::path::PathBuf)> {
    let mapped = core.file_at(core.program_headers?)?;
    Some((mapped.path.clone(), path?.to_owned()))
}

/// Unwinds threads of one process.
pub(super) fn unwind(
    arch: Arch,
    timeline: &Timeline,
    modules: &ModuleTable<'_>,
    memory: &impl Memory,
    starts: &[Start],
    options: fpprof_unwind::Options,
) -> UnwoundCore {
    let spaces = Spaces::new(timeline, modules);
    let placed = spaces.get(timeline.place(PID, PID, 1).space);
    let mut unwinder = Unwinder::new(options);
    let mut stack = Stack::default();
    let mut stacks: Vec<Walked> = Vec::new();
    let mut n_frames = 0_usize;
    for start in starts {
        if n_frames >= MAX_FRAMES {
            break;
        }
        unwinder.unwind(modules, &placed.space, &start.regs, memory, &mut stack);
        n_frames = n_frames.saturating_add(stack.frames.len());
        stacks.push(Walked::new(*start, &stack, &placed, modules));
    }
    let mut wanted: BTreeMap<FileIx, BTreeSet<u64>> = BTreeMap::new();
    for &(_, place) in stacks.iter().flat_map(|walked| &walked.frames) {
        if let Where::Module(file, svma) = place {
            wanted.entry(file).or_default().insert(svma);
        }
    }
    let wanted: BTreeMap<FileIx, Vec<u64>> =
        wanted.into_iter().map(|(file, svmas)| (file, svmas.into_iter().collect())).collect();
    let symbols = Symbolizer::new(modules, &wanted, None, Detail::Inlines, NonZeroUsize::MIN);
    let mut warnings: Vec<String> = wanted.keys().filter_map(|&file| warning(modules, file)).collect();
    warnings.extend(symbols.warnings().iter().cloned());
    if stacks.len() < starts.len() {
        let n = starts.len().saturating_sub(stacks.len());
        warnings.push(format!("{n} threads were ignored: more than {MAX_FRAMES} frames in total"));
    }
    let mut unwound = UnwoundCore {
        arch: arch_name(arch).to_owned(),
        command: None,
        threads: stacks.iter().map(|walked| walked.shown(modules, &symbols)).collect(),
        warnings,
    };
    mark_missing_calls(&mut unwound, &stacks, modules);
    unwound
}

/// Marks return addresses that do not follow a call, except for the root of each stack. Unlike
/// [`crate::fold::WithoutCall`], the root of one stack may be marked in others.
fn mark_missing_calls(unwound: &mut UnwoundCore, stacks: &[Walked], modules: &ModuleTable<'_>) {
    let returns = stacks.iter().flat_map(|walked| {
        let n_judged = match walked.stop {
            StopReason::Complete(_) => walked.frames.len().saturating_sub(1),
            _ => walked.frames.len(),
        };
        let is_return = move |number: usize, frame: &Frame| number < n_judged && !frame.flags.is_instruction;
        walked.frames.iter().enumerate().map(move |(number, (frame, place))| is_return(number, frame).then_some(*place))
    });
    let returns = (0..).zip(returns).filter_map(|(number, place)| Some((number, place?)));
    let without_call = not_after_calls(returns, modules);
    let frames = unwound.threads.iter_mut().flat_map(|thread| &mut thread.frames);
    for (number, frame) in (0..).zip(frames) {
        frame.no_call_before = without_call.contains(&number);
    }
}

struct Walked {
    start: Start,
    frames: Vec<(Frame, Where)>,
    stop: StopReason,
}

impl Walked {
    fn new(start: Start, stack: &Stack, placed: &PlacedSpace, modules: &ModuleTable<'_>) -> Self {
        let frames =
            for_lookup(&stack.frames).map(|frame| (frame, locate(&frame, placed, modules, u64::MAX))).collect();
        Self { start, frames, stop: stack.stop }
    }

    fn shown(&self, modules: &ModuleTable<'_>, symbols: &Symbolizer) -> ThreadOut {
        ThreadOut {
            tid: self.start.tid,
            signal: self.start.signal,
            status: self.stop.class().to_owned(),
            reason: self.stop.name().to_owned(),
            frames: self.frames.iter().map(|(frame, place)| shown(frame, *place, modules, symbols)).collect(),
        }
    }
}

fn shown(frame: &Frame, place: Where, modules: &ModuleTable<'_>, symbols: &Symbolizer) -> FrameOut {
    let (file, lookup) = match place {
        Where::Module(file, svma) => (Some(file), Some(svma)),
        Where::Unmapped(_) | Where::Unnamed(_) | Where::Compiled(..) | Where::Kernel(_) => (None, None),
    };
    let names = file.zip(lookup).and_then(|(file, svma)| symbols.user(file, svma).ok()).unwrap_or(&[]);
    let mut names = names.iter().map(|name| name.function.clone());
    let path = file.and_then(|file| modules.file(file)).map(|file| String::from_utf8_lossy(&file.path).into_owned());
    // A return address was looked up one byte lower.
    let svma = lookup.map(|svma| svma.wrapping_add(u64::from(!frame.flags.is_instruction)));
    FrameOut {
        address: frame.address,
        cfa: (frame.cfa != 0).then_some(frame.cfa),
        symbol: names.next(),
        inlined: names.collect(),
        module: path,
        svma,
        found: found(frame).to_owned(),
        is_instruction: frame.flags.is_instruction,
        no_call_before: false,
    }
}

fn found(frame: &Frame) -> &'static str {
    match frame.source {
        FrameSource::Registers => "registers",
        _ if frame.flags.fp_fallback => "frame_pointer",
        FrameSource::Cfi => "cfi",
        FrameSource::FramePointer => "frame_pointer",
        FrameSource::Kernel => "kernel",
        FrameSource::Heuristic => "heuristic",
    }
}

fn warning(modules: &ModuleTable<'_>, file: FileIx) -> Option<String> {
    let mapped = modules.file(file)?;
    let path = String::from_utf8_lossy(&mapped.path);
    match modules.image(file) {
        Err(Missing::Replaced) => Some(format!("{path}: ignored, as its build id is not the one in the core dump")),
        Err(missing) => Some(format!("{path}: {}", missing.text())),
        Ok(_) if mapped.identity.build_id.is_none() && mapped.path != b"[vdso]" => {
            Some(format!("{path}: cannot check that this is the file that was mapped"))
        }
        Ok(_) => None,
    }
}
