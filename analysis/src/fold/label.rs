//! Labels of frames.

use super::{Compiled, Folder, FrameKey, Where, WithoutCall, ranks};
use crate::address_space::FileIx;
use crate::folded::{FrameLabel, Origin};
use crate::modules::{Missing, ModuleTable};
use crate::symbols::{Name, SourceLine, Symbolizer};
use fpprof_unwind::{ModuleId, Modules as _};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The labels of all frames, each by its rank.
#[derive(Debug, Default)]
pub struct Labels {
    /// Sorted and distinct.
    labels: Vec<FrameLabel>,
    /// For each frame the ranks of its labels: the function, then the functions inlined into it, outermost first.
    of_frames: Vec<Vec<u32>>,
    /// One frame for each place, the one whose origin is best.
    at: FxHashMap<Where, u32>,
}

impl Labels {
    /// Labels every frame.
    #[must_use]
    pub fn new(folder: &Folder, modules: &ModuleTable<'_>, symbols: &Symbolizer, without_call: &WithoutCall) -> Self {
        let mut numbers: FxHashMap<FrameLabel, u32> = FxHashMap::default();
        let mut labels: Vec<FrameLabel> = Vec::new();
        let mut of_frames: Vec<Vec<u32>> = Vec::with_capacity(folder.frames().len());
        for (number, frame) in (0..).zip(folder.frames()) {
            let origin = if without_call.has(number) { Origin::WithoutCall } else { frame.origin };
            let frame = FrameKey { origin, ..*frame };
            let shown = label(&frame, modules, symbols).into_iter().map(|label| {
                *numbers.entry(label).or_insert_with_key(|label| {
                    labels.push(label.clone());
                    u32::try_from(labels.len()).unwrap_or(u32::MAX).saturating_sub(1)
                })
            });
            of_frames.push(shown.collect());
        }
        let mut order: Vec<u32> = (0..u32::try_from(labels.len()).unwrap_or(u32::MAX)).collect();
        let key = |&number: &u32| labels.get(number as usize).map(|label| (&label.name, &label.module, label.origin));
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        let ranks = ranks(&order);
        for number in of_frames.iter_mut().flatten() {
            *number = ranks.get(*number as usize).copied().unwrap_or(0);
        }
        let labels = order.iter().filter_map(|&number| labels.get(number as usize).cloned()).collect();
        Self { labels, of_frames, at: frames_at(folder.frames()) }
    }

    /// The ranks of a frame's labels, outermost first.
    #[must_use]
    pub fn of(&self, frame: u32) -> &[u32] {
        self.of_frames.get(frame as usize).map_or(&[], Vec::as_slice)
    }

    /// Name and module of the function at a place of some folded stack, without inlined functions.
    #[must_use]
    pub fn function(&self, place: Where) -> (String, String) {
        let rank = self.at.get(&place).and_then(|&frame| self.of(frame).first());
        rank.map_or_else(Default::default, |&rank| {
            let FrameLabel { name, module, .. } = self.label(rank);
            (name, module)
        })
    }

    /// The ranks of the labels at a place of some folded stack, outermost first. The first one's origin is meaningless,
    /// since another stack may have found it differently.
    #[must_use]
    pub(crate) fn at(&self, place: Where) -> &[u32] {
        self.at.get(&place).map_or(&[], |&frame| self.of(frame))
    }

    /// The label with a rank.
    #[must_use]
    pub fn label(&self, rank: u32) -> FrameLabel {
        let nothing = || FrameLabel { name: String::new(), module: String::new(), origin: Origin::Heuristic };
        self.labels.get(rank as usize).cloned().unwrap_or_else(nothing)
    }
}

/// Of several frames at a place the one with the best origin, since their order depends on which thread was done first.
fn frames_at(frames: &[FrameKey]) -> FxHashMap<Where, u32> {
    let mut at: FxHashMap<Where, u32> = FxHashMap::default();
    for (number, frame) in (0..).zip(frames) {
        let best = at.entry(frame.place).or_insert(number);
        if frames.get(*best as usize).is_some_and(|best| frame < best) {
            *best = number;
        }
    }
    at
}

/// The addresses to symbolise: by module and ascending, and the kernel's.
pub(crate) fn wanted(folder: &Folder, modules: &ModuleTable<'_>) -> (BTreeMap<FileIx, Vec<u64>>, Vec<u64>) {
    let mut wanted: BTreeMap<FileIx, Vec<u64>> = BTreeMap::new();
    let mut of_kernel = Vec::new();
    for frame in folder.frames() {
        match frame.place {
            Where::Module(file, svma) => wanted.entry(file).or_default().push(svma),
            Where::Kernel(address) => of_kernel.push(address),
            Where::Unmapped(_) | Where::Unnamed(_) | Where::Compiled(..) => {}
        }
    }
    for (&file, svmas) in &mut wanted {
        modules.mark_used(file);
        svmas.sort_unstable();
        svmas.dedup();
    }
    (wanted, of_kernel)
}

/// The labels of a frame: the function, then the functions inlined into it, outermost first; with their lines.
fn label(frame: &FrameKey, modules: &ModuleTable<'_>, symbols: &Symbolizer) -> Vec<FrameLabel> {
    let with_line = |(label, line)| {
        let FrameLabel { name, module, origin } = label;
        FrameLabel { name: Name { function: name, line }.to_string(), module, origin }
    };
    functions(frame, modules, symbols).into_iter().map(with_line).collect()
}

/// The same, with the lines separate from the names.
pub(crate) fn functions(
    frame: &FrameKey,
    modules: &ModuleTable<'_>,
    symbols: &Symbolizer,
) -> Vec<(FrameLabel, Option<SourceLine>)> {
    let origin = frame.origin;
    let alone = |label| vec![(label, None)];
    match frame.place {
        Where::Unmapped(address) => alone(unknown(address, origin)),
        Where::Unnamed(_) => alone(compiled(UNNAMED.to_owned(), origin)),
        Where::Compiled(by, address) => {
            let name = match by {
                Compiled::Table(pid) => symbols.compiled(pid, address),
                Compiled::Dump(code) => symbols.dumped(code),
            };
            alone(compiled(name.unwrap_or_else(|| UNNAMED.to_owned()), origin))
        }
        Where::Kernel(address) => alone(kernel_label(address, symbols)),
        Where::Module(file, svma) => {
            let module = modules.file(file).map_or_else(String::new, |file| file.base_name());
            match symbols.user(file, svma) {
                Ok([]) => {
                    let start = function_start(modules, file, svma);
                    alone(FrameLabel { name: format!("[{module}+{start:#x}]"), module, origin })
                }
                Ok(names) => named(names, &module, origin),
                Err(missing) => alone(FrameLabel { name: missing_name(&module, svma, missing), module, origin }),
            }
        }
    }
}

/// Common name of all unnamed JIT-compiled code, whose addresses are meaningless to the reader.
const UNNAMED: &str = "[unnamed]";

fn compiled(name: String, origin: Origin) -> FrameLabel {
    FrameLabel { name, module: "[jit]".to_owned(), origin }
}

fn unknown(address: u64, origin: Origin) -> FrameLabel {
    FrameLabel { name: format!("[unknown {address:#x}]"), module: String::new(), origin }
}

/// Labels for the function, with the origin of the frame, and for the functions inlined into it.
fn named(names: &[Name], module: &str, origin: Origin) -> Vec<(FrameLabel, Option<SourceLine>)> {
    let origins = std::iter::once(origin).chain(std::iter::repeat(Origin::Inlined));
    let labelled = names.iter().zip(origins).map(|(Name { function, line }, origin)| {
        (FrameLabel { name: function.clone(), module: module.to_owned(), origin }, line.clone())
    });
    labelled.collect()
}

/// Start of the unnamed function at an address, so that all its addresses get one name; the address itself if no call
/// frame information covers it.
fn function_start(modules: &ModuleTable<'_>, file: FileIx, svma: u64) -> u64 {
    let range = modules.module(ModuleId(file.0)).ok().and_then(|module| module.range_of(svma));
    range.map_or(svma, |range| range.start)
}

/// The name of code whose file was replaced is the same for the whole module: its offsets are meaningless in the new
/// file.
fn missing_name(module: &str, svma: u64, missing: Missing) -> String {
    if missing.is_other_file() { format!("[{module} {}]", missing.text()) } else { format!("[{module}+{svma:#x}]") }
}

fn kernel_label(address: u64, symbols: &Symbolizer) -> FrameLabel {
    let found = symbols.kernel().and_then(|kernel| kernel.find(address));
    let (name, module) = match found {
        Some(found) => (found.name.into_owned(), found.module.unwrap_or("kernel".into())),
        None => (format!("[kernel+{address:#x}]"), "kernel".into()),
    };
    FrameLabel { name, module: format!("[{module}]"), origin: Origin::Kernel }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Timeline;
    use crate::modules::FileModules;
    use crate::symbols::Detail;
    use crate::test_support::{TestDir, executable, meta, symbols};
    use fpprof_recording::model::{CaptureMode, FileIdentity, Sideband};
    use std::num::NonZeroUsize;

    /// Check that the choice of frame for a place does not depend on their order.
    #[test]
    fn the_best_found_frame_stands_for_its_place() {
        let frame = |origin, is_return| FrameKey { place: Where::Kernel(7), origin, is_return };
        let mut frames = [
            frame(Origin::Heuristic, true),
            frame(Origin::Cfi, true),
            frame(Origin::Leaf, false),
            frame(Origin::Cfi, false),
        ];
        for _ in 0..frames.len() {
            let best = frames_at(&frames)[&Where::Kernel(7)];
            assert_eq!(frames[best as usize], frame(Origin::Leaf, false));
            frames.rotate_left(1);
        }
    }

    /// Check that all addresses of a function without a symbol get one name, that of its start, and that addresses
    /// without call frame information keep their own.
    #[test]
    fn functions_without_symbols_have_one_name() {
        let dir = TestDir::new();
        let source = "volatile int sink; static __attribute__((noinline)) void hidden(int n) { sink -= n; sink ^= n; }
            int main(int argc, char **argv) { hidden(argc); return 0; }";
        let path = dir.compile("program", "a.c", source, &["-O1"]);
        let (start, bytes) = symbols(&path)["hidden"];
        dir.run("strip", &["program"]);
        let mapping = executable(1, 0x10_0000, 0x1000, 0x1000, &path, FileIdentity::default());
        let timeline = Timeline::new([Sideband::Mmap(mapping)]);
        let files = FileModules::new();
        let modules = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &files);
        let nowhere = 0x20_0000;
        let svmas: Vec<u64> = (start..start + bytes).chain([nowhere]).collect();
        let wanted = BTreeMap::from([(FileIx(0), svmas.clone())]);
        let symbols = Symbolizer::new(&modules, &wanted, None, Detail::Inlines, NonZeroUsize::MIN);
        let named = |svma| {
            let key = FrameKey { place: Where::Module(FileIx(0), svma), origin: Origin::Cfi, is_return: false };
            label(&key, &modules, &symbols).remove(0).name
        };
        assert!(bytes > 4);
        assert!((start..start + bytes).all(|svma| named(svma) == format!("[program+{start:#x}]")));
        assert_eq!(named(nowhere), "[program+0x200000]");
    }
}
