//! Walks by `.sframe` sections.

use fpprof_unwind::{Module, ModuleSections, Section, Stack};

use crate::build::{BIAS, Process, STACK, addresses, bytes, regs, whole};

/// SVMA of `.sframe`.
const SVMA: u64 = 0x30_0000;
const SORTED: u8 = 1;
const START_RELATIVE_TO_FIELD: u8 = 4;

/// A row: its start, whether the CFA is relative to sp, and the offsets of the CFA and of fp.
type Row = (u32, bool, &'static [i32]);

#[derive(Clone, Copy)]
struct Function {
    start: u64,
    size: u32,
    /// Size of the repeated block, for a function made of such blocks.
    block: Option<u8>,
    /// The numbers in rows are control words and offsets.
    is_flexible: bool,
    rows: &'static [Row],
}

const fn function(start: u64, size: u32, rows: &'static [Row]) -> Function {
    Function { start, size, block: None, is_flexible: false, rows }
}

/// With a frame pointer: `push %rbp; mov %rsp, %rbp; …; leave; ret`, as gcc describes it.
const WITH_FP: &[Row] = &[(0, true, &[8]), (1, true, &[16, -16]), (4, false, &[16, -16]), (0x1f, true, &[8, -16])];

const FUNCTIONS: &[Function] = &[
    function(0x1000, 0x10, &[(0, true, &[32])]),
    function(0x1100, 0x20, WITH_FP),
    Function { block: Some(16), ..function(0x1800, 0x100, &[(0, true, &[8]), (11, true, &[16])]) },
    function(0x3000, 0x10, &[(0, true, &[])]),
];

/// The widths of numbers, in bytes.
#[derive(Clone, Copy)]
struct Widths {
    start: usize,
    offset: usize,
}

/// Encodes a section in the given version. Widths are written as log2.
fn section(version: u8, flags: u8, widths: Widths, functions: &[Function]) -> Vec<u8> {
    let (mut index, mut rows) = (Vec::new(), Vec::new());
    let function_bytes = [17, 20, 16][usize::from(version) - 1];
    for (number, function) in functions.iter().enumerate() {
        let rows_at = rows.len() as u32;
        let info = widths.start.ilog2() as u8 | u8::from(function.block.is_some()) << 4;
        let block = function.block.unwrap_or(0);
        if version == 3 {
            rows.extend((function.rows.len() as u16).to_le_bytes());
            rows.extend([info, function.is_flexible.into(), block]);
        }
        for &(start, is_from_sp, offsets) in function.rows {
            rows.extend(&start.to_le_bytes()[..widths.start]);
            let size = widths.offset.ilog2() as u8;
            rows.push(u8::from(is_from_sp) | (offsets.len() as u8) << 1 | size << 5);
            offsets.iter().for_each(|offset| rows.extend(&offset.to_le_bytes()[..widths.offset]));
        }
        let field = SVMA + 28 + (number * function_bytes) as u64;
        let base = if flags & START_RELATIVE_TO_FIELD != 0 { field } else { SVMA };
        let start = function.start.wrapping_sub(base);
        index.extend(&start.to_le_bytes()[..if version == 3 { 8 } else { 4 }]);
        index.extend([function.size.to_le_bytes(), rows_at.to_le_bytes()].concat());
        if version < 3 {
            index.extend((function.rows.len() as u32).to_le_bytes());
            index.extend(&[info, block, 0, 0][..if version == 1 { 1 } else { 4 }]);
        }
    }
    let mut section = vec![0xe2, 0xde, version, flags, 3, 0, 0xf8, 0];
    for number in [functions.len(), 0, rows.len(), 0, index.len()] {
        section.extend((number as u32).to_le_bytes());
    }
    [section, index, rows].concat()
}

fn process(sframe: Vec<u8>) -> Process {
    let sframe = Some(Section { svma: SVMA, bytes: sframe.into() });
    Process::new(Module::new(ModuleSections { sframe, entry: Some(0x5000), ..ModuleSections::default() }))
}

/// Sections in every encoding.
fn sections() -> impl Iterator<Item = (String, Vec<u8>)> {
    let widths = [(1, 1), (2, 2), (4, 4), (4, 1), (2, 4)].map(|(start, offset)| Widths { start, offset });
    let versions = [1, 2, 3]
        .into_iter()
        .flat_map(|version| [SORTED, SORTED | START_RELATIVE_TO_FIELD].map(|flags| (version, flags)));
    versions.flat_map(move |(version, flags)| {
        widths.map(|all| {
            let name = format!("version {version}, flags {flags}, {} and {} bytes", all.start, all.offset);
            (name, section(version, flags, all, FUNCTIONS))
        })
    })
}

/// Check that sections of all versions and widths give the same stacks, in every part of a function.
#[test]
fn versions_give_the_same_stacks() {
    for (name, section) in sections() {
        let process = process(section);
        let walk = |ip, fp, words: &[u64]| {
            let found = process.unwind(&regs(ip, STACK, fp), &whole(&bytes(words)));
            (addresses(&found), found.stop.to_string())
        };
        let root = BIAS + 0x3005;
        let complete = |frames: &[u64]| (frames.to_vec(), "complete (undefined_ra)".to_owned());
        // Before `push`, before `mov`, in the body, and after `leave`; then the caller, which needs only sp.
        let caller = [BIAS + 0x1008, 0, 0, 0, root];
        let link = [STACK + 0x100, BIAS + 0x1008, 0, 0, 0, root];
        assert_eq!(walk(0x1100, 7, &caller), complete(&[0x1100, 0x1008, 0x3005]), "{name}");
        assert_eq!(walk(0x1101, 7, &link), complete(&[0x1101, 0x1008, 0x3005]), "{name}");
        assert_eq!(walk(0x1110, STACK, &link), complete(&[0x1110, 0x1008, 0x3005]), "{name}");
        assert_eq!(walk(0x111f, 7, &caller), complete(&[0x111f, 0x1008, 0x3005]), "{name}");
        // Rows for blocks of 16 bytes: the first 11 of each, and the rest.
        assert_eq!(walk(0x1820, 7, &[root]), complete(&[0x1820, 0x3005]), "{name}");
        assert_eq!(walk(0x182b, 7, &[0, root]), complete(&[0x182b, 0x3005]), "{name}");
        // No function covers these.
        for ip in [0x1010, 0x1120, 0x2000, 0x3010] {
            assert_eq!(walk(ip, 7, &caller), (vec![ip], "truncated (no_cfi)".to_owned()), "{name}, {ip:#x}");
        }
    }
}

/// Check that a frame pointer popped by an epilogue is the caller's, and that one in the red zone is not taken for
/// popped.
#[test]
fn popped_frame_pointers_are_the_callers() {
    const RED_ZONE: &[Row] = &[(0, true, &[8, -16])];
    let functions =
        [function(0x1100, 0x20, WITH_FP), function(0x1200, 0x10, RED_ZONE), function(0x3000, 0x10, &[(0, true, &[])])];
    let process = process(section(2, SORTED, Widths { start: 1, offset: 1 }, &functions));
    // The CFA of the second frame is relative to the frame pointer.
    let words = bytes(&[BIAS + 0x1110, 0, 0, BIAS + 0x3005]);
    let walk = |ip| -> Stack { process.unwind(&regs(ip, STACK, STACK + 16), &whole(&words)) };
    assert_eq!(addresses(&walk(0x111f)), [0x111f, 0x1110, 0x3005]);
    assert_eq!((addresses(&walk(0x1200)), walk(0x1200).stop.name()), (vec![0x1200, 0x1110], "red_zone"));
}

/// Check that the rows of functions that realign their stack are read as gcc and binutils 2.46 write them: the CFA is
/// in r10, then in memory below fp, and the caller's fp is where fp points.
#[test]
fn flexible_rows_name_any_register() {
    const SP: i32 = 7 << 3 | 1;
    const R10: i32 = 10 << 3 | 1;
    const AT_FP: i32 = 6 << 3 | 3;
    const REALIGNED: &[Row] = &[
        (0, false, &[SP, 8]),
        (5, false, &[R10, 0]),
        (0x1c, false, &[R10, 0, 0, AT_FP, 0]),
        (0x1e, false, &[AT_FP, -8, 0, AT_FP, 0]),
        (0x40, false, &[0, 8]),
        (0x50, false, &[SP, 8, R10, 8]),
        (0x60, false, &[SP, 8, 0, R10]),
    ];
    let realigned = Function { is_flexible: true, ..function(0x1200, 0x80, REALIGNED) };
    let functions = [FUNCTIONS[0], FUNCTIONS[1], realigned, FUNCTIONS[3]];
    for widths in [Widths { start: 1, offset: 1 }, Widths { start: 2, offset: 4 }] {
        let process = process(section(3, SORTED | START_RELATIVE_TO_FIELD, widths, &functions));
        // The CFA is STACK + 48; the caller's row at 0x1110 needs its fp, which is STACK + 64.
        let words = [0, STACK + 48, STACK + 64, 0, 0, BIAS + 0x1110, 0, 0, STACK + 0x100, BIAS + 0x3005];
        let walk = |ip, fp| {
            let mut regs = regs(ip, STACK, fp);
            regs.set(10, STACK + 48);
            let found = process.unwind(&regs, &whole(&bytes(&words)));
            (addresses(&found), found.stop.name())
        };
        let complete = |ip| (vec![ip, 0x1110, 0x3005], "undefined_ra");
        assert_eq!(walk(0x1205, STACK + 64), complete(0x1205));
        assert_eq!(walk(0x121c, STACK + 16), complete(0x121c));
        assert_eq!(walk(0x1230, STACK + 16), complete(0x1230));
        // No CFA; a return address that is a register plus an offset; an offset that is missing.
        for ip in [0x1240, 0x1250, 0x1260] {
            assert_eq!(walk(ip, STACK + 16), (vec![ip], "no_cfi"), "{ip:#x}");
        }
    }
}

/// Check that an invalid section, or one for another architecture, has no rows, and that `.eh_frame` is not used
/// instead.
#[test]
fn other_sections_say_nothing() {
    let good = || section(2, SORTED, Widths { start: 1, offset: 1 }, FUNCTIONS);
    let stop = |section: Vec<u8>| process(section).unwind(&regs(0x1004, STACK, 0), &whole(&bytes(&[0; 8]))).stop.name();
    assert_eq!(stop(good()), "ra_not_exec");
    for (at, byte) in [(0, 0), (2, 0), (2, 4), (3, 0), (4, 2)] {
        let mut other = good();
        other[at] = byte;
        assert_eq!(stop(other), "no_cfi", "byte {at}");
    }
}

/// Check that truncated or damaged sections end walks and do no other harm.
#[test]
fn damaged_sections_end_walks() {
    for (_, section) in sections() {
        for len in 0..section.len() {
            process(section[..len].to_vec()).unwind(&regs(0x1110, STACK, STACK), &whole(&bytes(&[0; 8])));
        }
        for at in 0..section.len() {
            let mut damaged = section.clone();
            for byte in [0xff, 0x80, 0x7f, 0] {
                damaged[at] = byte;
                for ip in [0x1004, 0x1110, 0x182b, 0x3000] {
                    process(damaged.clone()).unwind(&regs(ip, STACK, STACK), &whole(&bytes(&[BIAS + 0x1008; 8])));
                }
            }
        }
    }
}
