//! Variants of a real ELF file, each with one field changed: the fields of its headers, and the words at the beginning
//! of the sections that are read.

use crate::{MAX_CPU_S, cpu_s, names, rows};
use fpprof_analysis::audit;
use object::elf::{FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, pod};
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

type Header = FileHeader64<Endianness>;

/// Bytes of a section that are changed: a unit's header, two entries of a table, a whole small section.
const BEGINNING: usize = 96;

const PROGRAM: &str = "
struct box { int value; };
static inline int inlined(int n) { return n * 3; }
__attribute__((noinline)) int twice(struct box *box, int n) { volatile int sum = 0;
    for (int i = 0; i < n; i++) sum += inlined(i) + box->value;
    return sum; }
int main(int n) { struct box box = {n}; return twice(&box, n) + twice(&box, 2); }
void _start(void) { main(1); }
";

/// Compiles the file to be changed.
pub(crate) fn program(path: &Path, options: &[&str]) {
    let source = path.with_extension("c");
    std::fs::write(&source, PROGRAM).unwrap();
    let gcc = Command::new("gcc").args(["-nostdlib", "-O1"]).args(options).arg("-o").arg(path).arg(&source).status();
    assert!(gcc.unwrap().success());
}

/// Reads all variants of a file, for names, rows and `audit`; returns how many there were.
pub(crate) fn read_all(path: &Path) -> Vec<String> {
    let file = std::fs::read(path).unwrap();
    let (places, code) = places(&file);
    let svmas: Vec<u64> = code.step_by(8).take(32).collect();
    let mutant = path.with_extension("mutant");
    let mut n = 0;
    for (what, place) in places {
        for value in values(&file[place.clone()], file.len() as u64) {
            let mut changed = file.clone();
            changed[place.clone()].copy_from_slice(&value);
            std::fs::write(&mutant, &changed).unwrap();
            let before_s = cpu_s();
            let read = catch_unwind(AssertUnwindSafe(|| {
                names(&mutant, &svmas);
                rows(&mutant);
                let _ = audit::examine(File::open(&mutant).unwrap(), audit::AuditOptions::default());
            }));
            let took_s = cpu_s() - before_s;
            assert!(read.is_ok() && took_s <= MAX_CPU_S, "{what} at {place:?} is {value:x?}: {took_s} s");
            n += 1;
        }
    }
    vec![n.to_string()]
}

/// The fields to change, with a name, and the range of the code.
fn places(file: &[u8]) -> (Vec<(String, Range<usize>)>, Range<u64>) {
    let header = Header::parse(file).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, file).unwrap();
    let mut places = Vec::new();
    let mut fields = |what: &str, start: usize, sizes: &[usize]| {
        let mut at = start;
        for &size in sizes {
            places.push((what.to_owned(), at..at + size));
            at += size;
        }
    };
    fields("file header", 4, &[1, 1, 1, 1, 8, 2, 2, 4, 8, 8, 8, 4, 2, 2, 2, 2, 2, 2]);
    let offset_of = |entry: *const u8| entry as usize - file.as_ptr() as usize;
    for entry in header.program_headers(endian, file).unwrap() {
        let at = offset_of(pod::bytes_of::<ProgramHeader64<Endianness>>(entry).as_ptr());
        fields("program header", at, &[4, 4, 8, 8, 8, 8, 8, 8]);
    }
    let mut code = 0..0;
    for section in sections.iter() {
        let name = String::from_utf8_lossy(sections.section_name(endian, section).unwrap()).into_owned();
        let at = offset_of(pod::bytes_of::<SectionHeader64<Endianness>>(section).as_ptr());
        fields(&format!("header of {name}"), at, &[4, 4, 8, 8, 8, 8, 4, 4, 8, 8]);
        if name == ".text" {
            code = section.sh_addr(endian)..section.sh_addr(endian) + section.sh_size(endian);
        } else if let Some((at, len)) = section.file_range(endian) {
            let words = len.min(BEGINNING as u64) as usize / 4;
            fields(&name, at as usize, &vec![4; words]);
        }
    }
    (places, code)
}

/// Other values for a field: smallest, largest, half, slightly more and less, the file's length.
fn values(field: &[u8], file_len: u64) -> Vec<Vec<u8>> {
    let old = field.iter().rev().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
    let most = u64::MAX >> (64 - 8 * field.len());
    let mut all = vec![0, 1, old.wrapping_add(1), old.wrapping_sub(1), most / 2 + 1, most, file_len];
    all.iter_mut().for_each(|value| *value &= most);
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter(|&value| value != old).map(|value| value.to_le_bytes()[..field.len()].to_vec()).collect()
}
