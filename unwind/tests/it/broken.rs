//! Broken stacks.

use fpprof_unwind::{BrokenReason, Fallback, Mapping, Space, StopReason, TruncatedReason};

use crate::build::{BIAS, Cfi, JIT, Process, RA, RBP, RSP, STACK, Sparse, addresses, bytes, cfa, regs, whole};

fn broken(reason: BrokenReason) -> StopReason {
    StopReason::Broken(reason)
}

/// Check that return addresses of zero, outside any mapping or in data end the walk and are not frames.
#[test]
fn return_addresses_must_be_executable() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[]);
    let process = Process::new(cfi.module());
    for ra in [0x4141_4141_4141_4141, 0, 1, u64::MAX, BIAS + 0x1_0001, BIAS + 0x1000, STACK + 8] {
        let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&bytes(&[ra, 0])));
        assert_eq!((addresses(&found), found.stop), (vec![0x1004], broken(BrokenReason::RaNotExec)), "{ra:#x}");
        assert_eq!(found.frames[0].cfa, STACK + 8);
    }
}

/// Check that a call may end its mapping, so that its return address is outside.
#[test]
fn a_call_may_end_its_mapping() {
    let process = Process::new(Cfi::eh_frame().fde(0x1000, 0x10, &[]).module());
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&bytes(&[BIAS + 0x1_0000, 0])));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x1_0000], "no_cfi"));
}

/// Check that a sampled instruction outside all code is still the leaf and the stack is not called broken, and that
/// frame pointers are followed from there if the options ask for it.
#[test]
fn a_leaf_may_be_anywhere() {
    let mut process = Process::new(Cfi::eh_frame().fde(0x1000, 0x10, &[cfa::undefined(RA)]).module());
    let (regs, stack) = (regs(0x2_0000_0000, STACK, STACK), bytes(&[STACK + 0x40, BIAS + 0x1001]));
    let found = process.unwind(&regs, &whole(&stack));
    assert_eq!((found.frames.len(), found.stop), (1, StopReason::Truncated(TruncatedReason::NoModule)));
    process.options.fallback = Fallback::FramePointer;
    let found = process.unwind(&regs, &whole(&stack));
    assert_eq!((addresses(&found)[1..].to_vec(), found.stop.class()), (vec![0x1001], "complete"));
    assert!(found.frames[1].flags.fp_fallback);
}

/// Check that a CFA at or below the stack pointer ends the walk, for every kind of row.
#[test]
fn the_cfa_must_grow() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RBP, 16)]).fde(0x1100, 0x10, &[cfa::def_cfa(RSP, 0)]).fde(
        0x1200,
        0x10,
        &[cfa::def_cfa_expression(&[0x77, 0x78])],
    ); // rsp − 8
    let process = Process::new(cfi.module());
    let stack = bytes(&[BIAS + 0x1005; 8]);
    for (ip, fp) in [(0x1004, STACK), (0x1004, STACK + 8), (0x1104, 0), (0x1204, 0)] {
        let found = process.unwind(&regs(ip, STACK + 24, fp), &whole(&stack));
        assert_eq!((addresses(&found), found.stop), (vec![ip], broken(BrokenReason::CfaNotIncreasing)), "{ip:#x}");
    }
    // The near miss: one word higher.
    let found = process.unwind(&regs(0x1004, STACK + 24, STACK + 16), &whole(&stack));
    assert_eq!(addresses(&found), [0x1004, 0x1005]);
}

/// Check that a leaf whose return address is in a register may have its CFA at the stack pointer, as in `vfork` and at
/// the end of exception unwinding, but no other frame, and no leaf with its return address in memory.
#[test]
fn a_leaf_may_have_popped_its_return_address() {
    const RDI: u8 = 5;
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RSP, 0), cfa::in_register(RA, RDI)]).fde(0x1100, 0x10, &[]).fde(
        0x3000,
        0x10,
        &[cfa::undefined(RA)],
    );
    let process = Process::new(cfi.module());
    let stack = bytes(&[BIAS + 0x1005; 4]);
    let mut popped = regs(0x1004, STACK, 0);
    popped.set(u16::from(RDI), BIAS + 0x3005);
    let found = process.unwind(&popped, &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x3005], "undefined_ra"));
    assert_eq!(found.frames[0].cfa, STACK);
    let found = process.unwind(&regs(0x1104, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x1104, 0x1005], broken(BrokenReason::CfaNotIncreasing)));
}

/// Check that a row with a rule for the stack pointer may have its CFA at the stack pointer, as in GHC's entry into
/// Haskell code; and that this stack pointer must grow, and so must a CFA elsewhere.
#[test]
fn the_stack_pointer_may_have_a_rule_of_its_own() {
    let row = |above: u8| {
        let sp = cfa::val_expression(RSP, &[0x77, above]); // rsp + above
        [cfa::def_cfa(RSP, 0), sp, cfa::saved_above(RA, 16)].concat()
    };
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[row(24)]).fde(0x1100, 0x10, &[]).fde(0x1200, 0x10, &[row(0)]);
    // As in `__longjmp`: the row describes the target stack, from a buffer outside this stack.
    let elsewhere = [cfa::def_cfa(RBP, 0), cfa::val_expression(RSP, &[0x77, 24]), cfa::saved_above(RA, 16)].concat();
    cfi.fde(0x1300, 0x10, &[elsewhere]);
    cfi.fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    let process = Process::new(cfi.module());
    let leaf = bytes(&[0, 0, BIAS + 0x3001, 0]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&leaf));
    assert_eq!((addresses(&found), found.frames[0].cfa), (vec![0x1004, 0x3001], STACK + 24));
    let found = process.unwind(&regs(0x1304, STACK + 16, STACK), &whole(&leaf));
    assert_eq!((addresses(&found), found.stop), (vec![0x1304], broken(BrokenReason::CfaNotIncreasing)));
    let called = bytes(&[BIAS + 0x1005, 0, 0, BIAS + 0x3001, 0]);
    let found = process.unwind(&regs(0x1104, STACK, 0), &whole(&called));
    assert_eq!((addresses(&found), found.frames[1].cfa), (vec![0x1104, 0x1005, 0x3001], STACK + 32));
    let found = process.unwind(&regs(0x1204, STACK, 0), &whole(&leaf));
    assert_eq!((addresses(&found), found.stop), (vec![0x1204], broken(BrokenReason::CfaNotIncreasing)));
}

/// Check that the CFA may be lower if it is on another stack, as after leaving a split stack.
#[test]
fn the_cfa_may_fall_into_another_stack() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RBP, 16)]).fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    let mut process = Process::new(cfi.module());
    let mut mappings = process.space.mappings().to_vec();
    for start in [STACK - 0x10_0000, STACK] {
        mappings.push(Mapping { start, end: start + 0x1000, executable: false, module: None, bias: 0 });
    }
    process.space = Space::new(2, mappings);
    let below = STACK - 0x10_0000;
    let memory = Sparse([(below + 8, BIAS + 0x3001)].into());
    let found = process.unwind(&regs(0x1004, STACK + 64, below), &memory);
    assert_eq!((addresses(&found), found.stop.class()), (vec![0x1004, 0x3001], "complete"));
    // A chunk has only one stack.
    let found = process.unwind(&regs(0x1004, STACK + 64, below), &whole(&bytes(&[0; 32])));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004], "stack_switch"));
}

/// Check that a misaligned CFA is reported.
#[test]
fn the_cfa_must_be_aligned() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RBP, 16)]);
    let process = Process::new(cfi.module());
    let found = process.unwind(&regs(0x1004, STACK, STACK + 4), &whole(&bytes(&[BIAS + 0x1005; 8])));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004], broken(BrokenReason::Misaligned)));
}

/// Check that a signal frame that leads to itself is a loop, and does not fill the stack up to the depth limit.
#[test]
fn a_signal_frame_that_interrupts_itself_is_a_loop() {
    let mut cfi = Cfi::eh_frame();
    cfi.cie("zRS", &[]);
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_expression(&[0x77, 0, 0x06]), cfa::expression(RA, &[0x77, 8])]);
    let mut process = Process::new(cfi.module());
    process.options.max_depth = 1_000_000;
    let stack = bytes(&[STACK, BIAS + 0x1004]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!(found.stop, broken(BrokenReason::Loop));
    assert!(found.frames.len() < 10);
}

/// Check that malformed entries are reported, and that rows before the bad instruction are used.
#[test]
fn malformed_programs_are_named() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::advance(8), vec![0x3f]]) // an instruction nobody knows
        .fde(0x1100, 0x10, &[cfa::restore_state()])
        .fde(0x1200, 0x10, &[cfa::def_cfa(40, 8)]) // a register nobody has
        .fde(0x1300, 0x10, &[cfa::def_cfa_expression(&[0xff])])
        .fde(0x1400, 0x10, &[cfa::def_cfa_expression(&[])])
        .fde(0x1500, 0x10, &[cfa::same_value(RA)])
        .fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    let process = Process::new(cfi.module());
    let stack = bytes(&[BIAS + 0x3001; 4]);
    let ends = |ip| process.unwind(&regs(ip, STACK, 0), &whole(&stack)).stop.name();
    assert_eq!(ends(0x1007), "undefined_ra");
    for ip in [0x1008, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500] {
        assert_eq!(ends(ip), "bad_cfi", "{ip:#x}");
    }
}

/// Check that an endless expression is stopped, and that many long ones use up the budget.
#[test]
fn expressions_are_limited() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_expression(&[0x2f, 0xfd, 0xff])]); // skip −3
    // 4,000 nops and a CFA of rsp + 8.
    let long = [vec![0x96; 4000], vec![0x77, 8]].concat();
    cfi.fde(0x1100, 0x10, &[cfa::def_cfa_expression(&long)]);
    let too_long = [vec![0x96; 4096], vec![0x77, 8]].concat();
    cfi.fde(0x1200, 0x10, &[cfa::def_cfa_expression(&too_long)]);
    let process = Process::new(cfi.module());
    let stack = bytes(&[BIAS + 0x1105; 64]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004], broken(BrokenReason::ExprLimit)));
    let found = process.unwind(&regs(0x1204, STACK, 0), &whole(&stack));
    assert_eq!(found.stop, broken(BrokenReason::ExprLimit));
    let found = process.unwind(&regs(0x1104, STACK, 0), &whole(&stack));
    assert_eq!((found.frames.len(), found.stop.name()), (17, "budget"));
}

/// Check that wrong unwind information costs no more than the frames it covers.
#[test]
fn wrong_information_is_not_believed_for_long() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_offset(24)]); // in truth 8
    let process = Process::new(cfi.module());
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&bytes(&[JIT + 8, 0x4141, 0x4141_4141, 0])));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004], broken(BrokenReason::RaNotExec)));
}
