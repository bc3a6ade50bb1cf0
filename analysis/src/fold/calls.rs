//! Return addresses that no call can have left: forged, or left over where a row or a frame pointer is wrong.

use super::{Folder, Where};
use crate::address_space::FileIx;
use crate::modules::{ElfFile, ModuleTable};
use fpprof_unwind::{Arch, CALL_BYTES, ModuleId, Modules as _, StopReason};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of code read at a time: addresses are looked at in order, and lie close together.
const WINDOW_BYTES: u64 = 16 << 10;

/// Which frames of folded stacks have a return address without a call before it.
#[derive(Debug, Default)]
pub struct WithoutCall {
    frames: FxHashSet<u32>,
    /// Samples with such a frame, by the number of the strategy.
    samples: FxHashMap<u32, u64>,
}

impl WithoutCall {
    /// Looks at the code before every return address in a module, as far as it can be read.
    ///
    /// Some returns are to where nothing has called: the kernel sends signal handlers back through a trampoline, and
    /// what starts a context or a goroutine puts the root of its stack there. Those are none, whatever strategy has found
    /// them: what is a root by call frame information is one in a frame-pointer chain too, which may not know it.
    #[must_use]
    pub fn new(folder: &Folder, modules: &ModuleTable<'_>) -> Self {
        let numbered = (0..).zip(folder.frames()).filter(|(_, frame)| frame.is_return);
        let mut frames = not_behind_calls(numbered.map(|(number, frame)| (number, frame.place)), modules);
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

    /// Whether the frame of this number is one.
    #[must_use]
    pub fn has(&self, frame: u32) -> bool {
        self.frames.contains(&frame)
    }

    /// Samples with such a frame under the strategy of this number.
    #[must_use]
    pub fn samples(&self, strategy: u32) -> u64 {
        self.samples.get(&strategy).copied().unwrap_or(0)
    }
}

/// Which of these return addresses, numbered and as they are looked up, have no call before them.
pub(crate) fn not_behind_calls(
    places: impl Iterator<Item = (u32, Where)>,
    modules: &ModuleTable<'_>,
) -> FxHashSet<u32> {
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

/// Whether a return address is one without a call by its rows, which say that a signal handler returns there, or by its
/// code. The frame above does not tell: a frame-pointer chain has none of what a signal has interrupted.
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
    /// Offset in the file, and what stands from there on.
    window: (u64, Vec<u8>),
}

impl CodeBefore {
    fn new(modules: &ModuleTable<'_>, file: FileIx) -> Option<Self> {
        let elf = modules.open(file).ok()?;
        let arch = elf.image().arch?;
        Some(Self { elf, arch, window: (0, Vec::new()) })
    }

    /// Whether a call can end with the byte at an SVMA, as can one that cannot be read.
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
