//! Compares random CFI programs with gimli's evaluator.

use fpprof_unwind::{Error, row_at};
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::{prop_assert_eq, proptest};

use crate::build::{Cfi, EH_FRAME_SVMA, cfa};
use crate::rows::assert_same_rules;

const START: u64 = 0x1000;
const LEN: u64 = 0x60;

/// An instruction, usually well-formed.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let register = 0u8..20;
    let operand = any::<u16>().prop_map(|value| cfa::uleb(u64::from(value)));
    let two = |opcode: u8| {
        let operand = any::<u16>().prop_map(|value| cfa::uleb(u64::from(value)));
        (0u8..20, operand).prop_map(move |(register, operand)| [vec![opcode, register], operand].concat())
    };
    let expression = vec(any::<u8>(), 0..6);
    prop_oneof![
        4 => (0u8..16).prop_map(cfa::advance),
        1 => (0u8..40).prop_map(|delta| vec![0x02, delta]),
        1 => (0u8..40).prop_map(|delta| vec![0x03, delta, 0]),
        1 => (0u8..40).prop_map(|delta| vec![0x04, delta, 0, 0, 0]),
        1 => (START - 4..START + LEN).prop_map(|address| [vec![0x01], address.to_le_bytes().to_vec()].concat()),
        2 => two(0x0c),
        1 => (register.clone(), any::<i8>()).prop_map(|(register, offset)| vec![0x12, register, offset as u8 & 0x7f]),
        1 => register.clone().prop_map(cfa::def_cfa_register),
        2 => operand.prop_map(|operand| [vec![0x0e], operand].concat()),
        1 => any::<i8>().prop_map(|offset| vec![0x13, offset as u8 & 0x7f]),
        1 => expression.clone().prop_map(|bytes| cfa::def_cfa_expression(&bytes)),
        4 => (register.clone(), 0u8..30).prop_map(|(register, words)| cfa::saved(register, words * 8)),
        1 => two(0x05),
        1 => two(0x09),
        1 => two(0x14),
        1 => (register.clone(), any::<i8>()).prop_map(|(register, offset)| vec![0x11, register, offset as u8 & 0x7f]),
        1 => (register.clone(), any::<i8>()).prop_map(|(register, offset)| vec![0x15, register, offset as u8 & 0x7f]),
        1 => register.clone().prop_map(cfa::undefined),
        1 => register.clone().prop_map(cfa::same_value),
        2 => register.clone().prop_map(|register| vec![0xc0 | register]),
        1 => register.clone().prop_map(|register| vec![0x06, register]),
        1 => (register.clone(), expression.clone()).prop_map(|(register, bytes)| cfa::expression(register, &bytes)),
        1 => (register, expression).prop_map(|(register, bytes)| cfa::val_expression(register, &bytes)),
        1 => (0u8..100).prop_map(|size| vec![0x2e, size]),
        2 => proptest::strategy::Just(cfa::remember()),
        2 => proptest::strategy::Just(cfa::restore_state()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ]
}

proptest! {
    /// Check that at every address we find the same row as gimli, or that both reject the program.
    #[test]
    fn random_programs_give_the_same_rows(
        initial in vec(instruction(), 0..4),
        instructions in vec(instruction(), 0..30),
    ) {
        // gimli defaults to CFA = r0 + 0.
        let initial = [cfa::def_cfa(0, 0), initial.concat()].concat();
        let mut cfi = Cfi::new(crate::build::Kind::EhFrame);
        cfi.cie("zR", &initial).fde(START, LEN, &instructions);
        let module = cfi.module();
        let section = EhFrame::new(&cfi.bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(EH_FRAME_SVMA);
        let offset = gimli::EhFrameOffset(cfi.entries[0].1);
        let fde = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).unwrap();
        for svma in START..START + LEN {
            let mut context = UnwindContext::new();
            let theirs = fde.unwind_info_for_address(&section, &bases, &mut context, svma);
            match (row_at(&module, svma), theirs) {
                (Ok(ours), Ok(theirs)) => assert_same_rules(&ours, theirs),
                // gimli remembers at most three states; we remember more.
                (Ok(_), Err(gimli::Error::StackFull)) => {}
                (Err(ours), Err(theirs)) => {
                    let no_row = matches!(theirs, gimli::Error::NoUnwindInfoForAddress);
                    prop_assert_eq!(matches!(ours, Error::NoRow(_)), no_row, "{} {}", ours, theirs);
                }
                (ours, theirs) => panic!("{svma:#x}: {ours:?} and {theirs:?}"),
            }
        }
    }
}
