//! Compares the fast path with the parser on random programs.

extern crate std;

use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::{MAX_REMEMBERED, QuickCie, QuickFde, REMEMBER_STATE};
use crate::arch::Arch;
use crate::cfi::{Program, Scratch, Sections};
use crate::module::{Module, ModuleSections, Section, SectionKind};
use crate::rule::Needed;

const SVMA: u64 = 0x8000;
const START: u64 = 0x1000;
const LEN: u32 = 0x60;

/// An `.eh_frame` section of one CIE and one FDE, and the offset of the latter.
fn section(has_lsda: bool, initial: &[u8], program: &[u8]) -> (Section, usize) {
    let augmentation: &[u8] = if has_lsda { b"zRL\0" } else { b"zR\0" };
    // Version, code alignment 1, data alignment −8, return address in column 16, encodings.
    let encodings: &[u8] = if has_lsda { &[2, 0x1b, 0x1b] } else { &[1, 0x1b] };
    let cie = [&[0, 0, 0, 0, 1], augmentation, &[1, 0x78, 16], encodings, initial].concat();
    let mut bytes = entry(&cie);
    let offset = bytes.len();
    let field = SVMA + offset as u64 + 8;
    let start = u32::try_from(START.wrapping_sub(field) & 0xffff_ffff).unwrap().to_le_bytes();
    let pointer = u32::try_from(offset + 4).unwrap().to_le_bytes();
    let lsda: &[u8] = if has_lsda { &[4, 1, 2, 3, 4] } else { &[0] };
    bytes.extend(entry(&[&pointer, &start, &LEN.to_le_bytes(), lsda, program].concat()));
    (Section { svma: SVMA, bytes: bytes.into() }, offset)
}

fn entry(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_le_bytes(), body].concat()
}

/// What the two paths find at every address: (the parser, the fast path).
fn both(has_lsda: bool, initial: &[u8], program: &[u8]) -> Option<Vec<(Option<Needed>, Option<Needed>)>> {
    let (eh_frame, offset) = section(has_lsda, initial, program);
    let module = Module::new(ModuleSections { eh_frame: Some(eh_frame), ..ModuleSections::default() });
    let spec = Arch::X86_64.spec();
    let (sections, mut scratch) = (Sections::new(&module), Scratch::new());
    let fde = module.find(START).unwrap();
    let first = Program::new(&module, &sections, &fde, &mut scratch).ok()?.state().needed(spec, 16);
    let cie = QuickCie::new(&fde, spec, first).expect("the common entry is of the usual form");
    let quick = QuickFde::new(module.section(SectionKind::EhFrame)?, offset).expect("the entry is of the usual form");
    assert_eq!(quick.range, fde.range());
    let mut long = |svma| {
        let mut program = Program::new(&module, &sections, &fde, &mut scratch).ok()?;
        while let Some(row) = program.next_row().ok()? {
            if row.contains(&svma) {
                return Some(program.state().needed(spec, 16));
            }
        }
        None
    };
    Some(quick.range.clone().map(|svma| (long(svma), cie.row(&quick, spec, svma))).collect())
}

/// An instruction that the fast path reads.
fn usual() -> impl Strategy<Value = Vec<u8>> {
    let register = || prop_oneof![Just(3u8), Just(6), Just(7), Just(16), Just(17), Just(40)];
    let operand =
        || prop_oneof![(0u8..0x80).prop_map(|low| vec![low]), (0u8..0x80).prop_map(|low| vec![low | 0x80, 1])];
    let with = move |opcode: u8| (register(), operand()).prop_map(move |(r, o)| [vec![opcode, r], o].concat());
    let expression =
        || vec(any::<u8>(), 0..5).prop_map(|bytes| [vec![u8::try_from(bytes.len()).unwrap()], bytes].concat());
    prop_oneof![
        4 => (0u8..16).prop_map(|delta| vec![0x40 | delta]),
        1 => (0u8..20).prop_map(|delta| vec![0x02, delta]),
        1 => (0u8..20).prop_map(|delta| vec![0x03, delta, 0]),
        1 => (0u8..20).prop_map(|delta| vec![0x04, delta, 0, 0, 0]),
        4 => (register().prop_filter("in six bits", |r| *r < 0x40), operand()).prop_map(|(r, o)| [vec![0x80 | r], o].concat()),
        2 => register().prop_map(|r| vec![0xc0 | r]),
        2 => with(0x05),
        2 => with(0x0c),
        1 => with(0x09).prop_map(|bytes| bytes[..2].iter().copied().chain([6]).collect()),
        1 => prop_oneof![Just(0x06u8), Just(0x07), Just(0x08), Just(0x0d)].prop_flat_map(move |opcode| register().prop_map(move |r| vec![opcode, r])),
        2 => operand().prop_map(|o| [vec![0x0e], o].concat()),
        1 => expression().prop_map(|bytes| [vec![0x0f], bytes].concat()),
        1 => (prop_oneof![Just(0x10u8), Just(0x16)], register(), expression()).prop_map(|(opcode, r, bytes)| [vec![opcode, r], bytes].concat()),
        1 => operand().prop_map(|o| [vec![0x2e], o].concat()),
        1 => Just(vec![0]),
        1 => Just(vec![REMEMBER_STATE]),
        1 => Just(vec![0x0b]),
    ]
}

proptest! {
    /// Check that the fast path gives the same rows as the parser for usual programs, and reads all of them.
    #[test]
    fn usual_programs_give_the_same_rows(
        has_lsda in any::<bool>(),
        initial in vec(usual(), 0..4),
        program in vec(usual(), 0..30),
    ) {
        let n = |programs: &[Vec<u8>]| programs.iter().filter(|bytes| bytes[..] == [REMEMBER_STATE]).count();
        // Programs with states remembered in the CIE, or with more than a few, are left to the parser.
        let must_be_read = n(&initial) == 0 && n(&program) <= MAX_REMEMBERED;
        let initial = [vec![0x0c, 7, 8, 0x90, 1], initial.concat()].concat();
        for (long, short) in both(has_lsda, &initial, &program.concat()).into_iter().flatten() {
            if short.is_some() || must_be_read {
                prop_assert_eq!(short, long);
            }
        }
    }

    /// Check that whatever the bytes, the fast path gives the parser's rows or none.
    #[test]
    fn any_program_gives_the_same_rows_or_none(
        has_lsda in any::<bool>(),
        program in vec(prop_oneof![3 => usual(), 1 => vec(any::<u8>(), 1..4)], 0..20),
    ) {
        let initial = [0x0c, 7, 8, 0x90, 1];
        for (long, short) in both(has_lsda, &initial, &program.concat()).into_iter().flatten() {
            prop_assert!(short.is_none() || short == long, "{:?} {:?}", short, long);
        }
    }
}

/// Check that entries of another form are left to the parser.
#[test]
fn leaves_other_forms_alone() {
    let (good, offset) = section(false, &[], &[]);
    assert!(QuickFde::new(&good, offset).is_some());
    // The CIE; a length beyond the section; a range with the sign bit set.
    assert!(QuickFde::new(&good, 0).is_none());
    for (at, byte) in [(offset + 1, 0x10), (offset + 15, 0x80)] {
        let mut bytes = good.bytes.to_vec();
        bytes[at] = byte;
        assert!(QuickFde::new(&Section { svma: SVMA, bytes: bytes.into() }, offset).is_none(), "{at}");
    }
    assert!(QuickFde::new(&good, usize::MAX).is_none());
}
