//! Compares the rows of real files with gimli's evaluator, and walks with both.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpprof_unwind::{
    CfaRule, Mapping, Memory, Module, ModuleId, ModuleSections, ReadFault, RegisterRule, Regs, Row, Section, Space,
    Stack, Unwinder, row_at,
};
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection};

use crate::build::{Cfi, RBP, Table, cfa};

type Reader<'a> = gimli::EndianSlice<'a, LittleEndian>;
type GimliRow = gimli::UnwindTableRow<usize>;

const SP: u64 = 0x10_0000_0000;
const FP: u64 = SP + (1 << 32);
/// Below this, memory under the stack pointer belongs to no function.
const RED_ZONE_BYTES: u64 = 128;
const SAVED_FP: u64 = SP + (2 << 32);
/// A function whose CFA is fp + 16, so that its frame shows the value of fp.
const PROBE: u64 = 0x7fff_0000_0000;

/// The files mapped by this test program: itself, the C library, the loader.
fn mapped_files() -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.filter(|path| path.starts_with('/')).map(PathBuf::from).collect()
}

/// The output of a program, as a path.
fn path_from(program: &str, argument: &[&str]) -> PathBuf {
    let output = Command::new(program).args(argument).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The `cc1` of the C compiler that links Rust programs.
fn cc1() -> PathBuf {
    let path = path_from("cc", &["-print-prog-name=cc1"]);
    assert!(path.is_absolute(), "cc must be gcc, whose cc1 is read");
    path
}

fn librustc_driver() -> PathBuf {
    let lib = path_from("rustc", &["--print", "sysroot"]).join("lib");
    let mut files = std::fs::read_dir(lib).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().contains("librustc_driver")).expect("rustc has its driver as a library")
}

fn sections(path: &Path) -> Option<ModuleSections> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).ok()?;
    let section = |name| {
        let section = file.section_by_name(name)?;
        let bytes = section.uncompressed_data().unwrap();
        Some(Section { svma: section.address(), bytes: bytes.into_owned().into() })
    };
    Some(ModuleSections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        ..ModuleSections::default()
    })
}

/// The addresses of a row to walk from.
#[derive(Debug, Clone, Copy)]
enum Walks {
    FirstAndLast,
    Every,
}

/// What was checked in a file.
#[derive(Debug, Default)]
struct Checked {
    rows: usize,
    /// Addresses walked from, and those whose row does not allow predicting the walk.
    walks: usize,
    others: usize,
}

/// Checks every row of every `step`th entry of a file.
fn check_file(path: &Path, step: usize, walks: Walks) -> Checked {
    let mut checked = Checked::default();
    let Some(sections) = sections(path) else { return checked };
    let Some(eh_frame) = sections.eh_frame.clone() else { return checked };
    let section = EhFrame::new(&eh_frame.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.svma);
    let mut probe = Cfi::eh_frame();
    probe.fde(0x1000, 0x10, &[cfa::def_cfa(RBP, 16)]);
    let modules = Table(vec![Ok(Module::new(sections)), Ok(probe.module())]);
    let mut checker = Checker::new(&modules);
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    let mut n_entries = 0;
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        n_entries += 1;
        if n_entries % step != 0 {
            continue;
        }
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        let mut table = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            if row.start_address() < row.end_address() {
                checker.check(row, &fde, walks, &mut checked);
            }
        }
    }
    checked
}

struct Checker<'a> {
    modules: &'a Table,
    space: Space,
    unwinder: Unwinder,
    stack: Stack,
}

impl<'a> Checker<'a> {
    fn new(modules: &'a Table) -> Self {
        let mapping = |start, len, module, bias| Mapping {
            start,
            end: start + len,
            executable: true,
            module: Some(ModuleId(module)),
            bias,
        };
        let space = Space::new(0, vec![mapping(0, 1 << 32, 0, 0), mapping(PROBE, 0x2000, 1, PROBE)]);
        Self { modules, space, unwinder: Unwinder::default(), stack: Stack::default() }
    }

    /// Checks a row, and walks from its addresses.
    fn check(
        &mut self,
        row: &GimliRow,
        fde: &gimli::FrameDescriptionEntry<Reader<'_>>,
        walks: Walks,
        checked: &mut Checked,
    ) {
        let (start, end) = (row.start_address(), row.end_address());
        let ours = row_at(self.modules.0[0].as_ref().unwrap(), start).unwrap();
        assert_eq!(ours.entry_range, fde.initial_address()..fde.end_address());
        assert_eq!(ours.range, start..end);
        assert_same_rules(&ours, row);
        checked.rows += 1;
        let addresses = match walks {
            Walks::FirstAndLast => (start..end).step_by(usize::try_from(end - start - 1).unwrap().max(1)),
            Walks::Every => (start..end).step_by(1),
        };
        for svma in addresses {
            let count = if self.check_walk(svma, &ours) { &mut checked.walks } else { &mut checked.others };
            *count += 1;
        }
    }

    /// Whether the walk could be predicted.
    fn check_walk(&mut self, svma: u64, row: &Row) -> bool {
        let Some(expected) = Expected::of(row) else { return false };
        let mut values = [0; 17];
        (values[7], values[6], values[16]) = (SP, FP, svma);
        let memory = Slots { ra: expected.cfa - 8, fp: expected.fp_slot };
        self.unwinder.unwind(self.modules, &self.space, &Regs::x86_64(&values), &memory, &mut self.stack);
        let frames = &self.stack.frames;
        let words = || format!("{svma:#x}: {row}: {:?}", self.stack);
        assert_eq!(frames[0].cfa, expected.cfa, "{}", words());
        assert_eq!(frames[1].address, PROBE + 0x1008, "{}", words());
        if expected.fp + 16 > expected.cfa {
            assert_eq!(frames[1].cfa, expected.fp + 16, "{}", words());
        }
        true
    }
}

/// The effect of a row on the sampled registers, computed without the unwinder.
struct Expected {
    cfa: u64,
    fp: u64,
    fp_slot: Option<u64>,
}

impl Expected {
    /// `None` for rows with expressions or without a caller, and for signal frames.
    fn of(row: &Row) -> Option<Self> {
        let CfaRule::RegisterOffset { register, offset } = row.cfa else { return None };
        let base = match register {
            6 => FP,
            7 => SP,
            _ => return None,
        };
        let cfa = base.wrapping_add_signed(offset);
        if row.is_signal_frame || row.register(16) != RegisterRule::Offset(-8) || cfa <= SP || cfa % 8 != 0 {
            return None;
        }
        let slot = match row.register(6) {
            RegisterRule::Unspecified | RegisterRule::SameValue => None,
            RegisterRule::Offset(offset) => Some(cfa.wrapping_add_signed(offset)),
            _ => return None,
        };
        let fp_slot = slot.filter(|slot| *slot >= SP - RED_ZONE_BYTES);
        Some(Self { cfa, fp: if fp_slot.is_some() { SAVED_FP } else { FP }, fp_slot })
    }
}

/// A memory with a return address in one word and a frame pointer in another.
struct Slots {
    ra: u64,
    fp: Option<u64>,
}

impl Memory for Slots {
    fn read_u64(&self, avma: u64) -> Result<u64, ReadFault> {
        match avma {
            _ if avma == self.ra => Ok(PROBE + 0x1008),
            _ if Some(avma) == self.fp => Ok(SAVED_FP),
            _ => Ok(0x4141_4141_4141_4141),
        }
    }

    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), ReadFault> {
        let word = self.read_u64(avma)?.to_le_bytes();
        buf.copy_from_slice(&word[..buf.len()]);
        Ok(())
    }
}

/// Asserts that our row equals gimli's.
pub(crate) fn assert_same_rules(ours: &Row, theirs: &GimliRow) {
    match (ours.cfa, theirs.cfa()) {
        (
            CfaRule::RegisterOffset { register, offset },
            gimli::CfaRule::RegisterAndOffset { register: r, offset: o },
        ) => {
            assert_eq!((register, offset), (r.0, *o), "{ours}");
        }
        (CfaRule::Expression(bytes), gimli::CfaRule::Expression(expression)) => {
            assert_eq!((bytes.offset as usize, bytes.len as usize), (expression.offset, expression.length), "{ours}");
        }
        _ => panic!("{ours}: {:?}", theirs.cfa()),
    }
    for register in 0..33 {
        let theirs = theirs.register(gimli::Register(register));
        let same = match (ours.register(register), &theirs) {
            (RegisterRule::Unspecified, None)
            | (RegisterRule::Undefined, Some(gimli::RegisterRule::Undefined))
            | (RegisterRule::SameValue, Some(gimli::RegisterRule::SameValue)) => true,
            (RegisterRule::Offset(ours), Some(gimli::RegisterRule::Offset(theirs)))
            | (RegisterRule::ValOffset(ours), Some(gimli::RegisterRule::ValOffset(theirs))) => ours == *theirs,
            (RegisterRule::Register(ours), Some(gimli::RegisterRule::Register(theirs))) => ours == theirs.0,
            (RegisterRule::Expression(ours), Some(gimli::RegisterRule::Expression(theirs)))
            | (RegisterRule::ValExpression(ours), Some(gimli::RegisterRule::ValExpression(theirs))) => {
                (ours.offset as usize, ours.len as usize) == (theirs.offset, theirs.length)
            }
            _ => false,
        };
        assert!(same, "{ours}: register {register}: {theirs:?}");
    }
}

/// Check that all rows of this program and its libraries equal gimli's, and that walks follow them from every address.
/// `just unwind-rows` checks other files.
#[test]
fn rows_of_mapped_files_are_followed() {
    let asked = std::env::var_os("FPPROF_ROWS_OF").unwrap_or_default();
    let mut rows = 0;
    let asked = std::env::split_paths(&asked).filter(|path| !path.as_os_str().is_empty());
    for path in mapped_files().into_iter().chain(asked) {
        let checked = check_file(&path, 1, Walks::Every);
        rows += checked.rows;
        // Seen with --nocapture.
        writeln!(std::io::stderr(), "{}: {checked:?}", path.display()).unwrap();
    }
    assert!(rows > 10_000, "{rows}");
}

/// Check the same for a C compiler and the Rust compiler; without optimisation, for every hundredth FDE.
#[test]
fn rows_of_compilers_are_followed() {
    let step = if cfg!(debug_assertions) { 100 } else { 1 };
    for path in [cc1(), librustc_driver()] {
        let checked = check_file(&path, step, Walks::FirstAndLast);
        assert!(checked.rows > 100_000 / step, "{}: {checked:?}", path.display());
    }
}
