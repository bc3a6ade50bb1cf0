//! Reads all call frame information below the given paths: every row of every entry of every ELF file, against
//! gimli's own evaluator. Prints what is bad and what differs, and ends with 1 if anything differs.
//!
//! `cargo run --release -p fpprof-unwind --example sweep -- /usr/lib /usr/bin`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpprof_unwind::{Arch, CfaRule, Module, ModuleSections, Row, Section, row_at};
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Architecture, Object, ObjectSection};

/// What was found.
#[derive(Default)]
struct Totals {
    files: usize,
    entries: usize,
    bad: usize,
    rows: usize,
    different: usize,
    /// The longest time an index took.
    slowest: Duration,
}

fn main() -> ExitCode {
    let mut totals = Totals::default();
    let mut seen = HashSet::new();
    let mut open: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    while let Some(path) = open.pop() {
        let Ok(path) = path.canonicalize() else { continue };
        if !seen.insert(path.clone()) {
            continue;
        }
        if path.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => open.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) => eprintln!("{}: {error}", path.display()),
            }
        } else if path.is_file() {
            sweep(&path, &mut totals);
        }
    }
    let Totals { files, entries, bad, rows, different, slowest } = totals;
    println!(
        "{files} files, {entries} entries, {bad} bad, {rows} rows, {different} different, indexed in {slowest:?} at most"
    );
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sweep(path: &Path, totals: &mut Totals) {
    let Ok(bytes) = std::fs::read(path) else { return };
    if !bytes.starts_with(b"\x7fELF") {
        return;
    }
    let Ok(file) = object::File::parse(&*bytes) else {
        println!("{}: not readable as ELF", path.display());
        return;
    };
    let arch = match file.architecture() {
        Architecture::X86_64 => Arch::X86_64,
        Architecture::Aarch64 => Arch::Aarch64,
        Architecture::I386 => Arch::I386,
        _ => return,
    };
    if file.kind() == object::ObjectKind::Relocatable {
        return;
    }
    let section = |name| {
        let section = file.section_by_name(name)?;
        let bytes = section.uncompressed_data().ok()?;
        Some(Section { svma: section.address(), bytes: Arc::from(&*bytes) })
    };
    let sections = ModuleSections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        arch,
        ..ModuleSections::default()
    };
    let Some(eh_frame) = sections.eh_frame.clone() else { return };
    let start = Instant::now();
    let module = Module::new(sections);
    let (entries, bad) = module.count_entries();
    totals.slowest = totals.slowest.max(start.elapsed());
    if bad > 0 {
        println!("{}: {bad} bad entries of {entries}", path.display());
    }
    let (rows, different) = compare(path, &module, &eh_frame, arch);
    totals.files += 1;
    totals.entries += entries;
    totals.bad += bad;
    totals.rows += rows;
    totals.different += different;
}

/// (rows, rows that differ) of a section. Entries inside others are left to gimli.
fn compare(path: &Path, module: &Module, eh_frame: &Section, arch: Arch) -> (usize, usize) {
    let mut section = EhFrame::new(&eh_frame.bytes, LittleEndian);
    if arch == Arch::I386 {
        section.set_address_size(4);
    }
    if arch == Arch::Aarch64 {
        section.set_vendor(gimli::Vendor::AArch64);
    }
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.svma);
    let mut context = UnwindContext::new();
    let (mut rows, mut different) = (0, 0);
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let Ok(mut table) = fde.rows(&section, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            let svma = row.start_address();
            if svma >= row.end_address() {
                continue;
            }
            rows += 1;
            match row_at(module, svma) {
                Ok(ours) if ours.entry_range.start != fde.initial_address() || is_same(&ours, row) => {}
                ours => {
                    different += 1;
                    println!("{}: {svma:#x}: {ours:?}: {row:?}", path.display());
                }
            }
        }
    }
    (rows, different)
}

fn is_same(ours: &Row, theirs: &gimli::UnwindTableRow<usize>) -> bool {
    use fpprof_unwind::RegisterRule as Ours;
    use gimli::RegisterRule as Theirs;
    let same_cfa = match (ours.cfa, theirs.cfa()) {
        (
            CfaRule::RegisterOffset { register, offset },
            gimli::CfaRule::RegisterAndOffset { register: r, offset: o },
        ) => (register, offset) == (r.0, *o),
        (CfaRule::Expression(ours), gimli::CfaRule::Expression(theirs)) => ours.offset as usize == theirs.offset,
        // gimli takes CFA = r0 + 0 for granted.
        (CfaRule::None, _) => true,
        _ => false,
    };
    let n_registers = u16::try_from(ours.arch.n_registers()).unwrap_or(0);
    same_cfa
        && (0..n_registers).all(|register| {
            match (ours.register(register), theirs.register(gimli::Register(register))) {
                (Ours::Unspecified, None)
                | (Ours::Undefined, Some(Theirs::Undefined))
                | (Ours::SameValue, Some(Theirs::SameValue)) => true,
                (Ours::Offset(ours), Some(Theirs::Offset(theirs)))
                | (Ours::ValOffset(ours), Some(Theirs::ValOffset(theirs))) => ours == theirs,
                (Ours::Register(ours), Some(Theirs::Register(theirs))) => ours == theirs.0,
                (Ours::Expression(ours), Some(Theirs::Expression(theirs)))
                | (Ours::ValExpression(ours), Some(Theirs::ValExpression(theirs))) => {
                    ours.offset as usize == theirs.offset
                }
                _ => false,
            }
        })
}
