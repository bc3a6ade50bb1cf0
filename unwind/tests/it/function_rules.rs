//! Rules of whole functions: their encoding, and the code they cover.

use std::ops::Range;

use fpprof_unwind::{Module, ModuleId, ModuleSections, Root, Unwinder};

use crate::build::{Cfi, HEADER_SVMA, Kind, R10, RA, RBP, RSP, Table, cfa};

const SP: u64 = 8;
const FP: u64 = 9;
const PLT: u64 = 1;
const FULL: u64 = 2;
const FP_SAVED: u64 = 1 << 4;
const FP_RESTORED: u64 = 1 << 5;
const AT_ENTRY: u64 = 1 << 6;
const BAD_CFI: u64 = 7;
const NO_CFI: u64 = 8;

/// Encodes a rule from its parts, as documented.
fn rule(low_bits: u64, fp_words: i16, offset: i32) -> u64 {
    low_bits | u64::from(fp_words as u16) << 16 | u64::from(offset as u32) << 32
}

fn stop(code: u64) -> u64 {
    3 | code << 8
}

fn rules_at(module: Module, svma: u64) -> Vec<(Range<u64>, u64)> {
    let mut found = Vec::new();
    let modules = Table(vec![Ok(module)]);
    Unwinder::default().function_rules(&modules, ModuleId(0), svma, |range, bits| found.push((range, bits)));
    found
}

/// Check the encoding of every kind of rule, which C code relies on.
#[test]
fn bits_are_as_documented() {
    // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let mut cfi = Cfi::eh_frame();
    cfi.fde(
        0x1000,
        0x40,
        &[
            cfa::advance(1),
            cfa::def_cfa_offset(16),
            cfa::saved(RBP, 16),
            cfa::advance(3),
            cfa::def_cfa_register(RBP),
            cfa::advance(8),
            cfa::def_cfa(RSP, 8),
            cfa::advance(1),
            cfa::def_cfa(RBP, 0x70),
            cfa::advance(1),
            cfa::def_cfa(R10, 0),
            cfa::advance(1),
            cfa::undefined(RA),
        ],
    )
    .fde(0x1100, 0x20, &[cfa::def_cfa_expression(&plt)]);
    let expected = [
        (0x1000..0x1001, rule(SP, 0, 8)),
        (0x1001..0x1004, rule(SP | FP_SAVED, -2, 16)),
        (0x1004..0x100c, rule(FP | FP_SAVED, -2, 16)),
        (0x100c..0x100d, rule(SP | FP_SAVED | FP_RESTORED, -2, 8)),
        (0x100d..0x100e, rule(FP | FP_SAVED, -2, 0x70)),
        (0x100e..0x100f, FULL),
        (0x100f..0x1040, stop(0)),
    ];
    for svma in [0x1000, 0x1003, 0x103f] {
        assert_eq!(rules_at(cfi.module(), svma), expected, "{svma:#x}");
    }
    assert_eq!(rules_at(cfi.module(), 0x1107), [(0x1100..0x1120, rule(PLT, 0, 11))]);
}

/// Check the codes of stop reasons: those of outermost frames come first, in this order.
#[test]
fn ends_have_their_numbers() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[]).fde(0x2000, 0x10, &[cfa::undefined(RA)]);
    let sections = ModuleSections { entry: Some(0x2000), ..cfi.sections() };
    assert_eq!(rules_at(Module::new(sections), 0x2008), [(0x2000..0x2010, stop(1))]);
    let roots =
        [Root::UndefinedRa, Root::Start, Root::ThreadStart, Root::StartContext, Root::Goexit, Root::G0].into_iter();
    for (code, root) in (0..).zip(roots) {
        let sections = ModuleSections { roots: vec![(0x1004..0x1006, root)], ..cfi.sections() };
        let expected =
            [(0x1000..0x1004, rule(SP, 0, 8)), (0x1004..0x1006, stop(code)), (0x1006..0x1010, rule(SP, 0, 8))];
        assert_eq!(rules_at(Module::new(sections), 0x1000), expected, "{root:?}");
    }
    assert_eq!(rules_at(cfi.module(), 0x5017), [(0x5000..0x5100, stop(NO_CFI))]);
    let sections = ModuleSections { entry: Some(0x5000), ..cfi.sections() };
    let expected = [(0x5000..0x5080, stop(NO_CFI) | AT_ENTRY), (0x5080..0x5100, stop(NO_CFI))];
    assert_eq!(rules_at(Module::new(sections), 0x5004), expected);
}

/// Check that where FDEs overlap each address has the rule a walk uses, with the header and with an index.
#[test]
fn overlapping_entries_share_code() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x1000, &[cfa::def_cfa_offset(32)]).fde(0x1400, 0x100, &[cfa::def_cfa_offset(64)]);
    let (outer, inner) = (rule(SP, 0, 32), rule(SP, 0, 64));
    for svma in [0x1000, 0x13ff] {
        assert_eq!(rules_at(cfi.module(), svma), [(0x1000..0x1400, outer)], "{svma:#x}");
    }
    assert_eq!(rules_at(cfi.module(), 0x1400), [(0x1400..0x1500, inner)]);
    assert_eq!(rules_at(cfi.module(), 0x1500), [(0x1500..0x2000, outer)]);
    // A header has one FDE for an address; after the end of the inner one that is still the inner one.
    let header = Some(Cfi::header(&cfi.entries));
    let with_header = || Module::new(ModuleSections { eh_frame_hdr: header.clone(), ..cfi.sections() });
    assert_eq!(rules_at(with_header(), 0x1200), [(0x1000..0x1400, outer)]);
    assert_eq!(rules_at(with_header(), 0x1400), [(0x1400..0x1500, inner)]);
    assert_eq!(rules_at(with_header(), 0x1500), [(0x1500..0x1600, stop(NO_CFI))]);
}

/// Check the same for an FDE missing from the header, and for one in `.debug_frame`.
#[test]
fn entries_of_other_places_end_where_the_first_place_has_one() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1400, 0x100, &[cfa::def_cfa_offset(64)]).fde(0x1000, 0x1000, &[cfa::def_cfa_offset(32)]);
    let (outer, inner) = (rule(SP, 0, 32), rule(SP, 0, 64));
    let listed = Some(Cfi::header(&cfi.entries[..1]));
    let left_out = || Module::new(ModuleSections { eh_frame_hdr: listed.clone(), ..cfi.sections() });
    assert!(listed.as_ref().is_some_and(|header| header.svma == HEADER_SVMA));
    let mut debug = Cfi::new(Kind::DebugFrame);
    debug.cie("", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
    debug.fde(0x1000, 0x1000, &[cfa::def_cfa_offset(32)]);
    let mut short = Cfi::eh_frame();
    short.fde(0x1400, 0x100, &[cfa::def_cfa_offset(64)]);
    let both = || Module::new(ModuleSections { debug_frame: debug.sections().debug_frame, ..short.sections() });
    for (name, module) in [("left out", &left_out as &dyn Fn() -> Module), ("debug", &both)] {
        assert_eq!(rules_at(module(), 0x1000), [(0x1000..0x1400, outer)], "{name}");
        assert_eq!(rules_at(module(), 0x1450), [(0x1400..0x1500, inner)], "{name}");
        assert_eq!(rules_at(module(), 0x1fff), [(0x1500..0x2000, outer)], "{name}");
    }
}

/// Check that a malformed program gives the rows before the error, and bad call frame information for the rest.
#[test]
fn broken_programs_end_walks() {
    let mut cfi = Cfi::eh_frame();
    // Restores a state that was never remembered.
    cfi.fde(0x1000, 0x40, &[cfa::advance(4), cfa::def_cfa_offset(16), cfa::advance(4), cfa::restore_state()]);
    let expected =
        [(0x1000..0x1004, rule(SP, 0, 8)), (0x1004..0x1008, rule(SP, 0, 16)), (0x1008..0x1040, stop(BAD_CFI))];
    assert_eq!(rules_at(cfi.module(), 0x1000), expected);
    assert_eq!(rules_at(cfi.module(), 0x1020), expected);
}

/// Check that for an FDE that claims gigabytes only a part is visited, and that a limited number of its addresses is
/// resolved one by one.
#[test]
fn huge_entries_give_what_is_near() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 1 << 31, &[cfa::def_cfa_offset(32)]);
    let found = rules_at(cfi.module(), 1 << 30);
    assert_eq!(found, [((1 << 30) - (1 << 20) + 0x1000..(1 << 30) + 0x1000, rule(SP, 0, 32))]);
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 1 << 31, &[cfa::undefined(RA)]);
    let found = rules_at(cfi.module(), 0x1000);
    assert_eq!(found, [(0x1000..0x2000, stop(0)), (0x2000..0x1000 + (1 << 20), FULL)]);
}
