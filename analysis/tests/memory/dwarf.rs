//! Debug information that would grow a thousandfold when read.

use super::elf::{self, Section};
use std::io::Write as _;

/// A file with debug information.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) file: Vec<u8>,
    /// Addresses to symbolise.
    pub(crate) svmas: Vec<u64>,
    /// Some of it must be left out, so that the symbol names the code, with a warning.
    pub(crate) is_too_much: bool,
}

/// `DW_TAG_compile_unit`.
const UNIT: u8 = 0x11;
/// `DW_TAG_subprogram`.
const FUNCTION: u8 = 0x2e;
/// `DW_TAG_inlined_subroutine`.
const INLINED: u8 = 0x1d;
/// `DW_AT_low_pc` as an address.
const LOW: [u8; 2] = [0x11, 1];
/// `DW_AT_high_pc` as four bytes.
const HIGH: [u8; 2] = [0x12, 6];
/// `DW_AT_name` in place.
const NAME: [u8; 2] = [3, 8];
/// `DW_AT_ranges` as an offset.
const RANGES: [u8; 2] = [0x55, 0x17];
/// `DW_AT_stmt_list` as an offset.
const LINES: [u8; 2] = [0x10, 0x17];

fn abbreviation(code: u8, tag: u8, has_children: bool, attributes: &[[u8; 2]]) -> Vec<u8> {
    [&[code, tag, u8::from(has_children)], attributes.as_flattened(), &[0, 0]].concat()
}

/// A unit of DWARF 5 whose abbreviations are at the start of their section.
fn unit(entries: &[u8]) -> Vec<u8> {
    let len = (entries.len() + 8) as u32;
    [&len.to_le_bytes()[..], &[5, 0, 1, 8, 0, 0, 0, 0], entries].concat()
}

/// The values of [`LOW`] and [`HIGH`].
fn code(start: u64, bytes: u32) -> Vec<u8> {
    [&start.to_le_bytes()[..], &bytes.to_le_bytes()].concat()
}

fn file(info: Vec<u8>, abbreviations: Vec<u8>, more: Vec<Section>) -> Vec<u8> {
    let [symbols, strings] = elf::symbols(1);
    let mut sections = vec![symbols, strings];
    sections.extend([Section::debug(".debug_info", info), Section::debug(".debug_abbrev", abbreviations)]);
    sections.extend(more);
    elf::file(&sections)
}

/// 256 units that share two megabytes of abbreviations.
fn shared_abbreviations() -> Hostile {
    let mut table = abbreviation(1, UNIT, false, &[LOW, HIGH]);
    for code in 0x4000_u32..0x4000 + 300_000 {
        table.extend([code as u8 | 0x80, (code >> 7) as u8 | 0x80, (code >> 14) as u8 & 0x7f, FUNCTION, 0, 0, 0]);
    }
    table.push(0);
    let unit = unit(&[&[1][..], &code(0x1000, 0x1000)].concat());
    let (name, svmas) = ("units that share abbreviations", vec![0x1800]);
    Hostile { name, file: file(unit.repeat(256), table, Vec::new()), svmas, is_too_much: true }
}

/// Ten thousand functions that share 60 KB of ranges.
fn shared_ranges() -> Hostile {
    let table = [abbreviation(1, UNIT, true, &[LOW, HIGH]), abbreviation(2, FUNCTION, false, &[RANGES]), vec![0]];
    let function = [2, 12, 0, 0, 0];
    let entries = [&[1][..], &code(0x1000, 0x1000), &function.repeat(10_000), &[0]].concat();
    // DW_RLE_offset_pair: one byte of code.
    let list = [[4_u8, 1, 2].repeat(20_000), vec![0]].concat();
    let len = (list.len() + 8) as u32;
    let lists = [&len.to_le_bytes()[..], &[5, 0, 8, 0, 0, 0, 0, 0], &list].concat();
    let more = vec![Section::debug(".debug_rnglists", lists)];
    let (name, svmas) = ("functions that share ranges", vec![0x1800]);
    Hostile { name, file: file(unit(&entries), table.concat(), more), svmas, is_too_much: true }
}

/// A line program of version 4 with these file names.
fn line_program(files: &[u8], program: &[u8]) -> Vec<u8> {
    let mut head = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    head.push(0);
    head.extend(files);
    head.push(0);
    let head = [&(head.len() as u32).to_le_bytes()[..], &head].concat();
    let len = (head.len() + program.len() + 2) as u32;
    [&len.to_le_bytes()[..], &[4, 0], &head, program].concat()
}

/// Units, each with a function of 16 bytes, that share a line program.
fn with_lines(n: u32, lines: Vec<u8>) -> (Vec<u8>, Vec<u64>) {
    let table = [
        abbreviation(1, UNIT, true, &[LINES, LOW, HIGH]),
        abbreviation(2, FUNCTION, false, &[NAME, LOW, HIGH]),
        vec![0],
    ];
    let start = |number: u32| 0x1000 + u64::from(number % 64) * 16;
    let one = |number: u32| {
        let code = code(start(number), 16);
        unit(&[&[1, 0, 0, 0, 0][..], &code, &[2, b'f', 0], &code, &[0]].concat())
    };
    let units: Vec<u8> = (0..n).flat_map(one).collect();
    (file(units, table.concat(), vec![Section::debug(".debug_line", lines)]), (0..64).map(start).collect())
}

/// 64 units that share 800 KB of lines, one for each address.
fn shared_lines() -> Hostile {
    // DW_LNE_set_address, then special opcodes that advance by one byte.
    let start = [&[0, 9, 2][..], &0x1000_u64.to_le_bytes()].concat();
    let program = [start, vec![32; 800_000], vec![0, 1, 1]].concat();
    let (file, svmas) = with_lines(64, line_program(b"a.c\0\0\0\0", &program));
    Hostile { name: "units that share lines", file, svmas, is_too_much: false }
}

/// Ten thousand units that share two megabytes of file names.
fn shared_files() -> Hostile {
    let (file, svmas) = with_lines(10_000, line_program(&b"a\0\0\0\0".repeat(400_000), &[]));
    Hostile { name: "units that share names of files", file, svmas, is_too_much: true }
}

/// A function with a hundred thousand levels of inlining.
fn deep_inlining() -> Hostile {
    let table = [
        abbreviation(1, UNIT, true, &[LOW, HIGH]),
        abbreviation(2, FUNCTION, true, &[NAME, LOW, HIGH]),
        abbreviation(3, INLINED, true, &[NAME, LOW, HIGH]),
        vec![0],
    ];
    let code = code(0x1000, 0x1000);
    let inlined = [&[3, b'i', 0][..], &code].concat().repeat(100_000);
    let entries = [&[1][..], &code, &[2, b'f', 0], &code, &inlined].concat();
    let (name, svmas) = ("functions inlined into one another", vec![0x1800]);
    Hostile { name, file: file(unit(&entries), table.concat(), Vec::new()), svmas, is_too_much: false }
}

/// 250 MB of strings compressed to 3 MB, a ratio below a hundred.
fn compressed_strings() -> Hostile {
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(3_000_000)
    .collect();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(&noise).unwrap();
    (0..247).for_each(|_| encoder.write_all(&[0; 1_000_000]).unwrap());
    let packed = encoder.finish().unwrap();
    // ELFCOMPRESS_ZSTD, the full size, its alignment.
    let head = [&[2, 0, 0, 0, 0, 0, 0, 0][..], &250_000_000_u64.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let strings = Section { flags: 0x800, ..Section::debug(".debug_str", [head, packed].concat()) };
    let table = [abbreviation(1, UNIT, false, &[LOW, HIGH]), vec![0]].concat();
    let info = unit(&[&[1][..], &code(0x1000, 0x1000)].concat());
    let (name, svmas) = ("compressed strings", vec![0x1800]);
    Hostile { name, file: file(info, table, vec![strings]), svmas, is_too_much: true }
}

/// All hostile files, each built on demand.
pub(crate) fn all() -> impl Iterator<Item = Hostile> {
    let makers: [fn() -> Hostile; 6] =
        [shared_abbreviations, shared_ranges, shared_lines, shared_files, deep_inlining, compressed_strings];
    makers.into_iter().map(|make| make())
}
