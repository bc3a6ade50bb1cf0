extern crate std;

use core::ops::Range;

use super::resolve_quickly;
use crate::module::Module;
use crate::rule::{Kind, Rule};
use crate::space::{Mapping, ModuleId, Modules, Space};
use crate::stack::{Root, StopReason, TruncatedReason};
use crate::unwinder::single::Unwinder;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use std::path::{Path, PathBuf};
use std::vec::Vec;

/// An ELF file with its code.
struct File {
    module: Module,
    segments: Vec<(u64, Vec<u8>)>,
}

impl File {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a file");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let segments = file.segments().map(|segment| (segment.address(), segment.data().expect("bytes").to_vec()));
        Self { segments: segments.collect(), module: Module::from_object(&file).expect("sections") }
    }
}

impl Modules for File {
    fn module(&self, _id: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        let bytes = self.segments.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(svma.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(code.len())?)
        });
        bytes.is_some_and(|bytes| {
            code.copy_from_slice(bytes);
            true
        })
    }
}

/// The C library, this program, and the files in `FPPROF_ROWS_OF`, as for `just unwind-rows`. Each with a step: of
/// larger files, only one function in `step` is checked.
fn files() -> Vec<(PathBuf, usize)> {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    let libc = libc.iter().map(Path::new).find(|path| path.exists()).expect("the C library");
    let own = std::env::current_exe().expect("this program");
    let asked = std::env::var_os("FPPROF_ROWS_OF").unwrap_or_default();
    let asked = std::env::split_paths(&asked).filter(|path| !path.as_os_str().is_empty()).map(|path| (path, 1));
    [(libc.to_path_buf(), 1), (own, 7)].into_iter().chain(asked).collect()
}

/// Compares the rules of the function at an address with those of a walk at each of its addresses; returns them.
fn checked(file: &File, svma: u64, unwinder: &mut Unwinder, other: &mut Unwinder) -> Vec<(Range<u64>, Rule)> {
    let id = ModuleId(0);
    let everywhere = Mapping { start: 0, end: u64::MAX, executable: true, module: Some(id), bias: 0 };
    let space = Space::new(0, std::vec![everywhere]);
    let mut found: Vec<(Range<u64>, Rule)> = Vec::new();
    unwinder.function_rules(file, id, svma, |range, bits| {
        let rule = Rule::from_bits(bits);
        assert!(found.last().is_none_or(|(last, known)| last.end == range.start && *known != rule), "{range:x?}");
        for at in range.clone() {
            assert_eq!(rule, resolve_quickly(file, &space, at, &mut other.compiler), "{at:#x}");
        }
        found.push((range, rule));
    });
    found
}

/// A file whose mappings are elsewhere, as those of a program that is not position-independent.
struct Mapped(File);

impl Modules for Mapped {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        self.0.module(id)
    }

    fn bias(&self, _mapping: &Mapping) -> u64 {
        0x40_0000
    }

    fn code(&self, id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        self.0.code(id, svma, code)
    }
}

/// Check that rules do not depend on where a file is mapped, where each address has its own: in `clone`, whose caller is
/// undefined in the new thread.
#[test]
fn rules_are_those_of_the_file() {
    let (path, _) = files().swap_remove(0);
    let bytes = std::fs::read(&path).expect("a file");
    let elf = object::File::parse(&*bytes).expect("an ELF file");
    let clone = elf.dynamic_symbols().find(|symbol| symbol.name() == Ok("clone")).expect("clone").address();
    let (file, mapped) = (File::read(&path), Mapped(File::read(&path)));
    let mut roots = 0;
    for svma in clone..clone + 128 {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        Unwinder::default().function_rules(&file, ModuleId(0), svma, |range, bits| here.push((range, bits)));
        Unwinder::default().function_rules(&mapped, ModuleId(0), svma, |range, bits| there.push((range, bits)));
        assert_eq!(here, there, "{svma:#x}");
        let is_root = |bits: u64| matches!(Rule::from_bits(bits).kind(), Kind::Stop);
        roots += here.iter().filter(|(range, bits)| range.contains(&svma) && is_root(*bits)).count();
    }
    assert!(roots > 0, "the new thread's part of clone");
}

/// Check that each address of every function has the rule a walk uses, that functions are covered without gaps and give
/// the same rules from any of their addresses, and that lazy PLT entries, the signal
/// frame and every root of the C library are found.
#[test]
fn rules_are_those_of_walks() {
    for (nth, (path, step)) in files().into_iter().enumerate() {
        let file = File::read(&path);
        let (mut unwinder, mut other) = (Unwinder::default(), Unwinder::default());
        let mut functions = Vec::new();
        file.module.for_each_range(|range| functions.push(range));
        let mut all: Vec<Rule> = Vec::new();
        for range in functions.into_iter().filter(|range| !range.is_empty()).step_by(step) {
            let found = checked(&file, range.start, &mut unwinder, &mut other);
            let [first, .., last] = &*[&found[..], &found[..]].concat() else { panic!("nothing of {range:x?}") };
            assert_eq!(first.0.start..last.0.end, range, "{}", path.display());
            for at in [range.start + (range.end - range.start) / 2, range.end - 1] {
                let again = checked(&file, at, &mut unwinder, &mut other);
                assert_eq!(again, found, "{} {at:#x}", path.display());
            }
            // A new context returns to the first instruction of a function.
            let before = checked(&file, range.start - 1, &mut unwinder, &mut other);
            all.extend(found.into_iter().chain(before).map(|(_, rule)| rule));
        }
        let has_stop = |root| all.contains(&Rule::stop(StopReason::Complete(root)));
        assert!(all.len() > 1000 || nth > 1, "{}: {} rules", path.display(), all.len());
        let is_libc = nth == 0;
        assert!(!is_libc || has_stop(Root::ThreadStart) && has_stop(Root::StartContext), "{}", path.display());
        assert!(!is_libc || all.iter().any(|rule| rule.kind() == Kind::Plt), "{}", path.display());
        assert!(!is_libc || all.contains(&Rule::SIGNAL), "{}", path.display());
        assert!(nth != 1 || has_stop(Root::Start), "{}", path.display());
    }
}

/// Check that the rules of code without call frame information are those of walks, for the 256 bytes around an address
/// but not beyond a function.
#[test]
fn code_without_information_has_rules_by_the_block() {
    let own = std::env::current_exe().expect("this program");
    let file = File::read(&own);
    let (mut unwinder, mut other) = (Unwinder::default(), Unwinder::default());
    let no_cfi = Rule::stop(StopReason::Truncated(TruncatedReason::NoCfi));
    assert_eq!(checked(&file, 1, &mut unwinder, &mut other), [(0..256, no_cfi)]);
    let mut functions = Vec::new();
    file.module.for_each_range(|range| functions.push(range));
    let first = functions.first().expect("functions").start;
    let found = checked(&file, first - 1, &mut unwinder, &mut other);
    assert!(found.last().is_some_and(|(range, _)| range.end == first), "{found:x?}");
}
