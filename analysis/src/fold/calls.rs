//! Finds return addresses that do not follow a call: forged, or stale where a row or a frame pointer is wrong.

use super::{Folder, Where};
use crate::address_space::FileIx;
use crate::modules::{ElfFile, ModuleTable};
use fpprof_unwind::{Arch, CALL_BYTES, ModuleId, Modules as _, StopReason};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of code read at a time: addresses are visited in order and are close together.
const WINDOW_BYTES: u64 = 16 << 10;

/// Frames of folded stacks whose return address does not follow a call.
#[derive(Debug, Default)]
pub struct WithoutCall {
    frames: FxHashSet<u32>,
    /// Samples with such a frame, by strategy number.
    samples: FxHashMap<u32, u64>,
}

impl WithoutCall {
    /// Examines the code before every return address in a module, as far as it can be read.
    ///
    /// Some legitimate return addresses do not follow a call: the kernel makes signal handlers return to a trampoline,
    /// and contexts and goroutines start with the address of their root on the stack. These are never reported, under
    /// any strategy: an address that is a root by call frame information is one in a frame-pointer chain too.
    #[must_use]
    pub fn new(folder: &Folder, modules: &ModuleTable<'_>) -> Self {
        let numbered = (0..).zip(folder.frames()).filter(|(_, frame)| frame.is_return);
        let mut frames = not_after_calls(numbered.map(|(number, frame)| (number, frame.place)), modules);
        if frames.is_empty() {
            return Self::default();
        }
        let stacks: Vec<&[u32]> = folder.stacks().collect();
        let place = |frame: &u32| folder.frames().get(*frame as usize).map(|frame| frame.place);
        let complete = folder.counts().filter(|(key, _)| matches!(key.stop, StopReason::Complete(_)));
        let roots = complete.filter_map(|(key, _)| place(stacks.get(key.stack as usize)?.last()?));
        let roots: FxHashSet<Where> = roots.collect();
        frames.retain(|frame| !place(frame).is_some_and(|place| roots.contains(&place)));
        let mut samples: FxHashMap<u32, u64> = FxHashMap::default();
        for (key, amount) in folder.counts() {
            let stack = stacks.get(key.stack as usize).copied().unwrap_or(&[]);
            if stack.iter().any(|frame| frames.contains(frame)) {
                let n = samples.entry(key.strategy).or_default();
                *n = n.saturating_add(amount.samples);
            }
        }
        Self { frames, samples }
    }

    /// Whether the frame with this number is one of them.
    #[must_use]
    pub fn has(&self, frame: u32) -> bool {
        self.frames.contains(&frame)
    }

    /// Samples with such a frame under the strategy with this number.
    #[must_use]
    pub fn samples(&self, strategy: u32) -> u64 {
        self.samples.get(&strategy).copied().unwrap_or(0)
    }
}

/// The numbers of those return addresses, given as look-up addresses, that do not follow a call.
pub(crate) fn not_after_calls(places: impl Iterator<Item = (u32, Where)>, modules: &ModuleTable<'_>) -> FxHashSet<u32> {
    let mut returns: Vec<(FileIx, u64, u32)> = Vec::new();
    for (number, place) in places {
        if let Where::Module(file, lookup) = place {
            returns.push((file, lookup, number));
        }
    }
    returns.sort_unstable();
    let mut found = FxHashSet::default();
    for of_file in returns.chunk_by(|a, b| a.0 == b.0) {
        let Some(mut code) = of_file.first().and_then(|&(file, ..)| CodeBefore::new(modules, file)) else { continue };
        let doubtful = of_file.iter().filter(|&&(file, lookup, _)| {
            !code.may_be_call(lookup) && !is_without_call(modules, code.arch, file, lookup)
        });
        found.extend(doubtful.map(|&(.., frame)| frame));
    }
    found
}

/// Whether a return address does not follow a call. Excludes signal trampolines, recognised by their rows or code. The
/// frame above cannot be used for that: a frame-pointer chain lacks the frame a signal interrupted.
fn is_without_call(modules: &ModuleTable<'_>, arch: Arch, file: FileIx, lookup: u64) -> bool {
    let module = ModuleId(file.0);
    let mut code = [0; CALL_BYTES];
    modules.module(module).is_ok_and(|module| module.is_signal_frame(lookup))
        || modules.code(module, lookup.wrapping_add(1), &mut code) && arch.is_returned_to_without_call(&code)
}

/// Reads the code of a file in ascending order.
struct CodeBefore {
    elf: ElfFile,
    arch: Arch,
    /// Offset in the file, and the bytes there.
    window: (u64, Vec<u8>),
}

impl CodeBefore {
    fn new(modules: &ModuleTable<'_>, file: FileIx) -> Option<Self> {
        let elf = modules.open(file).ok()?;
        let arch = elf.image().arch?;
        Some(Self { elf, arch, window: (0, Vec::new()) })
    }

    /// Whether a call may end with the byte at an SVMA; true if it cannot be read.
    fn may_be_call(&mut self, last_byte: u64) -> bool {
        let first = last_byte.checked_add(1).and_then(|end| end.checked_sub(CALL_BYTES as u64));
        let offset = first.and_then(|svma| self.elf.image().file_offset(svma));
        let Some(before) = offset.and_then(|offset| self.read(offset)) else { return true };
        self.arch.ends_with_call(&before)
    }

    fn read(&mut self, offset: u64) -> Option<[u8; CALL_BYTES]> {
        if let Some(bytes) = self.in_window(offset) {
            return Some(bytes);
        }
        let bytes = self.elf.read_range(offset, WINDOW_BYTES, WINDOW_BYTES);
        // The file may end before the window does.
        let bytes = bytes.or_else(|| self.elf.read_range(offset, CALL_BYTES as u64, CALL_BYTES as u64))?;
        self.window = (offset, bytes);
        self.in_window(offset)
    }

    fn in_window(&self, offset: u64) -> Option<[u8; CALL_BYTES]> {
        let at = usize::try_from(offset.checked_sub(self.window.0)?).ok()?;
        self.window.1.get(at..)?.first_chunk().copied()
    }
}
