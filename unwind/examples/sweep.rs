//! Reads all call frame information below the given paths, and compares every row of every FDE of every ELF file, in
//! `.eh_frame` and in `.debug_frame`, with gimli's own evaluator. Prints errors and differences, and the most time and
//! memory one file took. Exits with 1 if anything differs or a file takes more than 2 s or 256 MiB.
//!
//! `cargo run --release -p fpprof-unwind --example sweep -- /usr/lib /usr/bin`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fpprof_unwind::{Arch, CfaRule, Module, ModuleSections, Row, Section, SectionKind, row_at};
use gimli::{BaseAddresses, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindSection};
use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object, ObjectSection};

/// Limits of time and memory per file.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_MEMORY_KIB: u64 = 256 << 10;

/// Results.
#[derive(Default)]
struct Totals {
    files: usize,
    entries: usize,
    bad: usize,
    rows: usize,
    different: usize,
    debug_rows: usize,
    /// The most processor time to index a file and find the row of every FDE, and the file.
    slowest: (Duration, PathBuf),
    /// The peak memory of this process meanwhile, and the file.
    largest: (u64, PathBuf),
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
    let Totals { files, entries, bad, rows, different, debug_rows, slowest, largest } = totals;
    println!(
        "{files} files, {entries} entries, {bad} bad, {rows} rows ({debug_rows} in .debug_frame), {different} different"
    );
    println!("most time: {:?}, {}", slowest.0, slowest.1.display());
    println!("most memory: {} KiB, {}", largest.0, largest.1.display());
    let is_good = different == 0 && slowest.0 <= MAX_TIME && largest.0 <= MAX_MEMORY_KIB;
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Processor time of this thread.
fn time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the kernel says how long a thread has run"))
}

/// Resets the recorded peak memory.
fn reset_memory() {
    std::fs::write("/proc/self/clear_refs", "5").expect("a process may reset its own peak");
}

/// Peak memory since the last reset, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("the kernel says how much there was")
}

fn sweep(path: &Path, totals: &mut Totals) {
    reset_memory();
    let Ok(file) = File::open(path) else { return };
    let cache = ReadCache::new(file);
    if (&cache).read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return;
    }
    let start = time();
    let Some(sections) = sections(path, &cache) else { return };
    let (arch, parts) = (sections.arch, [sections.eh_frame.clone(), sections.debug_frame.clone()]);
    if parts.iter().all(Option::is_none) {
        return;
    }
    let module = Module::new(sections);
    let (entries, bad) = module.count_entries();
    let mut n_found = 0;
    module.for_each_range(|range| n_found += usize::from(row_at(&module, range.start).is_ok()));
    let (spent, memory) = (time().saturating_sub(start), memory());
    if spent > totals.slowest.0 {
        totals.slowest = (spent, path.to_owned());
    }
    if memory > totals.largest.0 {
        totals.largest = (memory, path.to_owned());
    }
    if bad > 0 {
        println!("{}: {bad} bad entries of {entries}, rows of {n_found}", path.display());
    }
    let [eh_frame, debug_frame] = parts;
    let vendor = if arch == Arch::Aarch64 { gimli::Vendor::AArch64 } else { gimli::Vendor::Default };
    let word = if arch == Arch::I386 { 4 } else { 8 };
    if let Some(part) = eh_frame {
        let mut section = EhFrame::new(&part.bytes, LittleEndian);
        section.set_address_size(word);
        section.set_vendor(vendor);
        add(totals, compare(path, &module, &section, SectionKind::EhFrame, part.svma));
    }
    if let Some(part) = debug_frame {
        let mut section = DebugFrame::new(&part.bytes, LittleEndian);
        section.set_address_size(word);
        section.set_vendor(vendor);
        let found = compare(path, &module, &section, SectionKind::DebugFrame, part.svma);
        totals.debug_rows += found.0;
        add(totals, found);
    }
    totals.files += 1;
    totals.entries += entries;
    totals.bad += bad;
}

fn add(totals: &mut Totals, (rows, different): (usize, usize)) {
    totals.rows += rows;
    totals.different += different;
}

/// The call frame information of a file, if its architecture is supported.
fn sections(path: &Path, cache: &ReadCache<File>) -> Option<ModuleSections> {
    let Ok(file) = object::File::parse(cache) else {
        println!("{}: not readable as ELF", path.display());
        return None;
    };
    let arch = match file.architecture() {
        Architecture::X86_64 => Arch::X86_64,
        Architecture::Aarch64 => Arch::Aarch64,
        Architecture::I386 => Arch::I386,
        _ => return None,
    };
    if file.kind() == object::ObjectKind::Relocatable {
        return None;
    }
    let section = |name| {
        let section = file.section_by_name(name)?;
        let bytes = section.uncompressed_data().ok().filter(|bytes| !bytes.is_empty())?;
        Some(Section { svma: section.address(), bytes: bytes.into_owned().into() })
    };
    Some(ModuleSections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        debug_frame: section(".debug_frame"),
        arch,
        ..ModuleSections::default()
    })
}

/// Compares a section with gimli; returns (rows, rows that differ). FDEs inside others, and those of addresses the
/// other section covers, are skipped.
fn compare<'a, S: UnwindSection<EndianSlice<'a, LittleEndian>>>(
    path: &Path,
    module: &Module,
    section: &S,
    kind: SectionKind,
    svma: u64,
) -> (usize, usize) {
    let bases = BaseAddresses::default().set_eh_frame(svma);
    let mut context = UnwindContext::new();
    let (mut rows, mut different) = (0, 0);
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
        let Ok(mut table) = fde.rows(section, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            let svma = row.start_address();
            if svma >= row.end_address() {
                continue;
            }
            rows += 1;
            match row_at(module, svma) {
                Ok(ours) if ours.entry_range.start != fde.initial_address() || ours.section != kind => {}
                Ok(ours) if is_same(&ours, row) => {}
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
        // gimli defaults to CFA = r0 + 0.
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
